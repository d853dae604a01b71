"""Samples of a model with states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from onnxtool.errors import UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.open_data import open_data
from onnxtool.runtime.data.source import DataSource, state_pairs, with_states

FLOAT = np.dtype("float32")
X, H = TensorSpec("x", FLOAT, ("n", 1)), TensorSpec("h", FLOAT, (2, "n", 1))
Y, HN = TensorSpec("y", FLOAT, ("n", 1)), TensorSpec("hn", FLOAT, (2, "n", 1))
VALUES = np.arange(1, 7, dtype=np.float32).reshape(6, 1)


def run(feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The state sums up what came in."""
    return {"y": feeds["x"], "hn": feeds["h"] + feeds["x"][None]}


def walked(steps: int, data: Any = None) -> DataSource:
    others = (X,) if data is None else (X, H)
    source = open_data({"x": VALUES} if data is None else data, others)
    return with_states(source, (X, H), {"h": "hn"}, steps, run)


def states(source: DataSource) -> list[float]:
    return [float(f["h"][0, 0, 0]) for f in source.samples()]


def test_states_are_what_the_model_gave_for_the_sample_before() -> None:
    assert states(walked(3)) == [0, 1, 3, 0, 4, 9]
    assert states(walked(100)) == [0, 1, 3, 6, 10, 15]
    assert states(walked(1)) == [0] * 6


def test_a_second_pass_gives_the_same() -> None:
    source = walked(3)
    assert states(source) == states(source)


def test_a_part_of_the_samples_has_the_states_of_the_whole() -> None:
    assert states(walked(3).subset(lambda i: i % 2 == 1)) == [1, 0, 9]


def test_steps_are_not_joined_into_batches() -> None:
    """The states have their batch elsewhere than first."""
    assert [f["h"].shape for f in walked(3).batches(8)] == [(2, 1, 1)] * 6


def test_the_data_may_bring_the_first_states() -> None:
    first = [{"x": VALUES[i : i + 1], "h": np.full((2, 1, 1), 100, np.float32)} for i in range(4)]
    assert states(walked(2, first)) == [100, 101, 100, 103]


@pytest.mark.parametrize(
    ("names", "gives"),
    [(("h",), ("hn",)), (("state",), ("stateN",)), (("h0", "c0"), ("hn", "cn")), (("prev_state",), ("next_state",))],
)
def test_names_tell_pairs(names: tuple[str, ...], gives: tuple[str, ...]) -> None:
    inputs = [X, *(TensorSpec(n, FLOAT, (2, "n", 1)) for n in names)]
    outputs = [Y, *(TensorSpec(n, FLOAT, (2, "n", 1)) for n in gives)]
    assert state_pairs((), inputs, outputs) == dict(zip(names, gives, strict=True))


def test_pairs_are_named_where_names_do_not_tell() -> None:
    other = TensorSpec("memory", FLOAT, (2, "n", 1))
    assert state_pairs(["memory:h"], [X, H], [Y, other]) == {"h": "memory"}
    with pytest.raises(UsageError, match="no output looks like"):
        state_pairs((), [X, H], [Y, other])
    for text in ("memory", "y:z", "z:h"):
        with pytest.raises(UsageError, match="--state"):
            state_pairs([text], [X, H], [Y, other])

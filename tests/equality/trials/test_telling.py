"""Inputs are sought for outputs of which the usual ones tell nothing, and no longer than that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from onnxtool.equality.trials.telling import telling_feeds, telling_probes
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.probes import Probe

FLOAT = np.dtype("float32")
USUAL = {"x": np.zeros((2, 8), FLOAT)}


class Marks:
    """An output for each test, which says something where the test holds."""

    def __init__(self, **tests: Callable[[np.ndarray], Any]) -> None:
        self.inputs, self.outputs = [TensorSpec("x", FLOAT, (2, "n"))], []
        self.tests, self.runs = tests, 0

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        self.runs += 1
        return {name: np.array([float(bool(test(feeds["x"])))]) for name, test in self.tests.items()}


def silent(runs: Sequence[Mapping[str, Any]]) -> set[str]:
    return {name for name in runs[0] if not any(run[name].any() for run in runs)}


def probes(runner: Marks, *, sizes: bool = True) -> list[Probe]:
    usual = [Probe(USUAL, runner.run(USUAL))]
    return [*telling_probes(runner, runner.inputs, usual, silent, 0, {}, sizes=sizes)]


@pytest.mark.parametrize(
    ("test", "sizes"),
    [
        (lambda x: np.abs(x).max() > 90, False),
        (lambda x: 0 < np.abs(x).max() < 0.1, False),
        (lambda x: x.min() > 0, False),
        (lambda x: x[0, 0] == 0 and x[0, 1] > 0 and np.allclose(x[0, 2] / x[0, 1], 2, 0.05), False),  # a tone
        (lambda x: x.shape[1] > 10_000, True),
    ],
)
def test_an_input_is_found_on_which_an_output_tells_something(test: Callable[[Any], Any], sizes: bool) -> None:
    found = probes(Marks(y=test), sizes=sizes)
    assert len(found) == 1 and found[0].outputs["y"].all()


def test_what_tells_nothing_more_is_left_out_and_the_search_ends_when_all_is_told() -> None:
    runner = Marks(usual=lambda x: True, large=lambda x: np.abs(x).max() > 90)
    assert len(probes(runner)) == 1
    runs = runner.runs
    never = Marks(usual=lambda x: True, never=lambda x: False)
    assert probes(never) == [] and never.runs > runs
    told = Marks(usual=lambda x: True)
    assert probes(told) == [] and told.runs == 1


def test_dims_that_are_fixed_keep_their_size() -> None:
    assert probes(Marks(y=lambda x: x.shape[1] > 8), sizes=False) == []


def test_sequences_are_not_drawn() -> None:
    assert [*telling_feeds([TensorSpec("s", "sequence", None)], [], 0, {}, {})] == []

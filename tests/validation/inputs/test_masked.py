"""What depends on positions that a mask leaves out does not count, as long as the model heeds its mask at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtool.model.spec import TensorSpec
from onnxtool.validation.inputs.masked import Kept, KeptPositions, steady_outputs
from onnxtool.validation.inputs.trial import Feeds

SPECS = [TensorSpec("ids", np.dtype("int64"), ("b", "n")), TensorSpec("attention_mask", np.dtype("int64"), ("b", "n"))]
IDS = np.array([[3, 9, 4, 7, 5], [6, 2, 8, 1, 9]])


class Model:
    """A function as a Runner."""

    def __init__(self, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        self.inputs, self.outputs = SPECS, [TensorSpec("y", np.dtype("float32"), ("b",))]
        self._function = function

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": self._function(feeds["ids"], feeds["attention_mask"]).astype(np.float32)}


def steady(mask: list[list[int]], a: Model, b: Model) -> Any:
    feeds: Feeds = {"ids": IDS, "attention_mask": np.array(mask)}
    (found,) = steady_outputs(a, b.run, SPECS, feeds, np.array(mask) > 0) or (None,)
    return found if found is None else found.tolist()


FIRST = Model(lambda ids, mask: ids[:, 0] + 0 * mask[:, 0])
SUM = Model(lambda ids, mask: (ids * mask).sum(axis=1))
IGNORES = Model(lambda ids, mask: ids.sum(axis=1) + 0 * mask[:, 0])


def test_rows_that_read_what_is_left_out_are_not_steady() -> None:
    assert steady([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]], FIRST, FIRST) == [False, True]


def test_a_model_that_heeds_its_mask_is_steady() -> None:
    assert steady([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]], SUM, SUM) == [True, True]


def test_what_one_of_the_two_reads_counts() -> None:
    assert steady([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]], FIRST, SUM) == [True, True]


def test_of_a_model_that_ignores_its_mask_all_counts() -> None:
    assert steady([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]], IGNORES, IGNORES) is None


def test_a_row_of_which_nothing_is_left_does_not_count_where_it_is_read() -> None:
    assert steady([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], FIRST, FIRST) == [False, True]


def test_a_token_that_is_everywhere_is_changed_all_the_same() -> None:
    feeds: Feeds = {"ids": np.full((2, 5), 7), "attention_mask": np.array([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])}
    (found,) = steady_outputs(FIRST, FIRST.run, SPECS, feeds, feeds["attention_mask"] > 0)
    assert found is not None and found.tolist() == [False, True]


def test_what_is_not_steady_is_blanked() -> None:
    kept = Kept(np.ones((2, 5), bool), (np.array([False, True]),))
    blanked = KeptPositions(FIRST, kept).run({"ids": IDS, "attention_mask": np.ones((2, 5), np.int64)})
    assert blanked["y"].tolist() == [0.0, 6.0]

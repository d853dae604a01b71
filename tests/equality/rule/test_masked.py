"""What stands at positions that a mask leaves out does not count, nor do rows of which it leaves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtool.equality.rule.masked import KeptPositions, kept_positions
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds

SPECS = [TensorSpec("ids", np.dtype("int64"), ("b", "n")), TensorSpec("attention_mask", np.dtype("int64"), ("b", "n"))]
IDS = np.array([[3, 9, 4, 7, 5], [6, 2, 8, 1, 9]])


class Model:
    """A function as a Runner."""

    def __init__(self, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
        self.inputs, self.outputs = SPECS, [TensorSpec("y", np.dtype("float32"), ("b",))]
        self._function = function

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"y": self._function(feeds["ids"], feeds["attention_mask"]).astype(np.float32)}


MASK = np.array([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])
SUM = Model(lambda ids, mask: (ids * mask).sum(axis=1))


def test_positions_that_all_masks_let_through() -> None:
    other = TensorSpec("decoder_mask", np.dtype("int64"), ("b", "n"))
    feeds: Feeds = {
        "ids": IDS,
        "attention_mask": np.array([[0, 1, 1], [1, 1, 1]]),
        "decoder_mask": np.array([[1, 1, 0], [1, 1, 1]]),
    }
    kept = kept_positions([*SPECS, other], feeds)
    assert kept is not None and kept.tolist() == [[False, True, False], [True, True, True]]
    assert kept_positions(SPECS[:1], feeds) is None
    longer = {**feeds, "decoder_mask": np.ones((2, 9), np.int64)}
    assert kept_positions([*SPECS, other], longer) is None


def test_positions_themselves_are_left_to_the_mask() -> None:
    same = Model(lambda ids, mask: ids * 1.0)
    feeds: Feeds = {"ids": IDS, "attention_mask": np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])}
    kept = feeds["attention_mask"] > 0
    blanked = KeptPositions(same, kept).run(feeds)["y"]
    assert blanked[0].tolist() == [0, 0, 4, 7, 5]
    assert blanked[1].tolist() == IDS[1].tolist()


def test_rows_of_which_nothing_is_left_are_blanked_whole() -> None:
    feeds: Feeds = {"ids": IDS, "attention_mask": np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])}
    runner = KeptPositions(SUM, feeds["attention_mask"] > 0)
    assert runner.run({"ids": IDS, "attention_mask": np.ones((2, 5), np.int64)})["y"].tolist() == [0.0, 26.0]


def test_features_of_positions_are_left_to_the_mask() -> None:
    wide = Model(lambda ids, _: np.repeat(ids[:, :, None], 2, axis=2))
    feeds: Feeds = {"ids": IDS, "attention_mask": MASK}
    blanked = KeptPositions(wide, MASK > 0).run(feeds)["y"]
    assert blanked[0, :, 0].tolist() == [0, 9, 4, 7, 5]
    assert blanked[1, :, 1].tolist() == IDS[1].tolist()


def test_rows_of_which_something_is_left_and_what_is_no_number_stay() -> None:
    class Several(Model):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {
                "sum": feeds["ids"].sum(axis=1),
                "word": np.array(["a", "b"]),
                "one": np.float32(3),
                "map": [{1: 2}],
            }

    found = KeptPositions(Several(lambda ids, mask: ids), MASK > 0).run({"ids": IDS, "attention_mask": MASK})
    assert found["sum"].tolist() == IDS.sum(axis=1).tolist()
    assert found["word"].tolist() == ["a", "b"]
    assert (found["one"], found["map"]) == (3, [{1: 2}])
    empty = KeptPositions(Several(lambda ids, mask: ids), np.zeros((2, 5), bool))
    assert empty.run({"ids": IDS, "attention_mask": MASK})["word"].tolist() == ["a", "b"]


def test_one_mask_says_what_is_kept() -> None:
    kept = kept_positions(SPECS, {"ids": IDS, "attention_mask": MASK})
    assert kept is not None and kept.tolist() == (MASK > 0).tolist()

"""What depends on positions that a mask leaves out does not count, as long as the model heeds its mask at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from onnxtool.equality.rule.masked import Kept, KeptPositions, kept_positions, steady_outputs
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


def test_features_of_positions_are_replaced_too() -> None:
    specs = [TensorSpec("x", np.dtype("float32"), ("b", "n", 2)), SPECS[1]]
    x = np.arange(1, 13, dtype=np.float32).reshape(2, 3, 2)

    class Pooled(Model):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            return {"y": feeds["x"][:, 0].sum(axis=1)}

    model = Pooled(lambda ids, mask: ids)
    feeds: Feeds = {"x": x, "attention_mask": np.array([[0, 1, 1], [1, 1, 1]])}
    (found,) = steady_outputs(model, model.run, specs, feeds, feeds["attention_mask"] > 0)
    assert found is not None and found.tolist() == [False, True]


def test_zeros_that_are_everywhere_are_changed_too() -> None:
    feeds: Feeds = {"ids": np.zeros((2, 5), np.int64), "attention_mask": np.array([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])}
    (found,) = steady_outputs(FIRST, FIRST.run, SPECS, feeds, feeds["attention_mask"] > 0)
    assert found is not None and found.tolist() == [False, True]


def test_rounding_does_not_make_an_element_unsteady() -> None:
    """What is weighed by nothing may change the last bits; small elements stand beside large ones."""
    feeds: Feeds = {"ids": np.array([[3, 9, 8], [6, 2, 7]]), "attention_mask": np.array([[0, 1, 1], [1, 1, 1]])}

    def noisy(ids: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.stack([ids[:, 1] * 100.0, 1e-4 * (ids[:, 0] == 3)], axis=1)

    model = Model(noisy)
    (found,) = steady_outputs(model, model.run, SPECS, feeds, feeds["attention_mask"] > 0)
    assert found is not None
    assert found.all()


def test_positions_themselves_are_left_to_the_mask() -> None:
    same = Model(lambda ids, mask: ids * 1.0)
    feeds: Feeds = {"ids": IDS, "attention_mask": np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])}
    kept = feeds["attention_mask"] > 0
    assert steady_outputs(same, same.run, SPECS, feeds, kept) == (None,)
    blanked = KeptPositions(same, Kept(kept)).run(feeds)["y"]
    assert blanked[0].tolist() == [0, 0, 4, 7, 5]
    assert blanked[1].tolist() == IDS[1].tolist()


def test_rows_of_which_nothing_is_left_are_blanked_whole() -> None:
    feeds: Feeds = {"ids": IDS, "attention_mask": np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])}
    runner = KeptPositions(SUM, Kept(feeds["attention_mask"] > 0))
    assert runner.run({"ids": IDS, "attention_mask": np.ones((2, 5), np.int64)})["y"].tolist() == [0.0, 26.0]


def test_what_is_steady_of_another_shape_blanks_nothing() -> None:
    kept = Kept(np.ones((2, 5), bool), (np.zeros(3, bool),))
    assert KeptPositions(FIRST, kept).run({"ids": IDS, "attention_mask": IDS})["y"].tolist() == [3.0, 6.0]


MASK = np.array([[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]])


def steady_in(
    ids: np.ndarray, function: Callable[[np.ndarray, np.ndarray], np.ndarray], mask: np.ndarray = MASK
) -> Any:
    model = Model(function)
    (found,) = steady_outputs(model, model.run, SPECS, {"ids": ids, "attention_mask": mask}, mask > 0) or (None,)
    return found if found is None else found.tolist()


@pytest.mark.parametrize("token", [0, 1, 7])
def test_what_is_put_in_the_place_of_a_token_is_in_its_table(token: int) -> None:
    """A table of eight rows, and one token everywhere: another has to be taken, and one that there is."""

    def table(ids: np.ndarray, _: np.ndarray) -> np.ndarray:
        assert 0 <= ids.min() <= ids.max() < 8
        return ids[:, 0]

    assert steady_in(np.full((2, 5), token), table) == [False, True]


def test_a_model_that_heeds_its_mask_in_half_of_its_rows_does_not_heed_it() -> None:
    def last_of_the_first_row(ids: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.array([ids[0, -1], ids[1, 0]])

    assert steady_in(IDS, last_of_the_first_row) is None


def test_every_output_has_to_heed_the_mask() -> None:
    class Two(Model):
        def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
            ids = feeds["ids"]
            return {"first": ids[:, 0] * 1.0, "all": ids.sum(axis=1) * 1.0}

    model = Two(lambda ids, mask: ids)
    assert steady_outputs(model, model.run, SPECS, {"ids": IDS, "attention_mask": MASK}, MASK > 0) == ()


def test_what_a_row_without_anything_left_falls_back_to_does_not_count() -> None:
    empty = np.array([[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])

    def all_where_nothing_is_left(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.where(mask.any(axis=1), (ids * mask).sum(axis=1), ids.sum(axis=1))

    assert steady_in(IDS, all_where_nothing_is_left, empty) == [False, True]


def test_an_element_is_unsteady_by_its_own_size_and_that_of_the_output() -> None:
    def first(scale: float, rest: float) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """The first token times a scale, beside a number that stays."""
        return lambda ids, _: np.stack([rest + scale * ids[:, 0], np.full(len(ids), rest)], axis=1)

    assert steady_in(IDS, first(1e-7, 0.0)) == [[False, True], [True, True]]
    assert steady_in(IDS, first(1e-4, 1.0)) == [[False, True], [True, True]]
    assert steady_in(IDS, first(1e-6, 1.0)) == [[True, True], [True, True]]
    beside = steady_in(IDS, lambda ids, _: np.stack([1e-5 * ids[:, 0], np.ones(len(ids))], axis=1))
    assert beside == [[False, True], [True, True]]


def test_nan_stays_nan() -> None:
    assert steady_in(IDS, lambda ids, _: np.full(len(ids), np.nan)) == [True, True]


def test_features_of_positions_are_left_to_the_mask() -> None:
    wide = Model(lambda ids, _: np.repeat(ids[:, :, None], 2, axis=2))
    feeds: Feeds = {"ids": IDS, "attention_mask": MASK}
    assert steady_outputs(wide, wide.run, SPECS, feeds, MASK > 0) == (None,)
    blanked = KeptPositions(wide, Kept(MASK > 0)).run(feeds)["y"]
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

    found = KeptPositions(Several(lambda ids, mask: ids), Kept(MASK > 0)).run({"ids": IDS, "attention_mask": MASK})
    assert found["sum"].tolist() == IDS.sum(axis=1).tolist()
    assert found["word"].tolist() == ["a", "b"]
    assert (found["one"], found["map"]) == (3, [{1: 2}])
    empty = KeptPositions(Several(lambda ids, mask: ids), Kept(np.zeros((2, 5), bool)))
    assert empty.run({"ids": IDS, "attention_mask": MASK})["word"].tolist() == ["a", "b"]


def test_one_mask_says_what_is_kept() -> None:
    kept = kept_positions(SPECS, {"ids": IDS, "attention_mask": MASK})
    assert kept is not None and kept.tolist() == (MASK > 0).tolist()

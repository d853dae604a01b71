"""The changes that a walk is made of stay within what an input may hold, and reach its parts alone and together."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from onnxtool.equality.search.mutations import Moves, is_varied
from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.sizes import dynamic_dims
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds

FLOAT, INT = np.dtype("float32"), np.dtype("int64")


def moves(specs: list[TensorSpec], feeds: Feeds, facts: GraphHints | None = None) -> Moves:
    return Moves(specs, dynamic_dims(specs, [feeds]), facts or GraphHints(), np.random.default_rng(0))


def one(array: np.ndarray, name: str = "x", facts: GraphHints | None = None) -> tuple[Moves, Feeds]:
    spec = TensorSpec(name, array.dtype, tuple(f"d{i}" for i in range(array.ndim)))
    return moves([spec], {name: array}, facts), {name: array}


def changed(array: np.ndarray, by: float = 1.0) -> list[np.ndarray]:
    """Which elements each shift moves, where it is moved by a number."""
    walk, feeds = one(array)
    found = [move.moved(feeds, by) for move in walk.shifts(feeds)]
    return [made["x"] != array for made in found if made is not None]


def test_all_rows_columns_and_single_numbers_are_moved() -> None:
    moved = changed(np.zeros((2, 3), np.float32))
    assert len(moved) == 1 + 2 + 3 + 6
    assert moved[0].all()
    assert moved[1].tolist() == [[True] * 3, [False] * 3]
    assert moved[3].tolist() == [[True, False, False]] * 2
    assert all(m.sum() == 1 for m in moved[6:])
    assert np.logical_or.reduce(moved[6:]).all()


def test_of_many_rows_and_columns_some_are_moved() -> None:
    moved = changed(np.zeros((9, 16), np.float32))
    assert len(moved) == 1 + 4 + 16 + 48
    assert len(changed(np.zeros((9, 17), np.float32))) == 1 + 4 + 48
    assert len(changed(np.zeros(3, np.float32))) == 1 + 3
    assert len(changed(np.zeros((), np.float32))) == 1
    assert len(changed(np.zeros(1, np.float32))) == 1
    assert changed(np.zeros((0, 3), np.float32)) == []
    assert changed(np.array(["a", "b"], object)) == []


def test_numbers_are_moved_by_a_share_of_themselves_and_whole_ones_by_one() -> None:
    for array, probe, whole in (
        (np.full((2, 3), -50, np.float32), 0.5, False),
        (np.zeros((2, 3), np.float32), 1e-4, False),
        (np.full((2, 3), np.nan, np.float32), 1e-4, False),
        (np.full((2, 3), 1e31), 1.0, False),
        (np.full((2, 3), 50), 1.0, True),
        (np.zeros((2, 3), bool), 1.0, True),
    ):
        walk, feeds = one(array)
        first = next(walk.shifts(feeds))
        assert first.probe == pytest.approx(probe)
        assert first.whole is whole


def ends(array: np.ndarray, name: str = "x", facts: GraphHints | None = None) -> tuple[float, float]:
    """How far numbers can be moved down and up."""
    walk, feeds = one(array, name, facts)
    first = next(walk.shifts(feeds))
    low, high = first.moved(feeds, -1e300), first.moved(feeds, 1e300)
    assert low is not None and high is not None
    return float(low[name].reshape(-1)[0]), float(high[name].reshape(-1)[0])


def test_numbers_stay_within_their_type_and_their_domain() -> None:
    ones = np.ones((2, 2))
    assert ends(ones.astype(np.uint8)) == (0, 255)
    assert ends(ones.astype(np.int8)) == (-128, 127)
    assert ends(ones.astype(np.int64)) == (-(2.0**53), 2.0**53)
    assert ends(ones.astype(np.int64), facts=GraphHints(domains={"x": Domain(-3, 30)})) == (-3, 29)
    assert ends(ones.astype(np.uint8), facts=GraphHints(domains={"x": Domain(-3, 300)})) == (0, 255)
    assert ends(ones.astype(np.int64), facts=GraphHints(structural={"x"})) == (0, 4096)
    assert ends(ones.astype(bool)) == (0, 1)
    assert ends(ones.astype(np.int64), "attention_mask") == (0, 1)


def test_floats_stay_within_what_their_type_holds_and_what_means_something() -> None:
    ones = np.ones((2, 2), np.float32)
    assert ends(ones) == pytest.approx((-1e30, 1e30))
    low, high = ends(ones.astype(np.float16))
    assert np.isfinite([low, high]).all() and high > 50_000 and low == -high
    low, high = ends(ones.astype(np.float64))
    assert np.isfinite([low, high]).all() and high > 1e280 and low == -high
    low, high = ends(ones, facts=GraphHints(domains={"x": Domain(0.5, 2.0)}))
    assert 0 < low < 0.5 and high == pytest.approx(1e30)
    assert ends(ones, facts=GraphHints(domains={"x": Domain(0.0, 2.0)}))[0] == pytest.approx(-1e30)
    assert ends(ones, facts=GraphHints(endless=True)) == (-1e4, 1e4)


def sets(array: np.ndarray, name: str = "x", facts: GraphHints | None = None) -> list[np.ndarray]:
    walk, feeds = one(array, name, facts)
    return [made[name] for made in walk.sets(feeds)]


def values(found: list[np.ndarray], array: np.ndarray) -> set[object]:
    """What elements were set to."""
    return {v for made in found for v in made[made != array].reshape(-1).tolist()}


def test_numbers_are_set_to_what_means_something() -> None:
    floats = np.array([[3.5, 4.5], [5.5, 6.5]], np.float32)
    facts = GraphHints(values=[17.0, -2.0], missing=True)
    made = values(sets(floats, facts=facts), floats)
    assert {0.0, 17.0, -2.0} <= made and any(v != v for v in made)
    assert not any(v != v for v in values(sets(floats, facts=GraphHints(values=[17.0])), floats))
    positive = GraphHints(values=[17.0, -2.0, 0.5], domains={"x": Domain(0.5, 9.0)})
    assert not {0.0, -2.0, 0.5} & values(sets(floats, facts=positive), floats)
    assert 17.0 in values(sets(floats, facts=positive), floats)
    assert (
        len(
            {
                round(v, 3)
                for v in values(sets(floats, facts=GraphHints(values=[float(i) for i in range(20, 60)])), floats)
            }
        )
        < 18
    )


def test_whole_numbers_are_set_within_what_they_may_be() -> None:
    whole = np.array([[3, 4], [5, 6]])
    assert {0, 1, 70} <= values(sets(whole, facts=GraphHints(integers=[70])), whole)
    limited = GraphHints(integers=[70, 29, 30, -1], domains={"x": Domain(0, 30)})
    assert values(sets(whole, facts=limited), whole) - {3, 4, 5, 6} == {0, 1, 29}
    mask = np.array([[1, 0], [1, 1]])
    assert values(sets(mask, "attention_mask", GraphHints(integers=[70])), mask) == {0, 1}
    flags = np.array([True, False])
    assert values(sets(flags), flags) == {True, False}
    words = np.array(["a", "b"], object)
    assert {"cat", "dog"} <= values(sets(words, facts=GraphHints(texts=["cat", "dog"])), words)


def test_parts_are_set_as_a_whole_and_one_by_one() -> None:
    array = np.array([[3.5, 4.5], [5.5, 6.5]], np.float32)
    zeros = [(made == 0).sum() for made in sets(array)]
    assert {4, 2, 1} <= set(zeros)
    assert sets(np.zeros((0, 2), np.float32)) == []


TWO = [TensorSpec("x", FLOAT, ("b", "n")), TensorSpec("z", FLOAT, ("b", "m", 3))]
SIZES = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "z": np.ones((2, 5, 3), np.float32)}


def shapes(made: Feeds | None) -> tuple[tuple[int, ...], ...]:
    assert made is not None
    return tuple(array.shape for array in made.values())


def test_groups_of_dims_grow_alone_and_together() -> None:
    walk = moves(TWO, SIZES)
    grown = [shapes(move.moved(SIZES, 2.0)) for move in walk.sizes()]
    assert grown == [((2, 6), (2, 5, 3)), ((2, 4), (2, 7, 3)), ((4, 4), (4, 5, 3)), ((4, 6), (4, 7, 3))]
    assert all(move.probe == 1 and move.whole for move in walk.sizes())
    assert next(walk.sizes()).moved(SIZES, 0.0) is SIZES
    assert next(walk.sizes()).moved(SIZES, -4.0) is None
    assert shapes(next(walk.sizes()).moved(SIZES, -3.0)) == ((2, 1), (2, 5, 3))


def test_dims_that_have_always_been_equal_grow_apart_too() -> None:
    specs = [TensorSpec("x", FLOAT, ("n",)), TensorSpec("z", FLOAT, ("m",))]
    runs = [{name: np.ones(size, np.float32) for name in ("x", "z")} for size in (3, 5)]
    walk = Moves(specs, dynamic_dims(specs, runs), GraphHints(), np.random.default_rng(0))
    assert [shapes(move.moved(runs[0], 1.0)) for move in walk.sizes()] == [((4,), (4,)), ((4,), (3,)), ((3,), (4,))]


def test_values_are_kept_where_sizes_change() -> None:
    walk = moves(TWO, SIZES)
    made = next(walk.sizes()).moved(SIZES, 3.0)
    assert made is not None
    assert made["x"].tolist() == [[0, 1, 2, 3, 0, 1, 2], [4, 5, 6, 7, 4, 5, 6]]
    assert made["z"] is SIZES["z"]
    shorter = next(walk.sizes()).moved(SIZES, -2.0)
    assert shorter is not None and shorter["x"].tolist() == [[0, 1], [4, 5]]


def test_sizes_end_where_inputs_become_too_large() -> None:
    walk = moves(TWO, SIZES)
    lengths = next(walk.sizes())
    assert lengths.moved(SIZES, 524_000.0) is not None
    assert lengths.moved(SIZES, 524_400.0) is None


def test_a_past_may_have_no_length_and_others_have_one_at_least() -> None:
    specs = [TensorSpec("x", FLOAT, ("b", "n")), TensorSpec("past", FLOAT, ("b", "p"))]
    feeds = {"x": np.ones((2, 4), np.float32), "past": np.ones((2, 4), np.float32)}
    walk = moves(specs, feeds)
    ended = [move.moved(feeds, -4.0) for move in walk.sizes()]
    assert ended[0] is None
    assert shapes(ended[1]) == ((2, 4), (2, 0))


def test_unnamed_dims_stay_as_they_are() -> None:
    specs = [TensorSpec("x", FLOAT, (None, None, "n"))]
    feeds = {"x": np.ones((3, 4, 5), np.float32)}
    assert shapes(next(moves(specs, feeds).sizes()).moved(feeds, 1.0)) == ((3, 4, 6),)


@pytest.mark.parametrize(
    ("values", "varied"),
    [
        ([1.0, 2.0, 3.0], True),
        ([0.0, 0.0, 3.0], False),
        ([0.0, 2.0], True),
        ([0.0, np.nan, 2.0, 3.0], True),
        ([np.nan, np.inf, 3.0, 0.0], False),
        ([2.0, 2.0, 2.0], False),
        ([2.0], True),
        ([2, 2], False),
        ([2, 3], True),
    ],
)
def test_which_inputs_are_varied(values: list[float], varied: bool) -> None:
    assert is_varied({"x": np.array(values)}) is varied
    assert (
        is_varied({"flag": np.array([True, True]), "word": np.array(["a", "a"], object), "x": np.array(values)})
        is varied
    )
    assert not is_varied({"x": np.array(values), "z": np.zeros(3)})


def test_booleans_and_masks_are_turned() -> None:
    walk, feeds = one(np.array([True, False]))
    up, down = (next(walk.shifts(feeds)).moved(feeds, by) for by in (1.0, -1.0))
    assert up is not None and up["x"].tolist() == [True, True]
    assert down is not None and down["x"].tolist() == [False, False]
    assert up["x"].dtype == bool
    assert [m.sum() for m in islice(changed(np.array([[1, 2]])), 3)] == [2, 2, 1]

"""Sizes of dynamic dims: one, long ones, and both sides of what graphs compare with; dims of one size go together."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.equality.trials.sizes import DynamicDims, dynamic_dims, of_the_past, sizes_to_try
from onnxtool.model.spec import TensorSpec

FLOAT = np.dtype("float32")


def spec(name: str, *dims: int | str | None) -> TensorSpec:
    return TensorSpec(name, FLOAT, dims)


def zeros(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def test_dims_that_always_agree_are_one_group() -> None:
    specs = [spec("a", "batch", "n"), spec("b", "batch", "m"), spec("c", "rows", "k")]
    runs = [zeros(a=(2, 5), b=(2, 5), c=(2, 7)), zeros(a=(3, 9), b=(3, 9), c=(3, 8))]
    found = dynamic_dims(specs, runs)
    assert found.batches == (("batch", "rows"),)
    assert found.lengths == (("n", "m"), ("k",))
    assert found.usual == {"batch": 2, "n": 5, "m": 5, "rows": 2, "k": 7}
    assert found.any


def test_after_one_run_nothing_is_known_to_go_together() -> None:
    found = dynamic_dims([spec("a", "batch", "n", "m")], [zeros(a=(2, 5, 5))])
    assert found.lengths == (("n",), ("m",))


def test_unnamed_dims() -> None:
    found = dynamic_dims([spec("a", None, None, 3)], [zeros(a=(4, 6, 3))])
    assert (found.unnamed_batch, found.unnamed_length) == (True, True)
    assert (found.batch, found.length) == (4, 6)


def test_fixed_dims_are_none() -> None:
    found = dynamic_dims([spec("a", 2, 3)], [zeros(a=(2, 3))])
    assert (found.batch, found.length) == (2, 16)
    assert not found.any
    assert list(sizes_to_try(found, [5])) == []


def dims(lengths: int = 1, batches: int = 1) -> DynamicDims:
    named = tuple((f"n{i}",) for i in range(lengths))
    return DynamicDims((("b",),) * batches, named, False, False, {"b": 2, **{f"n{i}": 5 for i in range(lengths)}}, 2, 5)


@pytest.mark.parametrize("number", [40, 777])
def test_both_sides_of_a_number_are_tried_early(number: int) -> None:
    tried = list(sizes_to_try(dims(), [number]))[:16]
    everything = {size for s in tried for size in s.dims.values()}
    assert {number - 1, number, number + 1} <= everything


def test_twice_a_number_is_tried_where_that_is_not_too_long() -> None:
    assert {1500 * 2, 7 * 2} <= {s.dims["n0"] for s in sizes_to_try(dims(), [1500, 7])}
    assert max(s.dims["n0"] for s in sizes_to_try(dims(), [5000])) == 5001
    assert 3000 in {s.dims["b"] for s in sizes_to_try(dims(lengths=0), [1500])}


def test_ones_long_ones_and_batches_come_first() -> None:
    found = DynamicDims((("b",),), (("n",),), False, False, {"b": 2, "n": 5}, 2, 5)
    first = list(sizes_to_try(found, []))[:9]
    assert {s.dims["n"] for s in first} >= {1, 300, 65}
    assert {s.dims["b"] for s in first} >= {9, 65, 1}
    assert any(s.dims == {"b": 1, "n": 1} for s in first)
    assert sum(s.label == "batch 1 and length 1" for s in sizes_to_try(found, [])) == 1


def test_powers_of_two_and_their_neighbours_are_tried() -> None:
    found = DynamicDims((("b",),), (("n",),), False, False, {"b": 2, "n": 5}, 2, 5)
    lengths = {s.dims["n"] for s in sizes_to_try(found, [])}
    beside = {n + d for n in (32, 64, 128, 256) for d in (-1, 0, 1)}
    assert lengths == {1, 2, 3, 7, 8, 17, 48, 100, 300, 511, 512, 520, 1030, 5} | beside
    batches = {s.dims["b"] for s in sizes_to_try(found, [])}
    assert batches == {1, 2, 3, 8, 9, 16, 17, 33, 64, 65, 129, 300}


def test_lengths_are_tried_apart_together_and_alone() -> None:
    found = DynamicDims((("b",),), (("n",), ("m",)), False, False, {"b": 2, "n": 5, "m": 6}, 2, 5)
    tried = [(s.dims["n"], s.dims["m"]) for s in sizes_to_try(found, [])]
    assert (300, 301) in tried
    assert (300, 300) in tried
    assert (300, 6) in tried
    assert (5, 300) in tried
    assert {(5, 128), (5, 2), (128, 6), (2, 6)} <= set(tried)


def test_nothing_is_tried_twice_before_the_dims_alone() -> None:
    found = DynamicDims((("b",),), (("n",),), False, False, {"b": 2, "n": 5}, 2, 5)
    keys = [(tuple(sorted(s.dims.items())), s.batch, s.length) for s in sizes_to_try(found, [64, 65, 66])]
    assert len(keys) == len(set(keys))


def test_sizes_are_at_least_one() -> None:
    assert all(min(s.dims.values()) >= 1 for s in sizes_to_try(dims(), [1, 2]))


def test_dims_of_what_earlier_steps_left_behind() -> None:
    specs = [
        TensorSpec("past_key.0", FLOAT, ("b", 2, "past", 8)),
        TensorSpec("cache", FLOAT, ("b", "kept")),
        TensorSpec("x", FLOAT, ("b", "n")),
    ]
    assert of_the_past(specs) == ("past", "kept")


def test_each_unnamed_dim_has_the_size_of_the_first_input_that_has_one() -> None:
    batches = dynamic_dims([spec("a", None, 3), spec("b", None, 3)], [zeros(a=(4, 3), b=(5, 3))])
    assert (batches.unnamed_batch, batches.unnamed_length) == (True, False)
    assert (batches.batch, batches.length) == (4, 16)
    lengths = dynamic_dims([spec("a", 2, None), spec("b", 2, None)], [zeros(a=(2, 6), b=(2, 7))])
    assert (lengths.unnamed_batch, lengths.unnamed_length) == (False, True)
    assert (lengths.batch, lengths.length) == (2, 6)


def test_a_run_of_fewer_dims_than_the_input_has_says_nothing_of_those_it_lacks() -> None:
    found = dynamic_dims([spec("a", "b", "n")], [zeros(a=(3,))])
    assert found.usual == {"b": 3}


def test_dims_that_are_not_there_are_not_tried() -> None:
    batches = [s.label for s in sizes_to_try(dims(lengths=0), [7])]
    assert batches[0] == "batch 9" and all(label.startswith("batch ") and "and" not in label for label in batches)
    lengths = [s.label for s in sizes_to_try(dims(batches=0), [7])]
    assert lengths[0] == "length 1" and all(label.startswith("length ") for label in lengths)


def test_a_batch_and_a_length_of_one_together_are_tried_in_the_first_turn() -> None:
    first = list(sizes_to_try(dims(), []))[:3]
    both = next(s for s in first if s.label == "batch 1 and length 1")
    assert (both.dims, both.batch, both.length) == ({"b": 1, "n0": 1}, 1, 1)


def test_one_length_is_not_tried_alone_once_more() -> None:
    assert not any(s.label.startswith("n0 ") for s in sizes_to_try(dims(), []))
    assert {s.dims["n0"] for s in sizes_to_try(dims(lengths=2), [900]) if s.label.startswith("n0 ")} >= {1, 899, 901}


def test_one_is_a_size_beside_two() -> None:
    assert [s.label for s in sizes_to_try(dims(batches=0), [2])].index("length 1") == 0
    sides = [s.dims["n0"] for s in sizes_to_try(dims(batches=0), [4])][3:6]
    assert sides == [5, 4, 3]


def test_batches_are_empty_where_no_row_is_needed() -> None:
    found = DynamicDims((("b",), ("k",)), (("n",),), False, False, {"b": 2, "k": 3, "n": 5}, 2, 5)
    assert not any(s.empty for s in sizes_to_try(found, []))
    empty = [s for s in sizes_to_try(found, [], rows_needed=False) if s.empty]
    assert [s.label for s in empty] == ["an empty batch", "b of 0", "k of 0"]
    assert [(s.dims["b"], s.dims["k"], s.dims["n"]) for s in empty] == [(0, 0, 5), (0, 3, 5), (2, 0, 5)]
    single = DynamicDims((("b",),), (), False, False, {"b": 2}, 2, 5)
    assert [s.label for s in sizes_to_try(single, [], rows_needed=False) if s.empty] == ["an empty batch"]
    unnamed = DynamicDims((), (), True, False, {}, 2, 5)
    assert [s.batch for s in sizes_to_try(unnamed, [], rows_needed=False) if s.empty] == [0]
    assert not any(s.empty for s in sizes_to_try(dims(batches=0), [], rows_needed=False))


def test_every_small_size_is_tried_for_a_program() -> None:
    found = DynamicDims((("b",),), (("n",),), False, False, {"b": 2, "n": 5}, 2, 5)
    made = list(sizes_to_try(found, [], every=True))
    assert {s.dims["b"] for s in made} >= set(range(1, 81))
    assert {s.dims["n"] for s in made} >= set(range(1, 81))
    assert len(made) - len({(s.dims["b"], s.dims["n"]) for s in made}) <= 1  # the usual sizes come from either side
    assert [s.label for s in made][: len(list(sizes_to_try(found, [])))] == [s.label for s in sizes_to_try(found, [])]
    assert 19 not in {s.dims["b"] for s in sizes_to_try(found, [])}
    assert {s.dims["n0"] for s in sizes_to_try(dims(batches=0), [], every=True)} >= set(range(1, 81))

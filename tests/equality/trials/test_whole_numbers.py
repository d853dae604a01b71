"""Integers at which two models may part: what is drawn, within what an input may hold."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.whole_numbers import counts, fitting, in_order, integer_values, named_numbers
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec

INT = np.dtype("int64")
FEEDS = {"ids": np.tile(np.array([5, 3, 9, 1, 7, 7, 2, 8]), (4, 4))}


def spec(dtype: np.dtype = INT, name: str = "ids", shape: tuple[int | str, ...] = ("b", "n")) -> TensorSpec:
    return TensorSpec(name, dtype, shape)


def values(facts: GraphHints | None = None, dtype: np.dtype = INT) -> dict[str, np.ndarray]:
    feeds = {"ids": FEEDS["ids"].astype(dtype)}
    found = integer_values([spec(dtype)], feeds, facts or GraphHints(), np.random.default_rng(0))
    return {label: made["ids"] for label, _, made in found}


def test_ranges_are_used_from_end_to_end() -> None:
    made = values()
    for kind in ("int8", "uint16", "int64"):
        made = values(dtype=np.dtype(kind))
        ends = {int(made[f"the {end} integer of the type"].min()) for end in ("least", "largest")}
        assert ends == {np.iinfo(kind).min, np.iinfo(kind).max}
    for label, low, high in (
        ("all integers of the type", -(1 << 15), (1 << 15) - 1),
        ("integers from -100 to 100", -100, 100),
        ("integers up to 100,000", 0, 99_999),
        ("integers above 2^24", 1 << 24, (1 << 26) - 1),
        ("integers of 32 bits", -(1 << 31), (1 << 31) - 1),
        ("integers above 2^30", 1 << 30, (1 << 31) - 1),
        ("integers above 2^31", 1 << 31, (1 << 40) - 1),
    ):
        array, width = made[label], high - low
        assert low <= array.min() < low + 0.05 * width and high - 0.05 * width < array.max() <= high, label
        assert array.dtype == INT and array.shape == (4, 32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int32, np.uint64])
def test_smaller_types_hold_what_is_drawn(dtype: type) -> None:
    made, info = values(dtype=np.dtype(dtype)), np.iinfo(dtype)
    assert all(array.dtype == dtype for array in made.values())
    whole = made["all integers of the type"].astype(np.int64)
    low, high = max(info.min, -(1 << 15)), min(int(info.max), (1 << 15) - 1)
    assert whole.min() < low + 0.05 * (high - low) and whole.max() > high - 0.05 * (high - low)
    assert ("integers above 2^24" in made) is (info.max > 1 << 24)
    assert ("integers of 32 bits" in made) is (info.max >= (1 << 31) - 1)
    assert ("integers above 2^31" in made) is (info.max > 1 << 31)


def test_numbers_of_the_graph_and_their_neighbours_fill_an_input() -> None:
    made = values(GraphHints(integers=[70, 1 << 40]))
    for number in (0, 1, -1, 2, 7, 69, 70, 71):
        assert (made[f"integers of {number}"] == number).all()
    small = values(GraphHints(integers=[300]), np.dtype(np.uint8))
    assert (small["integers of 300"] == 255).all()
    many = values(GraphHints(integers=[*range(100, 140, 2)]))
    assert "integers of 130" in many and "integers of 132" not in many


LIMITED = GraphHints(domains={"ids": Domain(2, 30)}, integers=[1, 2, 29, 30])


def test_indices_are_those_of_their_domain() -> None:
    outside = {"ids: indices beyond the table", "ids: indices below zero"}
    made = values(LIMITED)
    assert set(made) == {"indices of 2", "indices of 29", *outside}
    assert (made["indices of 29"] == 29).all()
    usual = values(GraphHints(domains={"ids": Domain(0, 30)}))
    assert set(usual) == {"indices of 0", "indices of 1", "indices of -1", *outside}
    many = values(GraphHints(domains={"ids": Domain(0, 300)}, integers=[*range(100, 120)]))
    assert "indices of 115" in many and "indices of 116" not in many


def test_masks_and_sizes_are_left_alone() -> None:
    others = [spec(name="attention_mask"), spec(name="length"), spec(np.dtype("float32"), "x")]
    feeds = {s.name: np.ones((2, 3), s.dtype) for s in others}
    facts = GraphHints(structural={"length"})
    assert [*integer_values(others, feeds, facts, np.random.default_rng(0))] == []
    free = [*others, spec()]
    for _, _, made in integer_values(free, {**feeds, **FEEDS}, facts, np.random.default_rng(0)):
        assert all(made[name] is feeds[name] for name in feeds)


def test_shapes_that_an_input_gives_are_tried_in_other_orders_and_by_one_more() -> None:
    sizes = spec(name="k", shape=(2,))
    feeds = {"k": np.array([2, 5])}
    made = [tuple(f["k"]) for _, _, f in counts([sizes], feeds, GraphHints(structural={"k"}))]
    assert made == [(5, 2), (5, 2), (1, 2), (2, 1), (3, 5), (1, 5), (2, 6), (2, 4)]


def test_counts_are_small_usual_and_large_ones_and_those_of_the_graph() -> None:
    def found(facts: GraphHints, dtype: np.dtype = INT, shape: tuple[int, ...] = ()) -> list[int]:
        feeds = {"k": np.full(shape, 3, dtype)}
        made = [feeds["k"] for _, _, feeds in counts([spec(dtype, "k", shape)], feeds, facts)]
        assert all(array.shape == shape and array.dtype == dtype for array in made)
        return [int(array.reshape(-1)[0]) for array in made]

    usual = [0, 1, 2, 5, 17, 40, 100, 600]
    assert found(GraphHints(structural={"k"})) == usual
    assert found(GraphHints(structural={"k"}), shape=(1,)) == usual
    assert found(GraphHints()) == []
    told = found(GraphHints(structural={"k"}, integers=[-1, -9, 60], sizes=[4095, 4096]))
    assert told == [0, 1, 2, 61, 60, 4096, 4095, 4097, 5, 17, 40, 100, 600, 120, 8190, 8192]
    assert found(GraphHints(structural={"k"}, integers=[10_001])) == [0, 1, 2, 5, 17, 40, 100, 600]
    assert max(found(GraphHints(structural={"k"}), np.dtype(np.uint8))) == 255
    many = found(GraphHints(structural={"k"}, integers=[*range(200, 220)], sizes=[*range(300, 320)]))
    assert {200, 208, 300, 308} <= set(many) and not {209, 309} & set(many)


def test_the_nearest_number_that_a_type_holds() -> None:
    byte = spec(np.dtype(np.uint8))
    assert [fitting(byte, n) for n in (-1, 0, 7, 255, 256)] == [0, 0, 7, 255, 255]


def test_integers_stand_in_order_and_those_of_the_graph_in_a_row_either_way() -> None:
    facts = GraphHints(integers=[7, 700, 8], domains={"ids": Domain(0, 30)})
    found = [(label, made["ids"]) for label, _, made in in_order([spec()], FEEDS, facts)]
    labels = ["integers in ascending order", "the integers of the graph in a row"]
    assert [label for label, _ in found] == [f"{label}{way}" for label in labels for way in ("", ", turned round")]
    assert (found[0][1][:, :8] == np.arange(8)).all()
    assert (found[2][1][..., :2] == [7, 8]).all() and (found[2][1][..., 2:] == FEEDS["ids"][..., 2:]).all()
    for (_, made), (_, turned) in zip(found[::2], found[1::2], strict=True):
        assert (turned == made[..., ::-1]).all()
    assert len([*in_order([spec()], FEEDS, GraphHints(integers=[7]))]) == 2
    length = {"length": np.array([3])}
    assert [*in_order([spec(name="length", shape=("b",))], length, GraphHints(structural={"length"}))] == []


def test_every_number_of_the_graph_stands_somewhere_whole_and_among_others() -> None:
    facts = GraphHints(integers=[*range(1000, 1100)], values=[0.5])
    specs = [spec(shape=("b", 8)), spec(np.dtype("float32"), "x", ("b", 8))]
    feeds = {"ids": np.zeros((4, 8), np.int64), "x": np.zeros((4, 8), np.float32)}
    made = [f for _, _, f in named_numbers(specs, feeds, facts, np.random.default_rng(0))]
    assert {*facts.integers, 0.5} <= {float(v) for f in made for v in f["x"].flat}
    assert set(facts.integers) <= {int(v) for f in made for v in f["ids"].flat}
    shares = [float((f["ids"] != 0).mean()) for f in made]
    assert max(shares) == 1 and 0.1 < min(shares) < 0.5
    limited = GraphHints(integers=[5], domains={"ids": Domain(0, 30)})
    assert [*named_numbers([spec()], FEEDS, limited, np.random.default_rng(0))] == []


def test_indices_beyond_a_table_and_below_zero() -> None:
    made = values(GraphHints(domains={"ids": Domain(0, 40)}))
    assert set(made["ids: indices beyond the table"].flat) == {40, 41, 42, 43, 44}
    assert set(made["ids: indices below zero"].flat) == {-40, -39, -38, -37, -36}

"""Integers at which two models may part: what is drawn, within what an input may hold."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.whole_numbers import counts, fitting, integer_values, ordered, table_rows
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec

INT = np.dtype("int64")
FEEDS = {"ids": np.tile(np.array([5, 3, 9, 1, 7, 7, 2, 8]), (4, 4))}
Made = list[tuple[str, np.ndarray]]


def spec(dtype: np.dtype = INT, name: str = "ids", shape: tuple[int | str, ...] = ("b", "n")) -> TensorSpec:
    return TensorSpec(name, dtype, shape)


def values(facts: GraphHints | None = None, dtype: np.dtype = INT) -> dict[str, np.ndarray]:
    feeds = {"ids": FEEDS["ids"].astype(dtype)}
    found = integer_values([spec(dtype)], feeds, facts or GraphHints(), np.random.default_rng(0))
    return {label: made["ids"] for label, _, made in found}


def test_ranges_are_used_from_end_to_end() -> None:
    made = values()
    for label, low, high in (
        ("all integers of the type", -(1 << 15), (1 << 15) - 1),
        ("integers from -100 to 100", -100, 100),
        ("integers up to 100,000", 0, 99_999),
        ("integers above 2^24", 1 << 24, (1 << 26) - 1),
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
    assert ("integers above 2^31" in made) is (info.max > 1 << 31)


def test_numbers_of_the_graph_and_their_neighbours_fill_an_input() -> None:
    made = values(GraphHints(integers=[70, 1 << 40]))
    for number in (0, 1, -1, 2, 7, 69, 70, 71):
        assert (made[f"integers of {number}"] == number).all()
    small = values(GraphHints(integers=[300]), np.dtype(np.uint8))
    assert (small["integers of 300"] == 255).all()
    many = values(GraphHints(integers=[*range(100, 140, 2)]))
    assert "integers of 130" in many and "integers of 132" not in many


def test_sizes_stand_among_their_neighbours() -> None:
    made = values(GraphHints(sizes=[50]))["integers around 50"]
    assert set(np.unique(made)) == {48, 49, 50, 51, 52}
    assert "integers around 66" not in values(GraphHints(sizes=[*range(50, 80)]))
    assert "integers around 65" in values(GraphHints(sizes=[*range(50, 80)]))


LIMITED = GraphHints(domains={"ids": Domain(2, 30)}, integers=[1, 2, 29, 30])


def test_indices_are_those_of_their_domain() -> None:
    made = values(LIMITED)
    assert set(made) == {f"{some}indices of {n}" for n in (2, 29) for some in ("", "some ")}
    assert (made["indices of 29"] == 29).all()
    some = made["some indices of 29"]
    assert 0.15 < (some == 29).mean() < 0.45
    assert (some[some != 29] == FEEDS["ids"][some != 29]).all()
    usual = values(GraphHints(domains={"ids": Domain(0, 30)}))
    assert set(usual) == {f"{some}indices of {n}" for n in (0, 1) for some in ("", "some ")}
    many = values(GraphHints(domains={"ids": Domain(0, 300)}, integers=[*range(100, 120)]))
    assert "indices of 115" in many and "indices of 116" not in many


@pytest.mark.parametrize(("rows", "spread"), [(300, 5), (3, 3)])
def test_indices_beyond_a_table_lie_just_beyond_it(rows: int, spread: int) -> None:
    made = values(GraphHints(domains={"ids": Domain(0, rows)}, tables={"ids": rows}))
    assert set(np.unique(made["ids: indices beyond the table"])) == set(range(rows, rows + spread))
    assert set(np.unique(made["ids: indices below zero"])) == set(range(-rows, -rows + spread))


def test_masks_and_sizes_are_left_alone() -> None:
    others = [spec(name="attention_mask"), spec(name="length"), spec(np.dtype("float32"), "x")]
    feeds = {s.name: np.ones((2, 3), s.dtype) for s in others}
    facts = GraphHints(structural={"length"})
    assert [*integer_values(others, feeds, facts, np.random.default_rng(0))] == []
    assert [*ordered(others, feeds, facts)] == []
    free = [*others, spec()]
    for _, _, made in integer_values(free, {**feeds, **FEEDS}, facts, np.random.default_rng(0)):
        assert all(made[name] is feeds[name] for name in feeds)


def in_order(facts: GraphHints | None = None, array: np.ndarray = FEEDS["ids"]) -> Made:
    found = ordered([spec(shape=("b",) * array.ndim)], {"ids": array}, facts or GraphHints())
    return [(label, made["ids"]) for label, _, made in found]


def test_integers_in_order_start_where_their_domain_does() -> None:
    array = np.array([[5, 3, 9, 1]])

    def steps(domain: Domain) -> list[list[int]]:
        return [made[0].tolist() for _, made in in_order(GraphHints(domains={"ids": domain}), array)]

    assert [made[0].tolist() for _, made in in_order(array=array)] == [[0, 1, 2, 3], [3, 2, 1, 0]]
    assert steps(Domain(6, 30)) == [[6, 7, 8, 9], [9, 8, 7, 6]]
    assert steps(Domain(-5, 30)) == [[0, 1, 2, 3], [3, 2, 1, 0]]
    assert steps(Domain(0, 4)) == [[0, 1, 2, 3], [3, 2, 1, 0]]
    assert steps(Domain(0, 3)) == [[1, 3, 5, 9], [9, 5, 3, 1]]  # those that are there, as more do not fit
    assert steps(Domain(1, 4)) == [[1, 3, 5, 9], [9, 5, 3, 1]]
    assert in_order(array=np.array(3)) == []
    assert in_order(array=np.zeros((2, 0), np.int64)) == []


def test_numbers_of_the_graph_stand_in_a_row_either_way() -> None:
    array = np.array([[5, 3, 9, 1]])

    def rows(numbers: list[int], domain: Domain | None = None, dtype: np.dtype = INT) -> list[list[int]]:
        facts = GraphHints(integers=numbers, domains={"ids": domain} if domain else {})
        found = ordered([spec(dtype)], {"ids": array.astype(dtype)}, facts)
        return [made["ids"][0].tolist() for label, _, made in found if label == "the integers of the graph in a row"]

    assert rows([101, 2054]) == [[101, 2054, 9, 1], [2054, 101, 9, 1]]
    assert rows([101, 2, 2054], Domain(2, 2054)) == [[101, 2, 9, 1], [2, 101, 9, 1]]
    assert rows([101]) == []
    assert rows([101, 300, 7], dtype=np.dtype(np.uint8)) == [[101, 7, 9, 1], [7, 101, 9, 1]]
    assert rows([101, 102], Domain(0, 30)) == []
    assert rows([11, 12, 13, 14, 15, 16]) == [[11, 12, 13, 14], [16, 15, 14, 13]]
    long = GraphHints(integers=[*range(100, 130)])
    assert in_order(long)[2][1][0, 15:17].tolist() == [115, FEEDS["ids"][0, 16]]


def test_counts_are_small_usual_and_large_ones_and_those_of_the_graph() -> None:
    def found(facts: GraphHints, dtype: np.dtype = INT, shape: tuple[int, ...] = ()) -> list[int]:
        feeds = {"k": np.full(shape, 3, dtype)}
        made = [feeds["k"] for _, _, feeds in counts([spec(dtype, "k", shape)], feeds, facts)]
        assert all(array.shape == shape and array.dtype == dtype for array in made)
        return [int(array.reshape(-1)[0]) for array in made]

    usual = [0, 1, 2, 5, 17, 40, 100, 600]
    assert found(GraphHints(structural={"k"})) == usual
    assert found(GraphHints(structural={"k"}), shape=(1,)) == usual
    assert found(GraphHints(structural={"k"}), shape=(2,)) == []
    assert found(GraphHints()) == []
    told = found(GraphHints(structural={"k"}, integers=[-1, -9, 60], sizes=[4095, 4096]))
    assert told == [0, 1, 2, 61, 60, 4096, 4095, 5, 17, 40, 100, 600]
    assert max(found(GraphHints(structural={"k"}), np.dtype(np.uint8))) == 255
    many = found(GraphHints(structural={"k"}, integers=[*range(200, 220)], sizes=[*range(300, 320)]))
    assert {200, 208, 300, 308} <= set(many) and not {209, 309} & set(many)


def rows_read(rows: int, differing: list[int], shape: tuple[int, ...] = (2, 8)) -> list[np.ndarray]:
    facts = GraphHints(tables={"ids": rows}, rows={"ids": differing} if differing else {})
    found = table_rows([spec(shape=shape)], {"ids": np.zeros(shape, np.int64)}, facts, np.random.default_rng(0))
    made = [(label, kind, feeds["ids"]) for label, kind, feeds in found]
    assert all(kind == "rows" and array.shape == shape and array.dtype == INT for _, kind, array in made)
    assert made[0][0] == "ids: rows first, last and others"
    assert all(label == "ids: rows of every table" for label, *_ in made[1:])
    return [array for *_, array in made]


def test_rows_that_differ_and_the_ends_of_a_table_come_first() -> None:
    made = rows_read(100, [42, 43])
    assert made[0].reshape(-1)[:4].tolist() == [42, 43, 0, 99]
    assert set(np.concatenate([m.reshape(-1) for m in made]).tolist()) == set(range(100))
    assert len(made) == 8
    assert len(rows_read(16, [])) == 2
    assert len(rows_read(17, [])) == 3
    assert len(rows_read(2, [])) == 2
    assert len(rows_read(5, [*range(5)] * 7)) == 4
    assert len(rows_read(100_000, [])) == 64
    assert all(0 <= m.min() <= m.max() < 100 for m in made)


def test_rows_of_several_tables_are_read_together() -> None:
    specs = [spec(), spec(name="types")]
    feeds = {s.name: np.zeros((2, 8), np.int64) for s in specs}
    facts = GraphHints(tables={"ids": 100, "types": 3}, rows={"types": [1]})
    made = [*table_rows(specs, feeds, facts, np.random.default_rng(0))]
    assert made[0][0] == "rows first, last and others"
    assert made[0][2]["types"].reshape(-1)[:3].tolist() == [1, 0, 2]
    assert all(m["types"].max() <= 2 and m["types"].min() >= 0 for *_, m in made)
    assert len(made) == 8


def test_the_nearest_number_that_a_type_holds() -> None:
    byte = spec(np.dtype(np.uint8))
    assert [fitting(byte, n) for n in (-1, 0, 7, 255, 256)] == [0, 0, 7, 255, 255]

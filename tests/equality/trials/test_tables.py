"""Rows in which the tables of two models differ are sought, whatever computes the indices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.search.branch_distance import reach
from onnxtool.equality.search.conditions import ConditionWatch, told_apart
from onnxtool.equality.trials.graph_hints import GraphHints, read_facts
from onnxtool.equality.trials.sizes import dynamic_dims
from onnxtool.equality.trials.tables import differing_reads, differing_rows
from onnxtool.equality.trials.trial import Budget
from onnxtool.model.ir.queries import input_specs
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.session.session import SessionOptions

TABLE = np.arange(400, dtype=np.float32).reshape(200, 2)
INDEX = (
    "k = Constant <value_float = 10.0> ()  l = Constant <value_float = 0.0> ()  h = Constant <value_float = 199.0> ()  "
)
INDEX += "m = Mul(x, k)  r = Round(m)  c = Clip(r, l, h)  i = Cast <to = 7> (c)  y = Gather(w, i)"


def graph(table: np.ndarray, body: str = INDEX, name: str = "w") -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[b,n] x) => (float[b,n,2] y) '
        f"<float[{len(table)}, 2] {name}> {{ {body.replace('(w,', f'({name},')} }}",
        initializers=[ir.tensor(table, name=name)],
    )


def changed(*rows: int) -> np.ndarray:
    other = TABLE.copy()
    other[list(rows)] += 1
    return other


def test_differing_rows_are_found_by_name_or_shape() -> None:
    assert differing_reads({"a": graph(TABLE), "b": graph(changed(7, 150))}) == {
        "a": {"w": [7, 150]},
        "b": {"w": [7, 150]},
    }
    assert differing_reads({"a": graph(TABLE), "b": graph(changed(7), name="v")})["a"] == {"w": [7]}
    assert differing_reads({"a": graph(TABLE), "b": graph(TABLE.copy())})["a"] == {}
    assert differing_reads({"a": graph(TABLE), "b": graph(TABLE[::-1].copy())})["a"] == {}
    assert differing_reads({"a": graph(TABLE)}) == {"a": {}}


def test_many_rows_are_taken_from_all_of_the_table() -> None:
    rows = differing_reads({"a": graph(TABLE), "b": graph(changed(*range(0, 200, 3)))})["a"]["w"]
    assert len(rows) == 8
    assert (rows[0], rows[-1]) == (0, 198)


def test_an_input_that_reads_the_row_is_found() -> None:
    model, other = graph(TABLE), graph(changed(177))
    specs, facts = input_specs(model), read_facts(model)
    runs = [random_feeds(specs, 1, batch=2, length=8, domains=facts.domains)]
    watch = ConditionWatch(model, SessionOptions(), {"w": [177]})
    assert str(watch.outcomes[0]) == "the row 177 of 'w'"
    assert watch.outcomes[0].side and not watch.outcomes[0].of_sizes
    found, missed = reach(watch, specs, runs, dynamic_dims(specs, runs), facts, Budget("normal"))
    assert "row 177" not in [o.part for o in missed]
    (feeds,) = [item.feeds for item in found if item.outcome.row == 177]
    assert (np.round(feeds["x"] * 10) == 177).any()
    assert told_apart(watch.outcomes[:1], model, other) == watch.outcomes[:1]
    assert told_apart(watch.outcomes[:1], model, graph(TABLE)) == []


def lookup(*inputs: str, **tables: np.ndarray) -> ir.Model:
    """A graph with these inputs of integers and these tables."""
    listed = ", ".join(f"int64[n] {name}" for name in inputs)
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> g ({listed}) => (int64[n] y) {{ y = Neg({inputs[0]}) }}'
    )
    for name, table in tables.items():
        value = ir.Value(name=name, shape=ir.Shape(table.shape), const_value=ir.tensor(table, name=name))
        model.graph.initializers[name] = value
    return model


def rows_to_try(a: ir.Model, b: ir.Model, most: int = 512, **tables: int) -> dict[str, list[int]]:
    facts = GraphHints(tables=tables)
    differing_rows(a, b, facts, most)
    return facts.rows


def test_rows_that_differ_are_tried_of_inputs_that_read_a_table() -> None:
    a, b = lookup("x", "ids", w=TABLE), lookup("x", "ids", w=changed(7, 150))
    assert rows_to_try(a, b, ids=200) == {"ids": [7, 150]}
    single = np.array(3.0, np.float32)
    assert rows_to_try(lookup("ids", s=single, w=TABLE), lookup("ids", s=single, w=changed(7)), ids=200) == {"ids": [7]}
    assert rows_to_try(a, b, ids=199) == {}
    assert rows_to_try(a, b) == {}
    assert rows_to_try(a, b, 1, ids=200) == {"ids": [7]}


def test_one_number_of_a_row_makes_it_another() -> None:
    other = TABLE.copy()
    other[9, 1] += 1
    assert rows_to_try(lookup("ids", w=TABLE), lookup("ids", w=other), ids=200) == {"ids": [9]}
    assert differing_reads({"a": graph(TABLE), "b": graph(other)})["a"] == {"w": [9]}


def test_a_table_goes_by_its_name_before_its_shape() -> None:
    a = lookup("ids", w=TABLE)
    assert rows_to_try(a, lookup("ids", v=changed(5), w=changed(7)), ids=200) == {"ids": [7]}
    assert rows_to_try(a, lookup("ids", v=changed(5)), ids=200) == {"ids": [5]}
    assert rows_to_try(a, lookup("ids", v=TABLE[:100]), ids=200) == {}


@pytest.mark.parametrize(
    "other", [TABLE.astype(np.float64) + 1, TABLE.astype(np.int64) + 1, TABLE[:100] + 1, np.ones(3, np.float32)]
)
def test_tables_of_another_type_or_size_are_no_counterparts(other: np.ndarray) -> None:
    assert rows_to_try(lookup("ids", w=TABLE), lookup("ids", w=other), ids=200) == {}
    assert differing_reads({"a": reads(TABLE), "b": reads(other, "v")}) == {"a": {}, "b": {}}


def reads(table: np.ndarray, name: str = "w") -> ir.Model:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (int64[n] ids, float[n] w0) => (float[n] y) '
        "{ i = Neg(ids)  y = Gather(w0, i) }"
    )
    value = ir.Value(name=name, shape=ir.Shape(table.shape), const_value=ir.tensor(table, name=name))
    model.graph.initializers[name] = value
    node = model.graph[1]
    node.replace_input_with(0, value)
    return model


@pytest.mark.parametrize(("rows", "known"), [(100, True), (101, False)])
def test_tables_that_differ_in_most_rows_are_other_tables(rows: int, known: bool) -> None:
    other = changed(*range(rows))
    assert bool(rows_to_try(lookup("ids", w=TABLE), lookup("ids", w=other), ids=200)) is known
    assert bool(differing_reads({"a": graph(TABLE), "b": graph(other)})["a"]) is known


def test_what_is_no_table_of_numbers_is_not_looked_at() -> None:
    one = np.ones((1, 2), np.float32)
    assert differing_reads({"a": reads(one), "b": reads(one + 1)}) == {"a": {}, "b": {}}
    words = np.array(["a", "b", "c"] * 5, object)
    assert differing_reads({"a": reads(words), "b": reads(words[::-1].copy())}) == {"a": {}, "b": {}}
    axis = INDEX.replace("Gather(w, i)", "Gather <axis = 1> (w, i)")
    assert differing_reads({"a": graph(TABLE, axis), "b": graph(changed(7), axis)}) == {"a": {}, "b": {}}
    scalar = np.array(3.0, np.float32)
    assert differing_reads({"a": reads(scalar), "b": reads(scalar + 1)}) == {"a": {}, "b": {}}


def test_a_table_that_the_graph_computes_is_none() -> None:
    computed = INDEX.replace("y = Gather(w, i)", "e = Neg(w)  y = Gather(e, i)")
    assert differing_reads({"a": graph(TABLE, computed), "b": graph(changed(7), computed)}) == {"a": {}, "b": {}}

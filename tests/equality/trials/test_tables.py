"""Rows in which the tables of two models differ are sought, whatever computes the indices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.search.branch_distance import reach
from onnxtool.equality.search.conditions import ConditionWatch
from onnxtool.equality.trials.graph_hints import read_facts
from onnxtool.equality.trials.graph_trials import differing_reads
from onnxtool.equality.trials.sizes import dynamic_dims
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


def test_an_input_that_reads_the_row_is_found() -> None:
    model = graph(TABLE)
    specs, facts = input_specs(model), read_facts(model)
    runs = [random_feeds(specs, 1, batch=2, length=8, domains=facts.domains)]
    watch = ConditionWatch(model, SessionOptions(), {"w": [177]})
    assert str(watch.outcomes[0]) == "the row 177 of 'w'"
    assert watch.outcomes[0].side and not watch.outcomes[0].of_sizes
    found, missed = reach(watch, specs, runs, dynamic_dims(specs, runs), facts, Budget("normal"))
    assert "row 177" not in [o.part for o in missed]
    (feeds,) = [item.feeds for item in found if item.outcome.row == 177]
    assert (np.round(feeds["x"] * 10) == 177).any()


@pytest.mark.parametrize(
    "other", [TABLE.astype(np.float64) + 1, TABLE.astype(np.int64) + 1, TABLE[:100] + 1, np.ones(3, np.float32)]
)
def test_tables_of_another_type_or_size_are_no_counterparts(other: np.ndarray) -> None:
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


def pairs_read(changed: bool = False) -> ir.Model:
    table = np.zeros((50, 40), np.float32)
    table[43, 7] = changed
    return ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (int64[n,2] i) => (float[n] y) <float[50,40] w> '
        "{ y = GatherND(w, i) }",
        initializers=[ir.tensor(table, name="w")],
    )


def test_a_place_that_two_indices_read_is_found() -> None:
    graphs = {"a": pairs_read(), "b": pairs_read(True)}
    assert differing_reads(graphs) == {"a": {"w": [43 * 40 + 7]}, "b": {"w": [43 * 40 + 7]}}
    specs, facts = input_specs(graphs["a"]), read_facts(graphs["a"])
    runs = [random_feeds(specs, 1, batch=3, domains=facts.domains)]
    watch = ConditionWatch(graphs["a"], SessionOptions(), {"w": [43 * 40 + 7]})
    found, _ = reach(watch, specs, runs, dynamic_dims(specs, runs), facts, Budget("normal"))
    assert any((item.feeds["i"] == [43, 7]).all(axis=1).any() for item in found)

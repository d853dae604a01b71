"""Rows in which the tables of two models differ are sought, whatever computes the indices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import input_specs
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.session import SessionOptions
from onnxtool.validation.inputs.conditions import ConditionWatch, told_apart
from onnxtool.validation.inputs.facts import read_facts
from onnxtool.validation.inputs.reach import reach
from onnxtool.validation.inputs.sizes import dynamic_dims
from onnxtool.validation.inputs.tables import differing_reads
from onnxtool.validation.inputs.trial import Budget

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
    found, missed = reach(watch, specs, runs, dynamic_dims(specs, runs), facts, Budget("normal"))
    assert "row 177" not in [o.part for o in missed]
    (feeds,) = [item.feeds for item in found if item.outcome.row == 177]
    assert (np.round(feeds["x"] * 10) == 177).any()
    assert told_apart(watch.outcomes[:1], model, other) == watch.outcomes[:1]
    assert told_apart(watch.outcomes[:1], model, graph(TABLE)) == []

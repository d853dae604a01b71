"""Numbers from inside bodies reach the main graph: those of the branch taken, the smallest of all iterations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.equality.search.conditions import ConditionWatch, has_conditions
from onnxtool.equality.search.subgraph_outputs import bodies
from onnxtool.model.ir.editing import inlined
from onnxtool.runtime.session.session import SessionOptions

FIVE = "five = Constant <value_float = 5.0> ()  top = ReduceMax <keepdims = 0> (a)  inner = Greater(top, five)  "
IF = (
    "s = ReduceSum <keepdims = 0> (x)  k = Constant <value_float = 0.0> ()  c = Greater(s, k)  a = Identity(x)  "
    f"y = If (c) <then_branch = t () => (p) {{ {FIVE} n = Neg(x)  p = Where(inner, n, x) }}, "
    "else_branch = e () => (q) { q = Identity(x) }>"
)
LOOP = (
    "m = Constant <value = int64 {COUNT}> ()  t = Constant <value = bool {1}> ()  "
    "y = Loop (m, t, x) <body = l (int64 i, bool k, float[b,4] a) => (bool k2, float[b,4] a2) "
    f"{{ k2 = Identity(k)  {FIVE} one = Constant <value_float = 1.0> ()  d = Add(a, one)  n = Neg(d)  "
    "a2 = Where(inner, n, d) }>"
)
SCAN = (
    "st = Constant <value = float[4] {0,0,0,0}> ()  "
    "f, y = Scan <num_scan_inputs = 1, body = s (float[4] h, float[4] a) "
    f"=> (float[4] h2, float[4] o) {{ h2 = Add(h, a)  {FIVE} n = Neg(a)  o = Where(inner, n, a) }}> (st, x)"
)


def graph(body: str) -> ir.Model:
    return ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[b,4] x) => (float[b,4] y) {{ {body} }}'
    )


def distance(model: ir.Model, value: float, name: str = "inner") -> float:
    watch = ConditionWatch(model, SessionOptions())
    found = watch.distances({"x": np.full((3, 4), value, np.float32)})
    (place,) = [i for i, o in enumerate(watch.outcomes) if name in o.node and o.side and not o.branch]
    return float(found[place])


def test_a_condition_of_a_branch_is_known_where_the_branch_runs() -> None:
    model = graph(IF)
    assert distance(model, 3.0) == pytest.approx(2.0, abs=1e-4)
    assert distance(model, -3.0) > 1e20
    assert distance(model, 6.0) == 0


def test_the_nearest_iteration_counts() -> None:
    assert distance(graph(LOOP.replace("COUNT", "3")), 1.0) == pytest.approx(2.0, abs=1e-4)
    assert distance(graph(LOOP.replace("COUNT", "9")), 1.0) == 0
    assert distance(graph(LOOP.replace("COUNT", "0")), 1.0) > 1e20
    assert distance(graph(SCAN), 4.5) == pytest.approx(0.5, abs=1e-4)


def test_all_bodies_are_seen_with_their_owner() -> None:
    model = graph(LOOP.replace("COUNT", "3").replace("d = Add(a, one)", "d = Add(a, one)"))
    assert [b.path[0][1].op_type if b.path else None for b in bodies(model.graph)] == [None, "Loop"]
    assert len(list(bodies(graph(IF).graph))) == 3


def test_functions_are_put_in_place_of_their_calls() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 20, "own" : 1]> g (float[b,4] x) => (float[b,4] y) { y = own.f(x) } '
        '<domain: "own", opset_import: ["" : 20]> f (a) => (r) '
        f"{{ {FIVE} n = Neg(a)  r = Where(inner, n, a) }}"
    )
    model = ir.from_onnx_text(text)
    assert has_conditions(model)
    assert [n.op_type for n in inlined(model).graph][-1] == "Where"
    assert [n.op_type for n in model.graph] == ["f"]
    assert ConditionWatch(model, SessionOptions()).distances({"x": np.full((3, 4), 4, np.float32)})[0] == pytest.approx(
        1.0, abs=1e-4
    )


def test_a_scan_that_lists_its_outputs_is_left_alone() -> None:
    model = graph(SCAN.replace("num_scan_inputs = 1", "num_scan_inputs = 1, scan_output_directions = [1]"))
    watch = ConditionWatch(model, SessionOptions())
    assert [o.node for o in watch.outcomes] == []
    assert len(list(bodies(model.graph))) == 1


def test_single_numbers_of_loops_in_loops_reach_the_main_graph() -> None:
    inner = (
        "m2 = Constant <value = int64 {2}> ()  z = Loop (m2, k, a0) <body = i (int64 j, bool kk, float[b,4] a) "
        "=> (bool kk2, float[b,4] a2) { kk2 = Identity(kk)  five = Constant <value_float = 5.0> ()  "
        "inner = Greater(a, five)  one = Constant <value_float = 1.0> ()  d = Add(a, one)  n = Neg(d)  "
        "a2 = Where(inner, n, d) }>"
    )
    outer = (
        "m = Constant <value = int64 {2}> ()  t = Constant <value = bool {1}> ()  y = Loop (m, t, x) <body = l "
        f"(int64 i, bool k, float[b,4] a0) => (bool k2, float[b,4] z) {{ k2 = Identity(k)  {inner} }}>"
    )
    assert distance(graph(outer), 1.5) == pytest.approx(0.5, abs=1e-4)
    assert distance(graph(outer), 3.0) == 0

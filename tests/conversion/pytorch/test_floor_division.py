"""Sizes that Python rounds down are rounded down in the graph, and only where that is another number."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.conversion.pytorch.patches.floor_division import round_down
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions


def graph(numerator: str) -> ir.Model:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n] x) => (int64[1] y) { s = Shape(x)  '
        f"k = Constant <value_ints = [3]> ()  m = Constant <value_ints = [-3]> ()  {numerator}  y = Div(t, k) }}"
    )
    model.graph[-1].name = "node_floordiv_1"
    return model


@pytest.mark.parametrize(
    ("numerator", "changed"),
    [
        ("t = Identity(s)", 0),
        ("a = Add(s, k)  t = Mul(a, k)", 0),
        ("t = Sub(s, k)", 1),
        ("t = Neg(s)", 1),
        ("t = Add(s, m)", 1),
        ("t = Identity(m)", 1),
        ("t = Identity(k)", 0),
        ("a = Mul(s, k)  t = Max(a, s)", 0),
        ("a = Sub(s, k)  t = Max(a, s)", 1),
        ("z = Size(x)  o = Constant <value_ints = [1]> ()  t = Reshape(z, o)", 0),
        ("z = Size(x)  o = Constant <value_ints = [-1]> ()  t = Reshape(z, o)", 0),  # where a reshape goes to
        ("o = Constant <value_ints = [-1]> ()  a = Gather(s, o)  t = Identity(a)", 0),
        ("h = Constant <value_floats = [2.0]> ()  a = Cast <to = 1> (s)  b = Mul(a, h)  t = Cast <to = 7> (b)", 1),
        ("f = Cast <to = 7> (x)  o = Constant <value_ints = [0]> ()  t = Gather(f, o)", 1),
    ],
)
def test_what_may_be_below_zero(numerator: str, changed: int) -> None:
    assert round_down(graph(numerator)) == changed


def test_other_divisions_stay() -> None:
    model = graph("t = Sub(s, k)")
    model.graph[-1].name = "node_div_1"
    assert round_down(model) == 0


def test_what_is_divided_is_rounded_down_as_python_does() -> None:
    model = graph("t = Sub(s, k)")
    assert round_down(model) == 1
    runner = OnnxRunner.open(model, SessionOptions())
    for length in range(1, 9):
        (found,) = runner.run({"x": np.zeros(length, np.float32)})["y"].tolist()
        assert found == (length - 3) // 3


def test_each_division_is_changed_once_and_keeps_its_type() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[n] x) => (int64[1] y, int64[1] z) { s = Shape(x)  '
        "k = Constant <value_ints = [3]> ()  t = Sub(s, k)  y = Div(t, k)  u = Neg(s)  z = Div(u, k) }"
    )
    divisions = [n for n in model.graph if n.op_type == "Div"]
    for place, node in enumerate(divisions):
        node.name = f"node_floordiv_{place}"
    assert round_down(model) == 2
    names = [n.name for n in model.graph if n.op_type in ("Mod", "Sub") and n.name]
    assert names == [f"node_floordiv_{i}_{what}" for i in (0, 1) for what in ("rest", "whole")]
    made = divisions[0].inputs[0]
    assert made is not None and made.dtype == divisions[0].outputs[0].dtype
    runner = OnnxRunner.open(model, SessionOptions())
    found = runner.run({"x": np.zeros(4, np.float32)})
    assert (found["y"].tolist(), found["z"].tolist()) == ([0], [-2])

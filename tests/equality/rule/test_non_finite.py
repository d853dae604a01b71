"""NaN and infinity: what two models make of them is said where one gives a number and the other none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxtool.equality.compare import compare
from onnxtool.equality.rule.non_finite import finite_in_one
from tests.equality.search.test_counterexample import graph, saved

TWO = "g (float[b,4] x, float[b,4] z) => (float[b,4] y)"
ROW = "g (float[b,n] x) => (float[b,n] y)"
FLAGS = "g (float[b,n] x) => (bool[b,n] y)"
HALF = "h = Cast <to = 10> (x)  f = Cast <to = 1> (h)  "
STEP = "s = Constant <value_float = 0.5> ()  z = Constant <value = int8 {0}> ()  "


def warnings(tmp_path: Path, head: str, a: str, b: str) -> str:
    report = compare(saved(tmp_path, "a.onnx", graph(head, a)), saved(tmp_path, "b.onnx", graph(head, b)))
    assert report.ok
    return "; ".join(report.warnings)


@pytest.mark.parametrize(
    ("head", "a", "b"),
    [
        (TWO, "k = Constant <value_float = 0.0> ()  p = Mul(x, k)  y = Add(z, p)", "y = Identity(z)"),
        (FLAGS, "y = Cast <to = 9> (x)", "k = Constant <value_float = 0.0> ()  a = Abs(x)  y = Greater(a, k)"),
    ],
)
def test_a_number_in_the_place_of_nan_is_said(tmp_path: Path, head: str, a: str, b: str) -> None:
    assert "differ on some inputs: some values" in warnings(tmp_path, head, a, b)


def test_infinities_that_a_graph_asks_for_are_inputs_like_others(tmp_path: Path) -> None:
    one, both = (graph(FLAGS, f"y = IsInf {sign} (x)") for sign in ("<detect_negative = 0>", ""))
    assert compare(saved(tmp_path, "a.onnx", both), saved(tmp_path, "b.onnx", one)).verdict == "different"


@pytest.mark.parametrize(
    ("a", "b", "what"),
    [
        (HALF + "y = Identity(f)", HALF + "i = IsInf(f)  y = Where(i, x, f)", "values of scale 100,000"),
        ("p = Mul(x, x)  y = Sqrt(p)", "y = Abs(x)", "values of scale 1e+20"),
    ],
)
@pytest.mark.usefixtures("normal_effort")
def test_what_overflows_in_the_reference_alone_is_said(tmp_path: Path, a: str, b: str, what: str) -> None:
    said = warnings(tmp_path, ROW, a, b)
    assert what in said
    assert "no difference on the other inputs tried" in said


def test_nan_in_the_place_of_infinity_is_not(tmp_path: Path) -> None:
    head = "g (float[b,2] x) => (float[b,1] y)"
    w, v = "float[2,2] {1.0, 2.0, 3.0, -4.0}", "float[2,1] {1.0, -5.0}"
    a = f"w = Constant <value = {w}> ()  v = Constant <value = {v}> ()  p = MatMul(x, w)  y = MatMul(p, v)"
    b = f"w = Constant <value = {w}> ()  v = Constant <value = {v}> ()  p = MatMul(w, v)  y = MatMul(x, p)"
    assert "differ" not in warnings(tmp_path, head, a, b)


def test_which_integer_nan_becomes_is_said_and_no_failure(tmp_path: Path) -> None:
    rounded = STEP + "q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z)"
    by_hand = (
        "s = Constant <value_float = 0.5> ()  l = Constant <value_float = -64.0> ()  "
        "h = Constant <value_float = 63.5> ()  c = Clip(x, l, h)  d = Div(c, s)  r = Round(d)  y = Mul(r, s)"
    )
    assert "some values NaN" in warnings(tmp_path, ROW, rounded, by_hand)


def test_where_a_graph_asks_for_nan_another_answer_is_a_failure(tmp_path: Path) -> None:
    asked = "n = IsNaN(x)  k = Constant <value_float = 0.0> ()  w = Where(n, k, x)  i = Cast <to = 7> (w)  "
    asked += "y = Cast <to = 1> (i)"
    other = asked.replace("value_float = 0.0", "value_float = 1.0")
    a, b = saved(tmp_path, "a.onnx", graph(ROW, asked)), saved(tmp_path, "b.onnx", graph(ROW, other))
    assert not compare(a, b).ok


def test_finite_in_one() -> None:
    nan, inf = np.float32("nan"), np.float32("inf")
    same = {"y": np.array([nan, 1.0])}
    assert not finite_in_one(same, {"z": np.array([inf, 2.0])})
    assert finite_in_one(same, {"z": np.array([0.0, 1.0])})
    assert finite_in_one({"y": np.array([0.0, 1.0])}, {"z": np.array([0.0, nan])})
    assert finite_in_one(same, {"z": np.array([nan])})
    assert finite_in_one({"y": np.array([1, 2])}, {"y": np.array([1, 3])})
    assert not finite_in_one({"y": np.array(["a"])}, {"y": np.array(["a"])})

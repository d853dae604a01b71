"""The runtime's BiasGelu, FastGelu, Gelu and QuickGelu, at level all only."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
WEIGHTS = {
    "row": np.linspace(-1, 1, 8, dtype=F),
    "half": np.array(0.5, F),
    "one": np.array(1.0, F),
    "three": np.array(3.0, F),
    "root2": np.array(np.sqrt(2.0), F),
    "small": np.array(0.044715, F),
    "k": np.array(np.sqrt(2 / np.pi), F),
    "alpha": np.array(1.702, F),
    "w": np.random.default_rng(0).normal(size=(8, 8)).astype(F),
}
ERF = "d = Div (a, root2) e = Erf (d) f = Add (e, one) h = Mul (a, f) y = Mul (h, half)"
TANH = """p = Pow (a, three) q = Mul (p, small) r = Add (a, q) s = Mul (r, k) t = Tanh (s) f = Add (t, one)
    h = Mul (a, half) y = Mul (h, f)"""


def text(steps: str) -> str:
    return f"g (float[b, s, 8] x) => (float[b, s, 8] y) {{ {steps} }}"


@pytest.mark.parametrize(
    ("steps", "opset", "wanted"),
    [
        ("a = Add (x, row) " + ERF, 17, "BiasGelu"),
        ("a = Add (row, x) " + TANH, 17, "FastGelu"),
        ("a = Neg (x) " + ERF, 17, "Gelu"),
        ("a = Neg (x) " + TANH, 17, "FastGelu"),
        ("a = Add (x, row) y = Gelu (a)", 20, "BiasGelu"),
        ('a = Add (x, row) y = Gelu <approximate = "tanh"> (a)', 20, "FastGelu"),
    ],
)
def test_gelu(optimized, steps: str, opset: int, wanted: str) -> None:
    result = optimized(text(steps), weights=WEIGHTS, level="all", exact=False, opset=opset, ir_version=8)
    assert result.after == {f"com.microsoft.{wanted}": 1, **({"Neg": 1} if "Neg" in steps else {})}


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ("y = Gelu (x)", {"Gelu": 1}),
        ("m = ReduceMax <keepdims = 1> (x) a = Add (x, m) y = Gelu (a)", {"ReduceMax": 1, "Add": 1, "Gelu": 1}),
    ],
)
def test_a_whole_gelu_without_a_row_stays(optimized, steps: str, wanted: dict[str, int]) -> None:
    assert optimized(text(steps), weights=WEIGHTS, level="all", exact=False).after == wanted


def test_the_half_of_a_gelu_is_not_moved_into_weights(optimized) -> None:
    # The runtime makes one operator of the parts at load, but not without the factor.
    steps = text("a = Neg (x) " + ERF.replace("y = Mul", "g0 = Mul") + " y = MatMul (g0, w)")
    extended = optimized(steps, weights=WEIGHTS, exact=False, opset=17, ir_version=8)
    assert extended.after == {"Neg": 1, "Div": 1, "Erf": 1, "Add": 1, "Mul": 2, "MatMul": 1}
    for only in ((), ("fuse-matmul-transposes",)):
        fused = optimized(steps, *only, weights=WEIGHTS, level="all", exact=False, opset=17, ir_version=8)
        assert "com.microsoft.FusedMatMul" not in fused.after


@pytest.mark.parametrize(
    "steps",
    ["m = Mul (x, alpha) s = Sigmoid (m) y = Mul (x, s)", "s = Sigmoid (x) y = Mul (s, x)"],
    ids=["quick gelu", "silu"],
)
def test_quick_gelu(optimized, steps: str) -> None:
    assert optimized(text(steps), weights=WEIGHTS, level="all", exact=False).after == {"com.microsoft.QuickGelu": 1}
    assert "Sigmoid" in optimized(text(steps), weights=WEIGHTS, exact=False).after


@pytest.mark.parametrize(
    "steps",
    [
        "n = Neg (x) s = Sigmoid (n) y = Mul (x, s)",
        "m = Mul (x, row) s = Sigmoid (m) y = Mul (x, s)",
        "s = Sigmoid (x) m = Mul (x, s) y = Add (m, s)",
    ],
)
def test_other_gates_stay(optimized, steps: str) -> None:
    assert "Sigmoid" in optimized(text(steps), weights=WEIGHTS, level="all", exact=False).after

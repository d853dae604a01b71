"""The runtime's SkipLayerNormalization and SkipSimplifiedLayerNormalization, at level all only."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
WEIGHTS = {
    "gamma": np.linspace(0.5, 1.5, 8, dtype=F),
    "beta": np.linspace(-1, 1, 8, dtype=F),
    "row": np.linspace(1, 2, 8, dtype=F),
    "two": np.array(2.0, F),
    "one": np.array(1.0, F),
    "eps": np.array(1e-6, F),
    "last": np.array([-1]),
}
HEAD = "g (float[b, s, 8] x, float[b, s, 8] z) => (float[b, s, 8] y{outputs}) {{ {steps} }}"
SKIP = {"com.microsoft.SkipLayerNormalization": 1}
SIMPLE = {"com.microsoft.SkipSimplifiedLayerNormalization": 1}


def text(steps: str, outputs: str = "") -> str:
    return HEAD.format(steps=steps, outputs=outputs)


@pytest.mark.parametrize(
    "steps",
    [
        "a = Add (x, z) y = LayerNormalization <axis = -1, epsilon = 1e-5> (a, gamma, beta)",
        "a = Add (z, x) y = LayerNormalization <axis = 2> (a, gamma)",
        "r = Add (row, x) a = Add (r, z) y = LayerNormalization <axis = -1> (a, gamma, beta)",
    ],
)
def test_add_and_norm(optimized, steps: str) -> None:
    assert optimized(text(steps), weights=WEIGHTS, level="all", exact=False).after == SKIP


def test_never_below_level_all(optimized) -> None:
    steps = "a = Add (x, z) y = LayerNormalization <axis = -1> (a, gamma, beta)"
    assert optimized(text(steps), weights=WEIGHTS, exact=False).after == {"Add": 1, "LayerNormalization": 1}


def test_the_sum_stays_available(optimized) -> None:
    steps = """a = Add (x, z) u = Neg (a) n = LayerNormalization <axis = -1> (a, gamma, beta)
        y = Mul (n, u) t = Identity (a)"""
    result = optimized(text(steps, ", float[b, s, 8] t"), weights=WEIGHTS, level="all", exact=False)
    assert result.after == {**SKIP, "Neg": 1, "Mul": 1}


@pytest.mark.parametrize(
    "steps",
    [
        "a = Add (x, row) y = LayerNormalization <axis = -1> (a, gamma, beta)",
        "m = ReduceMean (z, last) a = Add (x, m) y = LayerNormalization <axis = -1> (a, gamma, beta)",
        "a = Add (x, z) y = LayerNormalization <axis = 1> (a, wide)",
        "a = Add (x, z) s = ReduceMax <keepdims = 0> (z) g = Mul (gamma, s) y = LayerNormalization <axis = -1> (a, g)",
    ],
)
def test_other_sums_stay(optimized, steps: str) -> None:
    weights = WEIGHTS | {"wide": np.ones((4, 8), F)}
    source = text(steps).replace("s, 8]", "4, 8]") if "wide" in steps else text(steps)
    result = optimized(source, weights=weights, level="all", exact=False)
    assert "LayerNormalization" in result.after


CHAIN = "q = Pow (a, two) v = ReduceMean (q, last) e = Add (v, eps) s = Sqrt (e) {quotient} y = Mul (gamma, n)"


@pytest.mark.parametrize(
    "quotient",
    ["n = Div (a, s)", "r = Reciprocal (s) n = Mul (a, r)", "r = Div (one, s) n = Mul (r, a)"],
    ids=["torchscript", "dynamo", "one over root"],
)
def test_rms_norm_taken_apart(optimized, quotient: str) -> None:
    steps = "a = Add (x, z) " + CHAIN.format(quotient=quotient)
    assert optimized(text(steps), weights=WEIGHTS, level="all", exact=False).after == SIMPLE


def test_rms_norm_of_the_opset(optimized) -> None:
    steps = "a = Add (x, z) y = RMSNormalization <axis = -1> (a, gamma)"
    assert optimized(text(steps), weights=WEIGHTS, level="all", exact=False, opset=23).after == SIMPLE


def test_rms_norm_of_no_sum_stays(optimized) -> None:
    steps = "a = Mul (x, z) " + CHAIN.format(quotient="n = Div (a, s)")
    assert "Sqrt" in optimized(text(steps), weights=WEIGHTS, level="all", exact=False).after


def test_one_over_root_is_a_norm_for_the_opset_too(optimized) -> None:
    steps = "a = Mul (x, z) " + CHAIN.format(quotient="r = Div (one, s) n = Mul (r, a)")
    result = optimized(text(steps), weights=WEIGHTS, exact=False, opset=23)
    assert result.after == {"Mul": 1, "RMSNormalization": 1}

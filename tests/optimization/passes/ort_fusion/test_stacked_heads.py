"""Stacked query, key and value, as timm and PaddleOCR have them, at level all only."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
GENERATOR = np.random.default_rng(0)
WEIGHTS = {
    "w": GENERATOR.normal(size=(8, 24)).astype(F),
    "row": GENERATOR.normal(size=24).astype(F),
    "stack": np.array([0, 0, 3, 2, 4]),
    "flat": np.array([0, 0, 8]),
    "scale": np.array(0.5, F),
    "i0": np.array(0),
    "i1": np.array(1),
    "i2": np.array(2),
    "last": np.array(-1),
}
STACK = """p0 = MatMul (x, w) p = Add (p0, row) r = Reshape (p, stack) t = Transpose <perm = [2, 0, 3, 1, 4]> (r)
    q = Gather <axis = 0> (t, i0) k = Gather <axis = 0> (t, i1) v = Gather <axis = 0> (t, i2)"""
REST = """kt = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul (q, kt) m = Mul (a, scale)
    s = Softmax <axis = -1> (m) c = MatMul (s, v) u = Transpose <perm = [0, 2, 1, 3]> (c) y = Reshape (u, flat)"""


def text(*steps: str, outputs: str = "") -> str:
    return f"g (float[b, n, 8] x) => (float[b, n, 8] y{outputs}) {{ {' '.join(steps)} }}"


@pytest.mark.parametrize("opset", [12, 17, 20])
def test_attention_finds_its_heads(optimized, opset: int) -> None:
    result = optimized(text(STACK, REST), weights=WEIGHTS, level="all", exact=False, opset=opset, ir_version=7)
    assert result.after == {"com.microsoft.Attention": 1}


def test_a_third_counted_from_the_end(optimized) -> None:
    source = text(STACK.replace("(t, i2)", "(t, last)"), REST)
    assert optimized(source, weights=WEIGHTS, level="all", exact=False).after == {"com.microsoft.Attention": 1}


def test_never_below_level_all(optimized) -> None:
    assert optimized(text(STACK, REST), weights=WEIGHTS, exact=False).after["Gather"] == 3


@pytest.mark.parametrize(
    "source",
    [
        text(STACK.replace("(t, i2)", "(t, i1)"), REST),
        text(STACK, REST, "z = Identity (t)", outputs=", float[3, b, 2, n, 4] z"),
        text(STACK.replace("perm = [2, 0, 3, 1, 4]", "perm = [2, 1, 3, 0, 4]"), REST).replace("[b, n", "[5, 5"),
    ],
    ids=["one third twice", "the stack is read elsewhere", "another order"],
)
def test_other_stacks_stay(optimized, source: str) -> None:
    assert optimized(source, "split-stacked-heads", weights=WEIGHTS, level="all", exact=False).rewrites == 0

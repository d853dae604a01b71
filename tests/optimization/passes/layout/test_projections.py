"""Reshapes and transposes around attention, and projections side by side."""

from __future__ import annotations

import numpy as np
import pytest

GENERATOR = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(np.float32)


BATCHED = """g (float[b, 4, s, 6] x) => (float[p, q, r, t] y) {{
    d = Shape (x) last = Constant <value = int64[2] {{2, 3}}> () rest = Gather (d, last)
    open = Constant <value = int64[1] {{-1}}> () m = Concat <axis = 0> (open, rest)
    a = Reshape (x, m) c = Transpose <perm = {perm}> (a)
    i = Constant <value = int64[4] {{{order}}}> () w = Gather (d, i) e = Reshape (c, w) y = Relu (e)
}}"""


def test_a_batched_transpose_is_one_transpose(optimized) -> None:
    result = optimized(BATCHED.format(perm="[0, 2, 1]", order="0, 1, 3, 2"))
    assert result.after == {"Transpose": 1, "Relu": 1}
    assert list(result.proto.graph.node[0].attribute[0].ints) == [0, 1, 3, 2]


def test_dims_that_are_split_differently_are_no_transpose(optimized) -> None:
    result = optimized(BATCHED.format(perm="[0, 2, 1]", order="0, 1, 2, 3"))
    assert result.after["Reshape"] == 2


WEIGHTS = {
    "q": normal(8, 8),
    "k": normal(8, 4),
    "v": normal(8, 6),
    "qb": normal(8),
    "vb": normal(6),
}
TEXT = """g (float[b, s, 8] x) => (float[b, s, 8] y, float[b, s, 4] z, float[b, s, 6] u) {
    a = MatMul (x, q) y = Add (qb, a) z = MatMul (x, k) c = MatMul (x, v) u = Add (c, vb)
}"""


def test_projections_of_one_input_become_one_matmul(optimized) -> None:
    result = optimized(TEXT, weights=WEIGHTS, exact=False)
    assert result.after == {"MatMul": 1, "Add": 1, "Split": 1}
    assert [o.name for o in result.proto.graph.output] == ["y", "z", "u"]


def test_two_projections_stay(optimized) -> None:
    text = "g (float[b, s, 8] x) => (float[b, s, 8] y, float[b, s, 4] z) { y = MatMul (x, q) z = MatMul (x, k) }"
    assert optimized(text, weights=WEIGHTS).after == {"MatMul": 2}


@pytest.mark.parametrize("opset", [11, 20])
def test_shared_weights_are_not_copied(optimized, opset: int) -> None:
    text = """g (float[b, s, 8] x) => (float[b, s, 8] y) {
        a = MatMul (x, q) c = MatMul (x, q2) d = MatMul (x, q3) r = Relu (x) e = MatMul (r, q) f = Sum (a, c, d, e)
        y = Neg (f)
    }"""
    weights = {"q": WEIGHTS["q"], "q2": normal(8, 8), "q3": normal(8, 8)}
    assert optimized(text, weights=weights, opset=opset, ir_version=6).after["MatMul"] == 4

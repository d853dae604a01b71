"""The runtime's Attention with its projection, at level all only."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
GENERATOR = np.random.default_rng(0)
WEIGHTS = {
    "w": GENERATOR.normal(size=(8, 24)).astype(F),
    "row": GENERATOR.normal(size=24).astype(F),
    "heads": np.array([0, 0, 2, 4]),
    "flat": np.array([0, 0, 8]),
    "rows": np.array([-1, 8]),
    "back": np.array([24]),
    "scale": np.array(0.5, F),
    "thirds": np.array([8, 8, 8]),
}
CORE = """q, k, v = Split <axis = 2> (p, thirds)
    q4 = Reshape (q, heads) k4 = Reshape (k, heads) v4 = Reshape (v, heads)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4) kh = Transpose <perm = [0, 2, 3, 1]> (k4)
    vh = Transpose <perm = [0, 2, 1, 3]> (v4) a = MatMul (qh, kh) m = Mul (a, scale) {mask}
    s = Softmax <axis = -1> (z) c = MatMul (s, vh) t0 = Transpose <perm = [0, 2, 1, 3]> (c) y = Reshape (t0, flat)"""
PLAIN = CORE.format(mask="z = Identity (m)")
PROJECTION = "p0 = MatMul (x, w) p = Add (p0, row) "
GEMM = """h = Shape <start = 0, end = 2> (x) n = Concat <axis = 0> (h, back) f = Reshape (x, rows)
    g0 = Gemm (f, w, row) p = Reshape (g0, n) """
FUSED = {"com.microsoft.Attention": 1}


def text(steps: str, inputs: str = "", outputs: str = "") -> str:
    return f"g (float[b, t, 8] x{inputs}) => (float[b, t, 8] y{outputs}) {{ {steps} }}"


@pytest.mark.parametrize(
    "source",
    [
        text(PROJECTION + PLAIN),
        text("p = MatMul (x, w) " + PLAIN),
        text(GEMM + PLAIN),
        text(PROJECTION + CORE.format(mask="z = Add (m, mask)"), ", float[b, 1, t, t] mask"),
    ],
    ids=["bias", "no bias", "gemm", "mask"],
)
def test_projection_is_taken_in(optimized, source: str) -> None:
    assert optimized(source, weights=WEIGHTS, level="all", exact=False).after == FUSED


@pytest.mark.parametrize(
    "source",
    [
        text(PROJECTION + PLAIN.replace("q, k, v = Split", "k, q, v = Split")),
        text(PROJECTION + PLAIN + " o = Neg (v)", outputs=", float[b, t, 8] o"),
        text("p0 = MatMul (x, w2) p = Add (p0, row) " + PLAIN, ", float[8, 24] w2"),
        text(PROJECTION.replace("row", "r2") + PLAIN, ", float[24] r2"),
    ],
    ids=["other order", "value read elsewhere", "computed weight", "computed bias"],
)
def test_other_projections_stay(optimized, source: str) -> None:
    after = optimized(source, weights=WEIGHTS, level="all", exact=False).after
    assert "com.microsoft.MultiHeadAttention" in after
    assert "com.microsoft.Attention" not in after

"""The runtime's MultiHeadAttention at level all."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
WEIGHTS = {
    "heads": np.array([0, 0, 2, 4]),
    "flat": np.array([0, 0, 8]),
    "scale": np.array(0.5, F),
    "root": np.array(0.7, F),
    "zero": np.array(0.0, F),
}
TEXT = """g (float[b, s, 8] q, float[b, t, 8] k, float[b, t, 8] v{inputs}) => (float[b, s, 8] y) {{
    q4 = Reshape (q, heads) k4 = Reshape (k, heads) v4 = Reshape (v, heads)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4) kh = Transpose <perm = [0, 2, 3, 1]> (k4)
    vh = Transpose <perm = [0, 2, 1, 3]> (v4)
    {scores} p = Softmax <axis = -1> (w) {guard} c = MatMul (g, vh)
    t0 = Transpose <perm = [0, 2, 1, 3]> (c) y = Reshape (t0, flat)
}}"""
PLAIN = "a = MatMul (qh, kh) w = Mul (a, scale)"
FUSED = {"com.microsoft.MultiHeadAttention": 1}


def text(scores: str = PLAIN, guard: str = "g = Identity (p)", inputs: str = "") -> str:
    return TEXT.format(scores=scores, guard=guard, inputs=inputs)


@pytest.mark.parametrize(
    "scores",
    [PLAIN, "a = MatMul (qh, kh) w = Div (a, root)", "u = Mul (qh, root) n = Mul (root, kh) w = MatMul (u, n)"],
)
def test_attention(optimized, scores: str) -> None:
    assert optimized(text(scores), weights=WEIGHTS, level="all", exact=False).after == FUSED


def test_never_below_level_all(optimized) -> None:
    assert "Softmax" in optimized(text(), weights=WEIGHTS, exact=False).after


def test_a_mask_of_the_full_shape(optimized) -> None:
    masked = text(PLAIN.replace("w =", "m =") + " w = Add (m, mask)", inputs=", float[b, 1, s, t] mask")
    assert optimized(masked, weights=WEIGHTS, level="all", exact=False).after == FUSED


def test_a_mask_that_broadcasts_over_queries_stays(optimized) -> None:
    masked = text(PLAIN.replace("w =", "m =") + " w = Add (m, mask)", inputs=", float[b, 1, 1, t] mask")
    assert "Softmax" in optimized(masked, weights=WEIGHTS, level="all", exact=False).after


GUARD = "n = IsNaN (p) g = Where (n, zero, p)"


def test_a_guarded_softmax_with_a_mask_stays(optimized) -> None:
    # A row that is masked as a whole gives zeros here, and something else in the runtime's operator.
    masked = text(PLAIN.replace("w =", "m =") + " w = Add (m, mask)", GUARD, ", float[b, 1, s, t] mask")
    assert "Softmax" in optimized(masked, weights=WEIGHTS, level="all", exact=False).after


def test_a_guarded_softmax_without_a_mask_is_fused(optimized) -> None:
    assert optimized(text(guard=GUARD), weights=WEIGHTS, level="all", exact=False).after == FUSED


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kh = Transpose <perm = [0, 2, 3, 1]> (k4)", "kh = Transpose <perm = [0, 3, 2, 1]> (k4)"),
        ("y = Reshape (t0, flat)", "z = Reshape (t0, flat) r = ReduceMax <keepdims = 0> (p) y = Mul (z, r)"),
    ],
)
def test_what_only_looks_like_attention_stays(optimized, old: str, new: str) -> None:
    changed = text().replace(old, new)
    compare = "[0, 3, 2, 1]" not in new
    assert "Softmax" in optimized(changed, weights=WEIGHTS, level="all", exact=False, compare=compare).after

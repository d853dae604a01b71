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


@pytest.mark.parametrize("dims", [(6, 6), (1, 6, 6)])
def test_a_constant_mask_of_fewer_dims(optimized, dims: tuple[int, ...]) -> None:
    masked = text(PLAIN.replace("w =", "m =") + " w = Add (m, mask)").replace("[b, s, 8]", "[b, 6, 8]")
    weights = WEIGHTS | {"mask": np.where(np.tril(np.ones((6, 6))) > 0, 0, -np.inf).astype(F).reshape(dims)}
    source = masked.replace("[b, t, 8]", "[b, 6, 8]")
    assert optimized(source, weights=weights, level="all", exact=False).after == FUSED


GUARD = "n = IsNaN (p) g = Where (n, zero, p)"
MASKED = PLAIN.replace("w =", "m =") + " w = Add (m, mask)"


def masks() -> list[dict[str, np.ndarray]]:
    """Queries of which some have no key at all."""
    generator = np.random.default_rng(0)
    mask = np.where(generator.random((2, 1, 5, 7)) < 0.4, -np.inf, 0).astype(F)
    mask[0, 0, 2], mask[1, 0, 0] = -np.inf, -np.inf
    sizes = {"q": (2, 5, 8), "k": (2, 7, 8), "v": (2, 7, 8)}
    return [{"mask": mask} | {n: generator.normal(size=s).astype(F) for n, s in sizes.items()}]


def test_rows_without_a_key_stay_zero(optimized) -> None:
    masked = text(MASKED, GUARD, ", float[b, 1, s, t] mask")
    result = optimized(masked, weights=WEIGHTS, level="all", exact=False, feeds=masks())
    assert result.after == {**FUSED, "ReduceMax": 1, "IsInf": 1, "Squeeze": 1, "Where": 1}


FACTOR = """top = ReduceMax <keepdims = 1> (mask, last) none = Equal (top, hidden) some = Where (none, zero, mask)
    a = MatMul (qh, kh) m = Mul (a, scale) w = Add (m, some)"""
ROWS = WEIGHTS | {"last": np.array([-1]), "hidden": np.array(-np.inf, F), "one": np.array(1.0, F)}


@pytest.mark.parametrize(("heads", "fused"), [(1, True), (2, False)])
def test_rows_that_a_factor_makes_zero_stay_zero(optimized, heads: int, fused: bool) -> None:
    """As converted PyTorch models have it; a factor of each head cannot go behind the joined heads."""
    masked = text(FACTOR, inputs=f", float[b, {heads}, s, t] mask").replace(
        "c = MatMul (g, vh)", "x = MatMul (g, vh) f = Where (none, zero, one) c = Mul (x, f)"
    )
    feeds = [{**one, "mask": np.repeat(one["mask"], heads, axis=1)} for one in masks()]
    result = optimized(masked, weights=ROWS, level="all", exact=False, feeds=feeds)
    assert ("com.microsoft.MultiHeadAttention" in result.after) == fused
    assert ("Softmax" in result.after) != fused


def test_a_guard_of_single_weights_stays(optimized) -> None:
    # The runtime's operator gives NaN for a row that is masked as a whole, where this gives zeros.
    masked = text(MASKED, GUARD, ", float[b, 1, s, t] mask")
    result = optimized(masked, "fuse-attention", weights=WEIGHTS, level="all", exact=False, feeds=masks())
    assert "Softmax" in result.after


def test_a_guard_that_differs_between_heads_stays(optimized) -> None:
    masked = text(MASKED, GUARD, ", float[b, 2, s, t] mask")
    feeds = [{**one, "mask": np.repeat(one["mask"], 2, axis=1)} for one in masks()]
    assert "Softmax" in optimized(masked, weights=WEIGHTS, level="all", exact=False, feeds=feeds).after


def test_a_guarded_softmax_without_a_mask_is_fused(optimized) -> None:
    assert optimized(text(guard=GUARD), weights=WEIGHTS, level="all", exact=False).after == FUSED


def test_a_result_of_two_dims(optimized) -> None:
    rows = text().replace("float[b, s, 8] y)", "float[n, 8] y)").replace("Reshape (t0, flat)", "Reshape (t0, rows)")
    weights = WEIGHTS | {"rows": np.array([-1, 8])}
    result = optimized(rows, weights=weights, level="all", exact=False)
    assert result.after == {**FUSED, "Reshape": 1}


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

"""The runtime's FusedMatMul, at level all only."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
WEIGHTS = {
    "scale": np.array(0.125, F),
    "deep": np.full((1, 1, 1, 1, 1), 0.5, F),
    "row": np.arange(4, dtype=F) + 1,
    "five": np.array(5.0, F),
}
FUSED = {"com.microsoft.FusedMatMul": 1}


def text(steps: str, rank: int = 4) -> str:
    batch = ", ".join(["b", "h", "k"][: rank - 2])
    lead = f"{batch}, " if batch else ""
    return f"g (float[{lead}s, 4] q, float[{lead}t, 4] k) => (float[{lead}s, t] y) {{ {steps} }}"


TURN = "u = Transpose <perm = [0, 1, 3, 2]> (k)"


@pytest.mark.parametrize(
    "steps",
    [
        f"{TURN} y = MatMul (q, u)",
        f"{TURN} m = MatMul (q, u) y = Mul (m, scale)",
        f"{TURN} m = MatMul (q, u) y = Div (m, five)",
        f"{TURN} p = Mul (q, scale) v = Mul (scale, u) y = MatMul (p, v)",
        "n = Div (k, five) u = Transpose <perm = [0, 1, 3, 2]> (n) y = MatMul (q, u)",
    ],
)
def test_transposes_and_factors(optimized, steps: str) -> None:
    assert optimized(text(steps), weights=WEIGHTS, level="all", exact=False).after == FUSED


def test_both_sides(optimized) -> None:
    source = """g (float[b, 4, s] q, float[b, t, 4] k) => (float[b, s, t] y) {
        u = Transpose <perm = [0, 2, 1]> (q) v = Transpose <perm = [0, 2, 1]> (k) y = MatMul (u, v)
    }"""
    assert optimized(source, weights=WEIGHTS, level="all", exact=False).after == FUSED


def test_never_below_level_all(optimized) -> None:
    steps = f"{TURN} m = MatMul (q, u) y = Mul (m, scale)"
    assert "MatMul" in optimized(text(steps), weights=WEIGHTS, exact=False).after


@pytest.mark.parametrize(
    "source",
    [
        text("u = Transpose <perm = [1, 0, 3, 2]> (k) y = MatMul (q, u)").replace("b, h", "1, 1"),
        text(f"{TURN} m = MatMul (q, u) r = ReduceMax <keepdims = 0> (m) y = Mul (m, r)").replace(
            TURN, "i = Identity (k) u = Transpose <perm = [0, 1, 3, 2]> (i)"
        ),
    ],
    ids=["other transpose", "computed factor"],
)
def test_what_it_cannot_say_stays(optimized, source: str) -> None:
    after = optimized(source, "fuse-matmul-transposes", weights=WEIGHTS, level="all", exact=False).after
    assert "MatMul" in after or "Mul" in after


def test_a_number_with_more_dims_stays(optimized) -> None:
    source = """g (float[b, h, s, 4] q, float[b, h, 4, t] k) => (float[1, b, h, s, t] y) {
        m = MatMul (q, k) y = Mul (m, deep)
    }"""
    after = optimized(source, "fuse-matmul-transposes", weights=WEIGHTS, level="all", exact=False).after
    assert after == {"MatMul": 1, "Mul": 1}

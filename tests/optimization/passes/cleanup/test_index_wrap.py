"""Indices that a framework prepares although Gather takes them as they are."""

from __future__ import annotations

import numpy as np
import pytest

NAME = "drop-index-wrap"
FEEDS = [{"i": np.array([[0, -1, 6], [-7, 3, 2]], np.int64)}]
TABLE = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
CHOSEN = """g (int64[b, s] i) => (float[b, s, 4] y) {
    n = Less (i, zero) p = Add (i, size) c = Where (n, p, i) y = Gather <axis = 0> (t, c)
}"""
SUMMED = """g (int64[b, s] i) => (float[b, s, 4] y) {
    f = Cast <to = 1> (i) n = Less (f, fzero) p = Add (i, size) a = Cast <to = 7> (n) q = Mul (a, p)
    m = Not (n) c = Cast <to = 7> (m) r = Mul (i, c) e = Add (q, r) y = Gather <axis = 0> (t, e)
}"""


def weights(size: int = 7) -> dict[str, np.ndarray]:
    return {
        "t": TABLE,
        "size": np.array([size], np.int64),
        "zero": np.array(0, np.int64),
        "fzero": np.array(0.0, np.float32),
    }


@pytest.mark.parametrize("text", [CHOSEN, SUMMED])
def test_gather_counts_from_the_end_by_itself(optimized, text: str) -> None:
    result = optimized(text, NAME, "eliminate-dead-code", weights=weights(), feeds=FEEDS)
    assert result.after == {"Gather": 1}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (CHOSEN, 6),  # wraps to another row
        (CHOSEN.replace("Less (i, zero)", "Less (i, size)"), 7),
        (CHOSEN.replace("Where (n, p, i)", "Where (n, i, p)"), 7),
        (SUMMED.replace("Not (n)", "Not (o)").replace("m =", "o = Less (fzero, f) m ="), 7),
    ],
)
def test_other_arithmetic_stays(optimized, text: str, size: int) -> None:
    assert optimized(text, NAME, weights=weights(size), compare=False).rewrites == 0


def test_not_below_opset_11(optimized) -> None:
    """Gather takes no negative indices there, even if the runtime does."""
    assert optimized(CHOSEN, NAME, weights=weights(), opset=10, compare=False).rewrites == 0

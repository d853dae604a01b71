"""An If of which one branch cannot be taken by any run that comes to an end."""

from __future__ import annotations

import numpy as np
import pytest

ONLY = "inline-possible-branch"
# What torch.jit.script makes of x.squeeze(-1).
SQUEEZED = """
    dims = Shape (x) last = Gather (dims, two) single = Equal (last, one)
    s = If (single) <
        then_branch = t () => (float[] p) { p = Squeeze (x, axis) },
        else_branch = e () => (float[] q) { q = Identity (x) }
    >
"""
NUMBERS = {"one": np.array(1), "two": np.array(2), "axis": np.array([2]), "zero": np.array([0])}
FEEDS = [{"x": np.random.default_rng(b).normal(size=(b, 4, 1)).astype(np.float32)} for b in (1, 3)]


def graph(rest: str, output: str = "float[m, n] y") -> str:
    return f"g (float[b, 4, t] x) => ({output}) {{ {SQUEEZED} {rest} }}"


@pytest.mark.parametrize(
    "rest",
    [
        "y = Gemm (s, w)",
        "a = Relu (s) h = Transpose <perm = [1, 0]> (a) y = Identity (h)",
        "h = Unsqueeze (s, zero) y3 = Conv (h, kernel) y = Squeeze (y3, zero)",
        "h = Concat <axis = 0> (s, w) y = Neg (h)",
    ],
)
def test_a_rank_that_a_later_operator_refuses(optimized, rest: str) -> None:
    weights = NUMBERS | {"w": np.ones((4, 4), np.float32), "kernel": np.ones((2, 3, 1), np.float32)}
    feeds = FEEDS[1:]
    result = optimized(graph(rest), ONLY, "eliminate-dead-code", weights=weights, feeds=feeds)
    assert result.rewrites
    assert result.after["Squeeze"] == 1 + rest.count("Squeeze")
    assert "If" not in result.after


def test_the_rank_is_followed_through_shapes_and_other_branches(optimized) -> None:
    """As in a scripted LSTM cell, which asks whether its input has a batch."""
    rest = """
        sizes = Shape (s) rank = Size (sizes) flat = Equal (rank, two) deep = Not (flat)
        u = If (deep) <
            then_branch = t2 () => (float[] p2) { p2 = Unsqueeze (s, zero) },
            else_branch = e2 () => (float[] q2) { q2 = Identity (s) }
        >
        v = Unsqueeze (u, zero) y = Conv (v, kernel)
    """
    weights = NUMBERS | {"kernel": np.ones((2, 3, 1), np.float32)}
    text = graph(rest, "float[k, m, n] y")
    assert "If" not in optimized(text, ONLY, "eliminate-dead-code", weights=weights, feeds=FEEDS[1:]).after
    assert "If" not in optimized(text, weights=weights, feeds=FEEDS[1:]).after


@pytest.mark.parametrize(
    "rest",
    [
        "y = Relu (s)",
        "y = Flatten <axis = 1> (s)",
        "h = ReduceSum <keepdims = 0> (s) y = Unsqueeze (h, both)",
        "h = MatMul (turned, s) y = Identity (h)",
        # The operator that needs a matrix runs for one answer of another question only.
        """y = If (open) <
            then_branch = t2 () => (float[] p2) { p2 = Gemm (s, w) },
            else_branch = e2 () => (float[] q2) { q2 = Relu (s) }
        >""",
    ],
)
def test_both_branches_may_be_taken(optimized, rest: str) -> None:
    weights = NUMBERS | {
        "w": np.ones((4, 4), np.float32),
        "both": np.array([0, 1]),
        "turned": np.ones((2, 4), np.float32),
    }
    text = graph(rest, "float[] y").replace("float[] y", "float[m, n] y")
    if "open" in rest:
        text = text.replace("float[b, 4, t] x", "float[b, 4, t] x, bool open")
    result = optimized(text, ONLY, weights=weights, compare=False)
    assert result.rewrites == 0
    assert result.after == result.before


def test_a_branch_may_be_impossible_in_either_place(optimized) -> None:
    text = graph("y = Conv (s, kernel)", "float[k, m, n] y")
    long = {"x": np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)}
    weights = NUMBERS | {"kernel": np.ones((2, 4, 1), np.float32)}
    result = optimized(text, ONLY, "eliminate-dead-code", weights=weights, feeds=[long])
    assert result.after == {"Identity": 1, "Conv": 1}

"""The runtime's RotaryEmbedding, at level all only."""

from __future__ import annotations

import numpy as np
import pytest

F = np.float32
WEIGHTS = {
    "inverse": (10000.0 ** (-np.arange(4) / 4)).astype(F).reshape(1, 4, 1),
    "other": np.linspace(0.1, 0.9, 4, dtype=F).reshape(1, 1, 4),
    "one_axis": np.array([1]),
    "zero": np.array([0]),
    "half": np.array([4]),
    "third": np.array([3]),
    "huge": np.array([2**63 - 1]),
    "axis": np.array([3]),
    "start": np.array(0),
    "step": np.array(1),
    "outer": np.array([0, 1]),
    "factor": np.array(1.25, F),
    "halves": np.array([4, 4]),
}
ANGLES = """n = Shape <start = 2, end = 3> (x) n0 = Squeeze (n) i = Range (start, n0, step)
    w = Cast <to = 1> (i) ru = Unsqueeze (w, outer) fr = MatMul (inverse, ru) f = Transpose <perm = [0, 2, 1]> (fr)
    ff = Concat <axis = -1> (f, f) c0 = Cos (ff) c1 = Mul (c0, factor) s0 = Sin (ff) s1 = Mul (s0, factor)
    c = Unsqueeze (c1, one_axis) s = Unsqueeze (s1, one_axis)"""
SLICES = "lo = Slice (x, zero, half, axis) up = Slice (x, half, huge, axis)"
TURN = "m = Neg (up) h = Concat <axis = -1> (m, lo) p = Mul (x, c) q = Mul (h, s) y = Add (p, q)"
ROTARY = "com.microsoft.RotaryEmbedding"


def text(*steps: str) -> str:
    return f"g (float[b, 2, t, 8] x) => (float[b, 2, t, 8] y) {{ {' '.join(steps)} }}"


@pytest.mark.parametrize(
    "parts", [SLICES, "lo, up = Split <axis = -1> (x, halves)"], ids=["slices of both torch exporters", "split"]
)
def test_rotation(optimized, parts: str) -> None:
    result = optimized(text(ANGLES, parts, TURN), weights=WEIGHTS, level="all", exact=False)
    assert result.after[ROTARY] == 1
    assert not {"Neg", "Add"} & set(result.after)


def test_heads_are_turned_before_they_are_transposed(optimized) -> None:
    heads = "r = Reshape (z, heads) x = Transpose <perm = [0, 2, 1, 3]> (r)"
    source = f"""g (float[b, t, 16] z) => (float[b, 2, t, 8] y) {{ {heads} {ANGLES} {SLICES} {TURN} }}"""
    nodes = optimized(source, weights=WEIGHTS | {"heads": np.array([0, 0, 2, 8])}, level="all", exact=False).proto.graph
    rotary = next(n for n in nodes.node if n.op_type == "RotaryEmbedding")
    assert rotary.input[0] == "z"


@pytest.mark.parametrize("dims", [(6, 8), (1, 6, 8), (1, 1, 6, 8)])
def test_constant_angles_of_fewer_dims(optimized, dims: tuple[int, ...]) -> None:
    angles = np.outer(np.arange(6), 10000.0 ** (-np.arange(4) / 4))
    both = np.concatenate([angles, angles], axis=1).reshape(dims)
    weights = WEIGHTS | {"c": np.cos(both).astype(F), "s": np.sin(both).astype(F)}
    source = text(SLICES, TURN).replace("t, 8]", "6, 8]")
    assert optimized(source, weights=weights, level="all", exact=False).after == {ROTARY: 1}


def test_two_rotations_share_their_angles(optimized) -> None:
    second = SLICES.replace("(x", "(u").replace("lo", "l2").replace("up", "u2")
    turn = "m2 = Neg (u2) h2 = Concat <axis = -1> (m2, l2) p2 = Mul (u, c) q2 = Mul (h2, s) y = Add (p2, q2)"
    source = text(ANGLES, SLICES, TURN.replace("y =", "y0 ="), "u = Neg (y0)", second, turn)
    result = optimized(source, weights=WEIGHTS, level="all", exact=False)
    assert (result.after[ROTARY], result.after["Slice"]) == (2, 2)


def test_never_below_level_all(optimized) -> None:
    assert "Neg" in optimized(text(ANGLES, SLICES, TURN), weights=WEIGHTS, exact=False).after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Concat <axis = -1> (m, lo)", "Concat <axis = -1> (lo, m)"),
        ("Neg (up)", "Neg (lo)"),
        ("ff = Concat <axis = -1> (f, f)", "f2 = Mul (f, other) ff = Concat <axis = -1> (f, f2)"),
        ("p = Mul (x, c)", "o = Neg (x) p = Mul (o, c)"),
        ("y = Add (p, q)", "y = Sub (p, q)"),
    ],
)
def test_other_sums_stay(optimized, old: str, new: str) -> None:
    source = text(ANGLES, SLICES, TURN).replace(old, new)
    assert source != text(ANGLES, SLICES, TURN)
    assert ROTARY not in optimized(source, weights=WEIGHTS, level="all", exact=False).after

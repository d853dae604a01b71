"""The runtime's GroupQueryAttention at level all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

F = np.float32
LOWEST = float(np.finfo(F).min)
WEIGHTS = {
    "heads": np.array([0, 0, 4, 8]),
    "groups": np.array([0, 0, 2, 8]),
    "joined": np.array([0, 4, -1, 8]),
    "twice": np.array([1, 1, 2, 1, 1]),
    "two": np.array([2]),
    "flat": np.array([0, 0, 32]),
    "scale": np.array(0.3, F),
    "none": np.array(0.0, F),
    "one": np.array(1.0, F),
    "lowest": np.array(LOWEST, F),
    "minus_inf": np.array(-np.inf, F),
    "first": np.array([0]),
    "second": np.array([1]),
    "start": np.array(0),
    "step": np.array(1),
    "position": np.array(1),
    "front": np.array([0, 1]),
    "third": np.array([3]),
    "table": np.tril(np.ones((1, 1, 64, 64), F)),
}
START = """qs = Shape (q) l1 = Gather (qs, second) square = Concat <axis = 0> (l1, l1)
    l0 = Gather (qs, position) range = Range (start, l0, step)
    ks = Unsqueeze (range, first) rows = Unsqueeze (range, second)
    q4 = Reshape (q, heads) k4 = Reshape (k, groups) v4 = Reshape (v, groups)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4) kt = Transpose <perm = [0, 2, 1, 3]> (k4)
    vt = Transpose <perm = [0, 2, 1, 3]> (v4)"""
EXPANDED = """k5 = Unsqueeze (kt, two) k6 = Expand (k5, twice) k7 = Reshape (k6, joined)
    v5 = Unsqueeze (vt, two) v6 = Expand (v5, twice) v7 = Reshape (v6, joined)"""
END = "c0 = MatMul (p, v7) {guard} t = Transpose <perm = [0, 2, 1, 3]> (c) y = Reshape (t, flat)"
PRODUCT = "kh = Transpose <perm = [0, 1, 3, 2]> (k7) a = MatMul (qh, kh) n = Mul (a, scale)"
ADDED = "w = Add (n, mask)"
# Ways to hide later positions and nothing else: what makes it, and how it is applied.
CAUSAL = {
    "zeros of a triangle of ones": (
        "o = Expand (one, square) l = Trilu <upper = 0> (o) e = Equal (l, none) mask = Where (e, lowest, none)", ADDED
    ),
    "upper triangle of minus infinity": (
        "o = Expand (minus_inf, square) mask = Trilu <upper = 1> (o, position)", ADDED
    ),
    "positions, seen": (
        "e = LessOrEqual (ks, rows) f = Unsqueeze (e, front) mask = Where (f, none, minus_inf)", ADDED
    ),
    "positions, hidden": ("e = Greater (ks, rows) mask = Where (e, lowest, none)", ADDED),
    "positions, turned about": ("e = GreaterOrEqual (rows, ks) mask = Where (e, none, lowest)", ADDED),
    "positions, not hidden": ("e0 = Less (rows, ks) e = Not (e0) mask = Where (e, none, lowest)", ADDED),
    "a table cut to the length": (
        "s0 = Slice (table, first, l1, two, second) s1 = Slice (s0, first, l1, third, second) e = Equal (s1, none)",
        "w = Where (e, lowest, n)"
    ),
    "scores replaced": ("e = LessOrEqual (ks, rows)", "w = Where (e, n, lowest)"),
    "scores replaced where hidden": ("e = Greater (ks, rows)", "w = Where (e, minus_inf, n)"),
}  # fmt: skip
# Ways that look alike and hide something else.
OTHER = {
    "the own position too": (
        "o = Expand (lowest, square) mask = Trilu <upper = 1> (o)", ADDED
    ),
    "one later position is seen": (
        "o = Expand (one, square) l = Trilu <upper = 0> (o, position) e = Equal (l, none) "
        "mask = Where (e, lowest, none)", ADDED
    ),
    "earlier positions": ("e = GreaterOrEqual (ks, rows) mask = Where (e, none, lowest)", ADDED),
    "earlier positions, replaced": ("e = LessOrEqual (ks, rows)", "w = Where (e, lowest, n)"),
    "the first row of a table": (
        "s0 = Slice (table, first, second, two, second) s1 = Slice (s0, first, l1, third, second) e = Equal (s1, none)",
        "w = Where (e, lowest, n)"
    ),
    "not enough": ("e = LessOrEqual (ks, rows) mask = Where (e, none, one)", ADDED),
    "nothing": ("e = LessOrEqual (ks, rows) mask = Where (e, none, none)", ADDED),
}  # fmt: skip
# A second layer whose query is what the first one gave.
SECOND = """u = Relu (z) r4 = Reshape (u, heads) rh = Transpose <perm = [0, 2, 1, 3]> (r4) a2 = MatMul (rh, kh)
    n2 = Mul (a2, scale) w2 = Add (n2, mask) p2 = Softmax <axis = -1> (w2) c2 = MatMul (p2, v7)
    t2 = Transpose <perm = [0, 2, 1, 3]> (c2) y = Reshape (t2, flat)"""
FUSED = "com.microsoft.GroupQueryAttention"
SAME_GUARD = "c = Identity (c0)"


def text(
    masks: tuple[str, str], repeated: str = EXPANDED, inputs: str = "", softmax: str = "", guard: str = SAME_GUARD
) -> str:
    made, applied = masks
    softmax = softmax or "p = Softmax <axis = -1> (w)"
    body = f"{START} {repeated} {PRODUCT} {made} {applied} {softmax} {END.format(guard=guard)}"
    return f"g (float[b, s, 32] q, float[b, s, 16] k, float[b, s, 16] v{inputs}) => (float[b, s, 32] y) {{ {body} }}"


@pytest.mark.parametrize("masks", CAUSAL.values(), ids=list(CAUSAL))
def test_causal_masks_are_not_needed_any_more(optimized, masks: tuple[str, str]) -> None:
    after = optimized(text(masks), weights=WEIGHTS, level="all", exact=False).after
    lengths = {"Shape": 2, "Gather": 1, "Cast": 1, "Expand": 1, "Sub": 1}
    assert after == {FUSED: 1, **lengths}


@pytest.mark.parametrize("masks", OTHER.values(), ids=list(OTHER))
def test_other_masks_stay(optimized, masks: tuple[str, str]) -> None:
    assert FUSED not in optimized(text(masks), weights=WEIGHTS, level="all", exact=False).after


def test_never_below_level_all(optimized) -> None:
    masks = CAUSAL["positions, seen"]
    assert FUSED not in optimized(text(masks), weights=WEIGHTS, level="extended", exact=False).after


def test_tiled_groups(optimized) -> None:
    source = text(CAUSAL["positions, seen"], EXPANDED.replace("Expand", "Tile"))
    assert FUSED in optimized(source, weights=WEIGHTS, level="all", exact=False).after


def test_heads_that_share_nothing(optimized) -> None:
    source = text(CAUSAL["positions, seen"], "k7 = Identity (kt) v7 = Identity (vt)")
    source = source.replace("float[b, s, 16]", "float[b, s, 32]")
    weights = WEIGHTS | {"groups": WEIGHTS["heads"]}
    assert FUSED in optimized(source, weights=weights, level="all", exact=False).after


def test_groups_in_another_order_stay(optimized) -> None:
    """Head 0 and 2 share a key, where the operator lets 0 and 1 do so."""
    repeated = EXPANDED.replace("two)", "position1)")
    assert repeated != EXPANDED
    weights = WEIGHTS | {"position1": np.array([1]), "twice": np.array([1, 2, 1, 1, 1])}
    source = text(CAUSAL["positions, seen"], repeated)
    assert FUSED not in optimized(source, weights=weights, level="all", exact=False).after


def test_older_opsets(optimized) -> None:
    masks = CAUSAL["positions, seen"]
    assert FUSED in optimized(text(masks), weights=WEIGHTS, level="all", exact=False, opset=13).after


@pytest.mark.parametrize(("lowest", "fires"), [(-1e4, False), (LOWEST, True)])
def test_a_constant_mask_of_a_fixed_length(optimized, lowest: float, fires: bool) -> None:
    """The 10,000 of old exports can be overcome by scores."""
    source = text(("e = Identity (none)", ADDED)).replace("[b, s, ", "[b, 6, ")
    weights = WEIGHTS | {"mask": np.where(np.tril(np.ones((6, 6))) > 0, 0, lowest).astype(F)}
    assert (FUSED in optimized(source, weights=weights, level="all", exact=False).after) == fires


def test_queries_of_another_length_stay(optimized) -> None:
    source = text(("e = LessOrEqual (ks, rows)", "w0 = ReduceMax <keepdims = 0> (mask) w = Add (n, w0)"))
    source = source.replace("float[b, s, 16]", "float[b, t, 16]").replace("16] v)", "16] v, float[s, t] mask)")
    assert FUSED not in optimized(source, weights=WEIGHTS, level="all", exact=False).after


PADDED = "e = LessOrEqual (ks, rows) f = And (e, pad) mask = Where (f, none, {lowest})"
PAD_INPUT = ", bool[b, 1, 1, s] pad"


def padded_feeds() -> list[dict[str, np.ndarray]]:
    """The first sample begins with padding, so that its first rows have no key at all."""
    generator = np.random.default_rng(0)
    pad = np.ones((2, 1, 1, 6), bool)
    pad[0, ..., :3], pad[1, ..., 5:] = False, False
    widths = {"q": 32, "k": 16, "v": 16}
    return [{"pad": pad} | {n: generator.normal(size=(2, 6, w)).astype(F) for n, w in widths.items()}]


def test_padding_of_minus_infinity_is_passed_on(optimized) -> None:
    softmax = "p0 = Softmax <axis = -1> (w) nan = IsNaN (p0) p = Where (nan, none, p0)"
    source = text((PADDED.format(lowest="minus_inf"), ADDED), inputs=PAD_INPUT, softmax=softmax)
    result = optimized(source, weights=WEIGHTS, level="all", exact=False, feeds=padded_feeds())
    assert FUSED in result.after
    node = next(n for n in result.proto.graph.node if n.op_type == "GroupQueryAttention")
    assert node.input[10]


def test_padding_of_the_lowest_number_stays(optimized) -> None:
    """A row without a key is then the mean over all positions, later ones included."""
    source = text((PADDED.format(lowest="lowest"), ADDED), inputs=PAD_INPUT)
    result = optimized(source, weights=WEIGHTS, level="all", exact=False, feeds=padded_feeds())
    assert FUSED not in result.after


def test_all_layers_share_the_lengths(optimized) -> None:
    one = text(CAUSAL["positions, seen"]).replace("y = Reshape", "z = Reshape").rstrip(" }")
    after = optimized(f"{one} {SECOND} }}", weights=WEIGHTS, level="all", exact=False).after
    assert after[FUSED] == 2
    assert after["Sub"] == after["Expand"] == 1


def test_an_empty_batch_is_an_error_and_no_crash(optimized, tmp_path: Path) -> None:
    """Given the length, the runtime's operator divides by zero, which ends the process."""
    result = optimized(text(CAUSAL["positions, seen"]), weights=WEIGHTS, level="all", exact=False)
    onnx.save(result.proto, tmp_path / "m.onnx")
    code = (
        "import numpy as np, onnxruntime as r; s = r.InferenceSession('m.onnx'); "
        "s.run(None, {n: np.zeros((0, 3, w), 'f') for n, w in zip('qkv', (32, 16, 16))})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "out of data bounds" in done.stderr

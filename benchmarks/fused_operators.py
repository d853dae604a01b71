"""The runtime's fused operators against what it makes of their parts at load, one by one.

    python benchmarks/fused_operators.py [--lengths 16 128 512] [--widths 256 768]

Prints latency of the fused operator over that of its parts: CPU time of one thread, in alternation, the runtime's own
optimizations on. From these come the families of level `all` and the table of `--target`.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.runtime.session.session import SessionOptions, create_session
from onnxtool.runtime.timing.timing import measure, ratio

F = np.float32
HEAD = (
    '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]> g ({inputs}) => (float[b, {out}] y) {{ {steps} }}'
)
ROWS = "float[b, l, {d}] x, float[b, l2, {d}] z"
WIDE = "float[b, l, {w}] x"
HEADS = "float[b, {h}, l, {k}] x, float[l, {k}] c, float[l, {k}] s"
QKV = "float[b, l, {d}] q, float[b, l, {d}] k, float[b, l, {d}] v"
MASKED = QKV + ", float[b, 1, l, l] mask"
SPLIT = """q4 = Reshape (q, heads) k4 = Reshape (k, heads) v4 = Reshape (v, heads)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4) kh = Transpose <perm = [0, 2, 3, 1]> (k4)
    vh = Transpose <perm = [0, 2, 1, 3]> (v4) a0 = MatMul (qh, kh) a = Mul (a0, scale)"""
JOIN = "m = MatMul (p, vh) t = Transpose <perm = [0, 2, 1, 3]> (m) y = Reshape (t, flat)"
PROJECT = "p0 = MatMul (x, weight) p1 = Add (p0, row) q, k, v = Split <axis = 2> (p1, thirds)"
MHA = "y = com.microsoft.MultiHeadAttention <num_heads = {h}> (q, k, v{mask})"
SHARED = "float[b, l, {d}] q, float[b, l, {e}] k, float[b, l, {e}] v"
GROUPS = """q4 = Reshape (q, heads) k4 = Reshape (k, groups) v4 = Reshape (v, groups)
    qh = Transpose <perm = [0, 2, 1, 3]> (q4) kt = Transpose <perm = [0, 2, 1, 3]> (k4)
    vt = Transpose <perm = [0, 2, 1, 3]> (v4) k5 = Unsqueeze (kt, third) k6 = Expand (k5, twice)
    k7 = Reshape (k6, apart) v5 = Unsqueeze (vt, third) v6 = Expand (v5, twice) vh = Reshape (v6, apart)
    kh = Transpose <perm = [0, 1, 3, 2]> (k7) a0 = MatMul (qh, kh) a = Mul (a0, scale)"""
CAUSAL = """sh = Shape <start = 1, end = 2> (q) square = Concat <axis = 0> (sh, sh) ones = Expand (unit, square)
    low = Trilu <upper = 0> (ones) none = Equal (low, nothing) mask = Where (none, least, nothing)"""
LENGTHS = """sh = Shape <start = 1, end = 2> (q) bs = Shape <start = 0, end = 1> (q) short = Cast <to = 6> (sh)
    each = Expand (short, bs) ends = Sub (each, single) total = Squeeze (short)"""
GQA = "y = com.microsoft.GroupQueryAttention <num_heads = {h}, kv_num_heads = {g}> (q, k, v, , , ends, total{mask})"
CASES = {
    "SkipLayerNormalization": (
        ROWS, "l, {d}", "a = Add (x, z) y = LayerNormalization <axis = -1> (a, gamma, beta)",
        "y = com.microsoft.SkipLayerNormalization <epsilon = 0.00001> (x, z, gamma, beta)",
    ),
    "SkipSimplifiedLayerNormalization": (
        ROWS, "l, {d}",
        "a = Add (x, z) q = Pow (a, two) v = ReduceMean (q, last) e = Add (v, eps) r = Sqrt (e) n = Div (a, r) "
        "y = Mul (n, gamma)",
        "y = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.00001> (x, z, gamma)",
    ),
    "BiasGelu": (WIDE, "l, {w}", "a = Add (x, wide) y = Gelu (a)", "y = com.microsoft.BiasGelu (x, wide)"),
    "FastGelu": (
        WIDE, "l, {w}", 'a = Add (x, wide) y = Gelu <approximate = "tanh"> (a)', "y = com.microsoft.FastGelu (x, wide)"
    ),
    "QuickGelu": (
        WIDE, "l, {w}", "a = Mul (x, alpha) s = Sigmoid (a) y = Mul (x, s)",
        "y = com.microsoft.QuickGelu <alpha = 1.702> (x)",
    ),
    "RotaryEmbedding": (
        HEADS, "{h}, l, {k}",
        "lo = Slice (x, zero, half, axis) up = Slice (x, half, end, axis) n = Neg (up) r = Concat <axis = -1> (n, lo) "
        "p = Mul (x, c) q = Mul (r, s) y = Add (p, q)",
        "c2 = Slice (c, zero, half, one) s2 = Slice (s, zero, half, one) "
        "y = com.microsoft.RotaryEmbedding (x, zero, c2, s2)",
    ),
    "MultiHeadAttention": (QKV, "l, {d}", f"{SPLIT} p = Softmax <axis = -1> (a) {JOIN}", MHA),
    "MultiHeadAttention, mask": (
        MASKED, "l, {d}", f"{SPLIT} w = Add (a, mask) p = Softmax <axis = -1> (w) {JOIN}",
        MHA.replace("{mask}", ", , , mask"),
    ),
    "GroupQueryAttention, causal, two heads a group": (
        SHARED, "l, {d}", f"{CAUSAL} {GROUPS} w = Add (a, mask) p = Softmax <axis = -1> (w) {JOIN}",
        f"{LENGTHS} {GQA}".replace("{mask}", ""),
    ),
    "GroupQueryAttention, the same with a mask": (
        SHARED + ", float[b, 1, l, l] mask", "l, {d}",
        f"{GROUPS} w = Add (a, mask) p = Softmax <axis = -1> (w) {JOIN}",
        f"{LENGTHS} {GQA}".replace("{mask}", ", , , , mask"),
    ),
    "softmax guard moved": (
        MASKED, "l, {d}",
        f"{SPLIT} w = Add (a, mask) o = Softmax <axis = -1> (w) n = IsNaN (o) p = Where (n, nothing, o) {JOIN}",
        f"{SPLIT} w = Add (a, mask) p = Softmax <axis = -1> (w) {JOIN}".replace(
            "m = MatMul (p, vh)",
            "top = ReduceMax (mask, last) n = IsInf <detect_positive = 0> (top) m0 = MatMul (p, vh) "
            "m = Where (n, nothing, m0)",
        ),
    ),
    "Attention, against projection and MultiHeadAttention": (
        "float[b, l, {d}] x", "l, {d}", f"{PROJECT} {MHA}",
        "y = com.microsoft.Attention <num_heads = {h}> (x, weight, row)",
    ),
}  # fmt: skip


def weights(d: int, h: int) -> dict[str, np.ndarray]:
    """What the models read."""
    generator = np.random.default_rng(0)
    k = d // h
    return {
        "gamma": np.ones(d, F), "beta": generator.normal(size=d).astype(F), "wide": np.ones(4 * d, F),
        "two": np.array(2, F), "last": np.array([-1]), "eps": np.array(1e-5, F), "alpha": np.array(1.702, F),
        "zero": np.array([0]), "one": np.array([1]), "half": np.array([k // 2]), "end": np.array([k]),
        "axis": np.array([3]), "heads": np.array([0, 0, h, k]), "flat": np.array([0, 0, d]),
        "groups": np.array([0, 0, h // 2, k]), "twice": np.array([1, 1, 2, 1, 1]), "third": np.array([2]),
        "apart": np.array([0, h, -1, k]), "unit": np.array(1, F), "least": np.array(np.finfo(F).min, F),
        "single": np.array(1, np.int32),
        "scale": np.array(k**-0.5, F), "nothing": np.array(0, F), "thirds": np.array([d, d, d]),
        "weight": (generator.normal(size=(d, 3 * d)) * 0.05).astype(F), "row": np.ones(3 * d, F),
    }  # fmt: skip


def compare(case: str, length: int, d: int, h: int) -> float:
    """Latency of the fused operator over that of its parts."""
    inputs, out, *both = CASES[case]
    sizes = {"d": d, "w": 4 * d, "h": h, "k": d // h, "e": d // 2, "g": h // 2, "mask": ""}
    generator = np.random.default_rng(1)
    calls = []
    for steps in both:
        text = HEAD.format(inputs=inputs.format(**sizes), out=out.format(**sizes), steps=steps.format(**sizes))
        model = onnx.parser.parse_model(text)
        read = {i for node in model.graph.node for i in node.input}
        kept = {n: a for n, a in weights(d, h).items() if n in read}
        model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in kept.items())
        session = create_session(model, SessionOptions(threads=1))
        named = {"b": 1, "l": length, "l2": length}
        feeds = {
            i.name: generator.normal(size=[x if isinstance(x, int) else named.get(x, 1) for x in i.shape]).astype(F)
            for i in session.get_inputs()
        }
        calls.append(lambda s=session, f=feeds: s.run(None, f))
    parts, fused = measure(calls, budget=1.0, clock=time.thread_time)
    return ratio(fused, parts).value


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="*", default=[16, 128, 512])
    parser.add_argument("--widths", type=int, nargs="*", default=[256, 768])
    arguments = parser.parse_args()
    settings = [(length, width) for width in arguments.widths for length in arguments.lengths]
    print("| operator | " + " | ".join(f"{length} x {width}" for length, width in settings) + " |")
    print("|---|" + "---|" * len(settings))
    for case in CASES:
        found = [compare(case, length, width, width // 64) for length, width in settings]
        print(f"| {case} | " + " | ".join(f"{value:.2f}" for value in found) + " |", flush=True)


if __name__ == "__main__":
    main()

"""Pairs of graphs for `proof_matrix.py`: some differ on some inputs only, some compute the same in two ways."""

# ruff: noqa: E501  (a graph is one line, however long)
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

RANDOM = np.random.default_rng(0)


USUAL = '"" : 20'  # operator set


@dataclass(frozen=True)
class Pair:
    """Two graphs.

    Attributes:
        name: what differs, or what was rewritten.
        head: inputs and outputs of both.
        a, b: their bodies.
        weights: of both; those of B where they are named in `changed`.
        imports: the operator sets of both; `imports_b` of B where it is given.
        functions: of both.
    """

    name: str
    head: str
    a: str
    b: str
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    changed: dict[str, np.ndarray] = field(default_factory=dict)
    imports: str = USUAL
    imports_b: str | None = None
    functions: str = ""


X4, X8 = "g (float[b,4] x) => (float[b,4] y)", "g (float[b,8] x) => (float[b,8] y)"
SEQUENCE = "g (float[b,n] x) => (float[b,n] y)"
MASKED = "g (float[b,n] x, int64[b,n] attention_mask) => (float[b] y)"
IDS = "g (int64[b,n] ids) => (float[b,n,8] y)"
SAME = "y = Identity(x)"
SUM = "one = Constant <value_ints = [1]> ()  y = ReduceSum <keepdims = 0> (p, one)"


def constant(name: str, value: float) -> str:
    """A scalar."""
    return f"{name} = Constant <value_float = {value!r}> ()  "


def cut(at: int, axis: int) -> str:
    """Negated from a position on."""
    return (
        f"zero = Constant <value_ints = [0]> ()  at = Constant <value_ints = [{at}]> ()  "
        f"far = Constant <value_ints = [99999]> ()  axis = Constant <value_ints = [{axis}]> ()  "
        f"head = Slice(x, zero, at, axis)  rest = Slice(x, at, far, axis)  other = Neg(rest)  "
        f"y = Concat <axis = {axis}> (head, other)"
    )


def branch(condition: str) -> str:
    """A product in one branch, nothing in the other."""
    return (
        f"{condition}  y = If (c) <then_branch = t () => (p) {{ p = MatMul(x, w) }}, "
        f"else_branch = e () => (q) {{ q = Identity(x) }}>"
    )


def wrong_pairs() -> Iterator[Pair]:
    """Pairs that differ on some inputs only."""
    for at in (24, 33, 64, 100, 128, 200, 256):
        yield Pair(f"positions from {at} on", SEQUENCE, SAME, cut(at, 1))
    for at in (6, 8, 16, 32, 64):
        yield Pair(f"rows from {at} on", X4, SAME, cut(at, 0))
    for at in (40, 77, 150, 300):
        body = (
            f"s = Shape <start = 1, end = 2> (x)  c = Constant <value_ints = [{at}]> ()  q = Equal(s, c)  "
            "f = Cast <to = 1> (q)  y = Add(x, f)"
        )
        yield Pair(f"length {at} only", SEQUENCE, SAME, body)
    for value in (6.0, 7.5, 20.0, 100.0, 300.0):
        yield Pair(f"values above {value:g}", X4, SAME, constant("c", value) + "y = Min(x, c)")
        yield Pair(f"values below -{value:g}", X4, SAME, constant("c", -value) + "y = Max(x, c)")
    for operator in ("Sigmoid", "Tanh", "Softplus", "Erf"):
        limits = constant("l", -3.5) + constant("h", 4.5) if operator != "Erf" else constant("l", -3) + constant("h", 1)
        clipped = limits.replace("-3 ", "-3.0 ").replace("= 1>", "= 1.0>").replace("= -3>", "= -3.0>")
        yield Pair(
            f"{operator} saturates early", X4, f"y = {operator}(x)", clipped + f"c = Clip(x, l, h)  y = {operator}(c)"
        )
    ints = "g (int64[b,n] x) => (int64[b,n] y)"
    yield Pair("integers below zero", ints, SAME, "y = Abs(x)")
    yield Pair("integers above 1", ints, SAME, "c = Constant <value = int64 {1}> ()  y = Min(x, c)")
    yield Pair("integers above 50", ints, SAME, "c = Constant <value = int64 {50}> ()  y = Min(x, c)")
    picture = "g (uint8[b,n] x) => (float[b,n] y)"
    yield Pair(
        "bytes above 1", picture, "y = Cast <to = 1> (x)", constant("c", 1.0) + "f = Cast <to = 1> (x)  y = Min(f, c)"
    )
    yield Pair("bytes above 127", picture, "y = Cast <to = 1> (x)", "s = Cast <to = 3> (x)  y = Cast <to = 1> (s)")
    weighted = f"m = Cast <to = 1> (attention_mask)  p = Mul(x, m)  {SUM}"
    yield Pair("a mask ignored", MASKED, weighted, f"p = Identity(x)  {SUM}")
    first = (
        "z = Constant <value_ints = [0]> ()  o = Constant <value_ints = [1]> ()  a = Slice(attention_mask, z, o, o)  "
        f"m = Cast <to = 1> (a)  p = Mul(x, m)  {SUM}"
    )
    yield Pair("a mask read at its first position", MASKED, weighted, first)
    table = RANDOM.standard_normal((300, 8)).astype(np.float32)
    for row in (0, 57, 137, 299):
        other = table.copy()
        other[row] += 1
        yield Pair(f"row {row} of a table", IDS, "y = Gather(w, ids)", "y = Gather(w, ids)", {"w": table}, {"w": other})
    weight = RANDOM.standard_normal((8, 8)).astype(np.float32)
    zeroed = weight.copy()
    zeroed.reshape(-1)[:7] = 0
    for limit in (50.0, 500.0, 5000.0, 1e30):
        body = branch("s = ReduceSum <keepdims = 0> (x)  " + constant("limit", limit) + "c = Greater(s, limit)")
        yield Pair(f"a branch from a sum of {limit:g} on", X8, body, body, {"w": weight}, {"w": zeroed})
    least = branch("s = ReduceMin <keepdims = 0> (x)  " + constant("limit", 3.0) + "c = Greater(s, limit)")
    yield Pair("a branch where all values are above 3", X8, least, least, {"w": weight}, {"w": zeroed})
    square = "q = Mul(x, x)  s = ReduceSum <keepdims = 0> (q)  "
    never = branch(square + constant("limit", -1.0) + "c = Less(s, limit)").replace("(q) { q =", "(r) { r =")
    yield Pair("a branch that nothing reaches", X8, never, never, {"w": weight}, {"w": zeroed})
    flag = "g (float[b,8] x, bool[1] flag) => (float[b,8] y)"
    body = branch("c = Identity(flag)")
    yield Pair("a branch on a flag", flag, body, body, {"w": weight}, {"w": zeroed})
    rows = branch("s = Shape <start = 0, end = 1> (x)  l = Constant <value_ints = [50]> ()  c = Greater(s, l)")
    yield Pair("a branch on the batch", X8, rows, rows, {"w": weight}, {"w": zeroed})
    nan = "n = IsNaN(x)  " + constant("z", 0.0) + "y = Where(n, z, x)"
    yield Pair("NaN", X4, nan, SAME)
    infinite = "n = IsInf(x)  " + constant("z", 0.0) + "y = Where(n, z, x)"
    yield Pair("infinity", X4, infinite, SAME)
    yield Pair("all values below zero", "g (float[b,4] x) => (float[b] y)",
               "o = Constant <value_ints = [1]> ()  y = ReduceMax <keepdims = 0> (x, o)",
               "o = Constant <value_ints = [1]> ()  m = ReduceMax <keepdims = 0> (x, o)  y = Relu(m)")  # fmt: skip
    for right, other in ((1e-5, 1e-3), (1e-6, 1e-4)):
        norm = "y = LayerNormalization <axis = -1, epsilon = {}> (x, w)"
        one = {"w": np.ones(8, np.float32)}
        yield Pair(f"epsilon {right:g} and {other:g}", X8, norm.format(right), norm.format(other), one)
    yield Pair("zeros", X4, SAME, constant("z", 0.0) + constant("o", 1.0) + "q = Equal(x, z)  y = Where(q, o, x)")
    yield Pair(
        "one exact value", X4, SAME, constant("z", 42.0) + constant("o", 1.0) + "q = Equal(x, z)  y = Where(q, o, x)"
    )
    for operator, other in (("Floor", "Ceil"), ("Round", "Floor")):
        body = "p = {}(x)  " + constant("c", 5.0) + "q = Greater(x, c)  y = Where(q, p, x)"
        yield Pair(f"{operator} and {other} above 5", X4, body.format(operator), body.format(other))
    big = "g (float[b,4] x) => (int64[b,4] y)"
    yield Pair(
        "an integer type too narrow", big, "y = Cast <to = 7> (x)", "i = Cast <to = 5> (x)  y = Cast <to = 7> (i)"
    )
    for bits, kind in ((16, 10),):
        del bits
        yield Pair("half precision overflows", X4, SAME, f"h = Cast <to = {kind}> (x)  y = Cast <to = 1> (h)")
    words = "g (string[b] x) => (bool[b] y)"
    yield Pair("an empty text", words, 's = Constant <value_string = "zzz"> ()  y = Equal(x, s)',
               's = Constant <value_string = ""> ()  y = Equal(x, s)')  # fmt: skip
    loops = (
        "m = Size(x)  t = Constant <value = bool {1}> ()  z = Constant <value_float = 0.0> ()  "
        "s = Loop (m, t, z) <body = l (int64 i, bool k, float a) => (bool k2, float a2) "
        "{ k2 = Identity(k)  o = Constant <value_float = 1.0> ()  d = Add(a, o)  "
        "lim = Constant <value_float = LIMIT> ()  a2 = Min(d, lim) }>  y = Add(x, s)"
    )
    for count in (120.0, 250.0):
        yield Pair(
            f"more than {count:g} iterations",
            SEQUENCE,
            loops.replace("LIMIT", "1e9"),
            loops.replace("LIMIT", str(count)),
        )
    for feature in (0, 3):
        pick = f"i = Constant <value_ints = [{feature}]> ()  f = Gather <axis = 1> (x, i)  " + constant("c", 12.0)
        yield Pair(f"feature {feature} above 12", X4, SAME, pick + "q = Greater(f, c)  n = Neg(x)  y = Where(q, n, x)")


REWRITES = {
    "Add and Mul": ("y = Add(x, x)", constant("c", 2.0) + "y = Mul(x, c)"),
    "Sub and Neg": ("y = Sub(x, v)", "n = Neg(v)  y = Add(x, n)"),
    "Gemm": ("p = MatMul(x, w)  y = Add(p, v)", "y = Gemm(x, w, v)"),
    "two products": ("p = MatMul(x, w)  y = MatMul(p, w2)", "q = MatMul(w, w2)  y = MatMul(x, q)"),
    "Sigmoid": ("y = Sigmoid(x)", constant("o", 1.0) + "n = Neg(x)  e = Exp(n)  s = Add(e, o)  y = Div(o, s)"),
    "Tanh": ("y = Tanh(x)", constant("o", 1.0) + constant("t", 2.0)
             + "d = Mul(x, t)  s = Sigmoid(d)  u = Mul(s, t)  y = Sub(u, o)"),
    "Relu": ("y = Relu(x)", constant("z", 0.0) + "y = Max(x, z)"),
    "Softmax": ("y = Softmax <axis = -1> (x)",
                "o = Constant <value_ints = [1]> ()  m = ReduceMax(x, o)  d = Sub(x, m)  e = Exp(d)  s = ReduceSum(e, o)"
                "  y = Div(e, s)"),
    "LayerNormalization": ("y = LayerNormalization <axis = -1, epsilon = 0.00001> (x, v)",
                           constant("e", 1e-5) + "o = Constant <value_ints = [1]> ()  m = ReduceMean(x, o)  d = Sub(x, m)"
                           "  q = Mul(d, d)  a = ReduceMean(q, o)  b2 = Add(a, e)  r = Sqrt(b2)  n = Div(d, r)  y = Mul(n, v)"),
    "Transpose": ("p = MatMul(x, w)  y = Add(p, v)",
                  "t = Transpose <perm = [1, 0]> (w)  u = Transpose <perm = [1, 0]> (t)  p = MatMul(x, u)  y = Add(p, v)"),
    "Where": ("n = Neg(x)  " + constant("z", 0.0) + "c = Greater(x, z)  y = Where(c, x, n)", "y = Abs(x)"),
    "If": (branch("s = ReduceSum <keepdims = 0> (x)  " + constant("z", 9.0) + "c = Greater(s, z)"),
           "s = ReduceSum <keepdims = 0> (x)  " + constant("z", 9.0) + "c = Greater(s, z)  p = MatMul(x, w)  y = Where(c, p, x)"),
    "Slice and Split": ("z = Constant <value_ints = [0]> ()  f = Constant <value_ints = [4]> ()  "
                        "e = Constant <value_ints = [8]> ()  o = Constant <value_ints = [1]> ()  a = Slice(x, z, f, o)  "
                        "b2 = Slice(x, f, e, o)  y = Concat <axis = 1> (b2, a)",
                        "a, b2 = Split <axis = 1, num_outputs = 2> (x)  y = Concat <axis = 1> (b2, a)"),
    "Div": (constant("c", 8.0) + "y = Div(x, c)", constant("c", 0.125) + "y = Mul(x, c)"),
    "Gelu": ('y = Gelu <approximate = "none"> (x)', constant("r", 1.4142135) + constant("o", 1.0) + constant("h", 0.5)
             + "d = Div(x, r)  e = Erf(d)  s = Add(e, o)  m = Mul(x, s)  y = Mul(m, h)"),
    "Clip": (constant("l", -1.0) + constant("h", 1.0) + "y = Clip(x, l, h)",
             constant("l", -1.0) + constant("h", 1.0) + "a = Max(x, l)  y = Min(a, h)"),
    "Square": ("y = Mul(x, x)", constant("t", 2.0) + "y = Pow(x, t)"),
    "LogSoftmax": ("y = LogSoftmax <axis = -1> (x)",
                   "o = Constant <value_ints = [1]> ()  m = ReduceMax(x, o)  d = Sub(x, m)  e = Exp(d)  s = ReduceSum(e, o)"
                   "  l = Log(s)  y = Sub(d, l)"),
    "shifted product": ("p = Add(x, v)  y = MatMul(p, w)",
                        "a = MatMul(x, w)  r = MatMul(v1, w)  y = Add(a, r)"),
    "Reshape": (SAME, "s = Shape(x)  f = Constant <value_ints = [-1]> ()  q = Reshape(x, f)  y = Reshape(q, s)"),
}  # fmt: skip


def sound_pairs(count: int = 200) -> Iterator[Pair]:
    """Pairs that compute the same in other ways."""
    names = list(REWRITES)
    for number in range(count):
        name = names[number % len(names)]
        generator = np.random.default_rng(number)
        scale = (0.1, 1.0, 10.0)[number // len(names) % 3]
        v = (scale * generator.standard_normal(8)).astype(np.float32)
        w, w2 = ((scale * generator.standard_normal((8, 8))).astype(np.float32) for _ in range(2))
        available = {"v": v, "w": w, "w2": w2, "v1": v.reshape(1, 8)}
        a, b = REWRITES[name]
        yield Pair(f"{name} {number}", X8, a, b, available)


def two_forms(
    name: str,
    head: str,
    a: str,
    wrong: str,
    sound: str | None = None,
    *,
    changed: dict[str, np.ndarray] | None = None,
    imports_b: str | None = None,
    **same: Any,
) -> Iterator[tuple[Pair, Pair]]:
    """A graph, what is wrong, and what computes the same: the graph with a node more that nothing reads, if not given.

    Args:
        name, head, a: of both pairs.
        wrong, sound: the other bodies.
        changed, imports_b: of the wrong one.
        same: what is of both.
    """
    output = re.findall(r"=> \(.*?(\w+)\)$", head)[0]
    twin = sound if sound is not None else f"{a}  unused = Identity({output})"
    yield (
        Pair(name, head, a, wrong, changed=changed or {}, imports_b=imports_b, **same),
        Pair(f"{name}, twin", head, a, twin, **same),
    )


def graph(head: str, body: str, weights: dict[str, np.ndarray], imports: str = USUAL, functions: str = "") -> ir.Model:
    """A model of a body and its weights."""
    weights = {n: w for n, w in weights.items() if re.search(rf"\b{n}\b", body)}
    listed = ", ".join(f"float[{', '.join(map(str, w.shape))}] {n}" for n, w in weights.items())
    return ir.from_onnx_text(
        f"<ir_version: 10, opset_import: [{imports}]> {head} {f'<{listed}>' if listed else ''} {{ {body} }} {functions}",
        initializers=[ir.tensor(w, name=n) for n, w in weights.items()],
    )

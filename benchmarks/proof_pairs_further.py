"""Pairs of graphs for `proof_matrix.py`: conditions inside bodies and functions, on types, on two inputs, on rows of a
batch, on counts and order, steps that are no comparison; each with a sound twin, where the condition changes nothing."""

# ruff: noqa: E501  (a graph is one line, however long)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from proof_pairs import IDS, MASKED, SAME, SEQUENCE, SUM, X4, X8, Pair, constant
from proof_pairs_hidden import listed, whole

RANDOM = np.random.default_rng(5)
TWO = "g (float[b,4] x, float[b,4] z) => (float[b,4] y)"
PICTURES = "g (float[b,3,h,w] x) => (float[b,3,h,w] y)"
O1 = listed("o", 1)


def flipped(name: str, head: str, condition: str, of: str = "x", before: str = "") -> Iterator[tuple[Pair, Pair]]:
    """What a condition q negates; and the same negated in two ways."""
    zero = f"z0 = Constant <value_float = 0.0> ()  zz = CastLike(z0, {of})  "
    one, other = f"n = Neg({of})  ", f"{zero}n = Sub(zz, {of})  "
    end = f"y = Where(q, n, {of})"
    yield (
        Pair(name, head, f"{before}y = Identity({of})", before + condition + one + end),
        Pair(f"{name}, twin", head, before + condition + one + end, before + condition + other + end),
    )


def weights(name: str, head: str, body: str) -> Iterator[tuple[Pair, Pair]]:
    """A weight w of which a few numbers are zero; and one that is its transpose's transpose."""
    weight = RANDOM.standard_normal((8, 8)).astype(np.float32)
    zeroed = weight.copy()
    zeroed.reshape(-1)[:7] = 0
    twin = body.replace("MatMul(x, w)", "Gemm(x, w)")
    yield (
        Pair(name, head, body, body, {"w": weight}, {"w": zeroed}),
        Pair(f"{name}, twin", head, body, twin, {"w": weight}),
    )


def values(name: str, head: str, a: str, b: str, twin: str) -> Iterator[tuple[Pair, Pair]]:
    """a, what is wrong, and what is a in another form."""
    yield Pair(name, head, a, b), Pair(f"{name}, twin", head, a, twin)


def pairs() -> Iterator[tuple[Pair, Pair]]:
    """(wrong, sound)."""
    yield from _bodies()
    yield from _masks()
    yield from _types()
    yield from _two_inputs()
    yield from _rows()
    yield from _counts()
    yield from _tokens()
    yield from _special()
    yield from _sizes()
    yield from _steps()
    yield from _tables()
    yield from _narrow()


def _bodies() -> Iterator[tuple[Pair, Pair]]:
    def inner(threshold: float, of: str = "x") -> str:
        return f"l2 = Constant <value_float = {threshold}> ()  s2 = ReduceMax <keepdims = 0> ({of})  c2 = Greater(s2, l2)  "

    total = "s = ReduceSum <keepdims = 0> (x)  " + constant("l", 0.0) + "c = Greater(s, l)  "
    yield from weights(
        "weights in an If in an If",
        X8,
        total
        + "y = If (c) <then_branch = t () => (p) {"
        + inner(700.0)
        + "p = If (c2) <then_branch = t2 () => (p2) { p2 = MatMul(x, w) }, else_branch = e2 () => (q2) { q2 = Identity(x) }> },"
        "else_branch = e () => (q) { q = Identity(x) }>",
    )
    yield from weights(
        "weights in three nested Ifs on means, largest and least",
        X8,
        total
        + "y = If (c) <then_branch = t () => (p) {"
        + inner(60.0)
        + "p = If (c2) <then_branch = t2 () => (p2) { l3 = Constant <value_float = -60.0> ()  s3 = ReduceMin <keepdims = 0> (x)  c3 = Less(s3, l3)"
        "  p2 = If (c3) <then_branch = t3 () => (p3) { p3 = MatMul(x, w) }, else_branch = e3 () => (q3) { q3 = Identity(x) }> }, "
        "else_branch = e2 () => (q2) { q2 = Identity(x) }> },"
        "else_branch = e () => (q) { q = Identity(x) }>",
    )
    loop = (
        "m = Constant <value = int64 {5}> ()  t = Constant <value = bool {1}> ()  "
        "y = Loop (m, t, x) <body = l (int64 i, bool k, float[b,8] a) => (bool k2, float[b,8] a2) { k2 = Identity(k)  BODY }>"
    )
    condition = "lim = Constant <value_float = 55.5> ()  q = Greater(a, lim)  "
    yield (
        Pair("Where in a loop's body", X8, loop.replace("BODY", "a2 = Identity(a)"),
             loop.replace("BODY", condition + "n = Neg(a)  a2 = Where(q, n, a)")),
        Pair("Where in a loop's body, twin", X8, loop.replace("BODY", condition + "n = Neg(a)  a2 = Where(q, n, a)"),
             loop.replace("BODY", condition + "zz = Constant <value_float = 0.0> ()  n = Sub(zz, a)  a2 = Where(q, n, a)")),
    )  # fmt: skip
    last = "four = Constant <value = int64 {4}> ()  q1 = Equal(i, four)  lim = Constant <value_float = 555.5> ()  q2 = Greater(a, lim)  q = And(q1, q2)  "
    yield (
        Pair("the last iteration, for large values", X8, loop.replace("BODY", "a2 = Identity(a)"),
             loop.replace("BODY", last + "n = Neg(a)  a2 = Where(q, n, a)")),
        Pair("the last iteration, for large values, twin", X8, loop.replace("BODY", last + "n = Neg(a)  a2 = Where(q, n, a)"),
             loop.replace("BODY", last + "zz = Constant <value_float = 0.0> ()  n = Sub(zz, a)  a2 = Where(q, n, a)")),
    )  # fmt: skip
    branch = "lim = Constant <value_float = 444.0> ()  top = ReduceMax <keepdims = 0> (a)  c = Greater(top, lim)  a2 = If (c) <then_branch = t () => (p) { p = PRODUCT }, else_branch = e () => (q) { q = Identity(a) }>"
    weight = RANDOM.standard_normal((8, 8)).astype(np.float32) / 9
    zeroed = weight.copy()
    zeroed.reshape(-1)[:7] = 0
    body = loop.replace("BODY", branch).replace("PRODUCT", "MatMul(a, w)")
    yield (
        Pair("weights in an If in a loop", X8, body, body, {"w": weight}, {"w": zeroed}),
        Pair("weights in an If in a loop, twin", X8, body, body.replace("MatMul", "Gemm"), {"w": weight}),
    )
    # A loop that ends when what it has added up is large enough.
    until = (
        "m = Constant <value = int64 {40}> ()  t = Constant <value = bool {1}> ()  z = Constant <value_float = 0.0> ()  top = ReduceMax <keepdims = 0> (x)  "
        "s = Loop (m, t, z) <body = l (int64 i, bool k, float a) => (bool k2, float a2) "
        "{ a2 = Add(a, top)  lim = Constant <value_float = LIMIT> ()  k2 = Less(a2, lim) }>  y = Add(x, s)"
    )
    yield from values("a loop that ends later", X8, until.replace("LIMIT", "5000.0"), until.replace("LIMIT", "9000.0"),
                      until.replace("LIMIT", "5000.0").replace("Less(a2, lim)", "Greater(lim, a2)"))  # fmt: skip
    scan = (
        "st = Constant <value = float[8] {0,0,0,0,0,0,0,0}> ()  "
        "f, y = Scan <num_scan_inputs = 1, body = s (float[8] a, float[8] v) => (float[8] a2, float[8] o) { a2 = Add(a, v)  BODY }> (st, x)"
    )
    condition = "lim = Constant <value_float = 77.0> ()  q = Greater(a2, lim)  "
    yield (
        Pair("a running sum above 77", X8, scan.replace("BODY", "o = Identity(v)"), scan.replace("BODY", condition + "n = Neg(v)  o = Where(q, n, v)")),
        Pair("a running sum above 77, twin", X8, scan.replace("BODY", condition + "n = Neg(v)  o = Where(q, n, v)"),
             scan.replace("BODY", condition + "zz = Constant <value_float = 0.0> ()  n = Sub(zz, v)  o = Where(q, n, v)")),
    )  # fmt: skip
    clipped = "lim = Constant <value_float = 3000.0> ()  o = Min(a2, lim)"
    yield (
        Pair("a running sum that is cut off", X8, scan.replace("BODY", "o = Identity(a2)"), scan.replace("BODY", clipped)),
        Pair("a running sum that is cut off, twin", X8, scan.replace("BODY", clipped),
             scan.replace("BODY", "lim = Constant <value_float = 3000.0> ()  q = Less(a2, lim)  o = Where(q, a2, lim)")),
    )  # fmt: skip
    within = "lim = Constant <value_float = 66.0> ()  top = ReduceMin <keepdims = 0> (v)  c = Greater(top, lim)  o = If (c) <then_branch = t () => (p) { p = Neg(v) }, else_branch = e () => (q) { q = Identity(v) }>"
    yield (
        Pair("an If in a scan", X8, scan.replace("BODY", "o = Identity(v)"), scan.replace("BODY", within)),
        Pair("an If in a scan, twin", X8, scan.replace("BODY", within),
             scan.replace("BODY", within.replace("p = Neg(v)", "zz = Constant <value_float = 0.0> ()  p = Sub(zz, v)"))),
    )  # fmt: skip
    steps = (
        "top = ReduceMax <keepdims = 0> (x)  f = Floor(top)  u = Cast <to = 7> (f)  t = Constant <value = bool {1}> ()  z = Constant <value_float = 0.0> ()  "
        "s = Loop (u, t, z) <body = l (int64 i, bool k, float a) => (bool k2, float a2) "
        "{ k2 = Identity(k)  one = Constant <value_float = 1.0> ()  a1 = Add(a, one)  BODY }>  y = Add(x, s)"
    )
    yield from values("more than 70 iterations, as the values say", X8, steps.replace("BODY", "a2 = Identity(a1)"),
                      steps.replace("BODY", "lim = Constant <value_float = 70.0> ()  a2 = Min(a1, lim)"),
                      steps.replace("BODY", "a2 = Add(a, one)"))  # fmt: skip


def _masks() -> Iterator[tuple[Pair, Pair]]:
    weighted = f"m = Cast <to = 1> (attention_mask)  p = Mul(x, m)  {SUM}"
    yield from values("a mask that holds 2", MASKED, weighted,
                      f"mb = Cast <to = 9> (attention_mask)  m = Cast <to = 1> (mb)  p = Mul(x, m)  {SUM}",
                      f"m = CastLike(attention_mask, x)  p = Mul(m, x)  {SUM}")  # fmt: skip
    yield from values("a mask that holds a number below zero", MASKED, weighted,
                      f"r = Abs(attention_mask)  m = Cast <to = 1> (r)  p = Mul(x, m)  {SUM}",
                      f"m = CastLike(attention_mask, x)  p = Mul(m, x)  {SUM}")  # fmt: skip
    added = "g (float[b,n] x, float[b,n] attention_mask) => (float[b,n] y)"
    plain = "s = Add(x, attention_mask)  y = Softmax(s)"
    yield from values("a mask of -10000 that is added", added, plain,
                      constant("h", -100.0) + "a = Max(attention_mask, h)  s = Add(x, a)  y = Softmax(s)",
                      "s = Add(attention_mask, x)  y = Softmax(s)")  # fmt: skip
    yield from values("an added mask taken for ones and zeros", added, plain,
                      "q = Cast <to = 9> (attention_mask)  " + constant("zz", 0.0) + "a = Where(q, attention_mask, zz)  "
                      + constant("one", 1.0) + "c = Min(a, one)  s = Add(x, c)  y = Softmax(s)",
                      "s = Add(attention_mask, x)  y = Softmax(s)")  # fmt: skip
    ends = (
        whole("ax", 1)
        + "up = CumSum(attention_mask, ax)  dn = CumSum <reverse = 1> (attention_mask, ax)  z = Sub(up, up)  "
        "q1 = Greater(up, z)  q2 = Greater(dn, z)  q = And(q1, q2)  m = Cast <to = 1> (q)  p = Mul(x, m)  " + SUM
    )
    yield from values(
        "a mask with a hole in its middle",
        MASKED,
        weighted,
        ends,
        f"m = CastLike(attention_mask, x)  p = Mul(m, x)  {SUM}",
    )
    count = (
        weighted.replace("y =", "p2 =")
        + "  k = ReduceSum <keepdims = 0> (attention_mask, one)  f = Cast <to = 1> (k)  "
    )
    yield from values("an empty mask divided by one", MASKED, count + constant("e", 0.01) + "d = Max(f, e)  y0 = Add(p2, e)  y = Div(y0, d)",
                      count + constant("e", 0.01) + constant("e1", 1.0) + "d = Max(f, e1)  y0 = Add(p2, e)  y = Div(y0, d)",
                      count + constant("e", 0.01) + "d = Max(e, f)  y0 = Add(e, p2)  y = Div(y0, d)")  # fmt: skip
    boolean = "g (float[b,n] x, bool[b,n] keep) => (float[b,n] y)"
    every = "k = Cast <to = 7> (keep)  " + O1 + "s = ReduceSum(k, o)  " + whole("c", 2) + "q = Equal(s, c)  "
    yield from flipped("two booleans of a row", boolean, every)


def _types() -> Iterator[tuple[Pair, Pair]]:
    for kind, value in (
        ("uint8", 200),
        ("int16", -3),
        ("int64", 2**33 + 5),
        ("uint16", 60_001),
        ("int8", -128),
        ("int32", -70_000),
        ("uint64", 2**40 + 1),
        ("uint32", 3_000_000_000),
    ):
        head = f"g ({kind}[b,n] x) => (float[b,n] y)"
        yield from flipped(
            f"{kind} of {value}",
            head,
            f"c = Constant <value = {kind} {{{value}}}> ()  q = Equal(x, c)  ",
            "f",
            "f = Cast <to = 1> (x)  ",
        )
    for kind, value in (("int64", 2**35), ("int64", -(2**35)), ("uint16", 60_000), ("int16", 31_000)):
        head = f"g ({kind}[b,n] x) => (float[b,n] y)"
        operator = "Greater" if value > 0 else "Less"
        yield from flipped(
            f"{kind} beyond {value}",
            head,
            f"c = Constant <value = {kind} {{{value}}}> ()  q = {operator}(x, c)  ",
            "f",
            "f = Cast <to = 1> (x)  ",
        )
    half = "g (float16[b,4] x) => (float16[b,4] y)"
    for value in (40_000.0,):
        operator = "Greater" if value > 1 else "Less"
        yield from flipped(f"float16 {operator} {value:g}", half,
                           constant("c", value) + f"f = Cast <to = 1> (x)  g = Abs(f)  r = {operator}(g, c)  "
                           + constant("zr", 0.0) + "r2 = Greater(g, zr)  q = And(r, r2)  ")  # fmt: skip
    double = "g (double[b,4] x) => (double[b,4] y)"
    yield from flipped("double above 1e100", double, "c = Constant <value = double {1e100}> ()  q = Greater(x, c)  ")
    yield from values("double through float32", double, "o = Constant <value = double {1000000.0}> ()  a = Add(x, o)  y = Sub(a, o)",
                      "f = Cast <to = 1> (x)  of = Constant <value_float = 1000000.0> ()  a = Add(f, of)  s = Sub(a, of)  y = Cast <to = 11> (s)",
                      "o = Constant <value = double {1000000.0}> ()  a = Add(o, x)  y = Sub(a, o)")  # fmt: skip
    ints = "g (int64[b,n] x) => (int64[b,n] y)"
    yield from values(
        "a product through int32",
        ints,
        "y = Mul(x, x)",
        "i = Cast <to = 6> (x)  p = Mul(i, i)  y = Cast <to = 7> (p)",
        whole("t", 2) + "y = Pow(x, t)",
    )
    yield from values("a quotient of negative integers", ints, whole("k", 4) + "y = Div(x, k)",
                      whole("k", 4) + "m = Mod(x, k)  d = Sub(x, m)  y = Div(d, k)",
                      whole("k", 4) + "m = Mod <fmod = 1> (x, k)  d = Sub(x, m)  y = Div(d, k)")  # fmt: skip
    yield from values("the tenth bit of an integer", "g (uint32[b,n] x) => (uint32[b,n] y)", SAME,
                      "c = Constant <value = uint32 {4294966271}> ()  y = BitwiseAnd(x, c)",
                      "c = Constant <value = uint32 {4294967295}> ()  y = BitwiseAnd(x, c)")  # fmt: skip


def _two_inputs() -> Iterator[tuple[Pair, Pair]]:
    end = "h = Add(x, z)  "
    yield from flipped(
        "a sum above the other's largest",
        TWO,
        end
        + "s = ReduceSum <keepdims = 0> (x)  k = ReduceMax <keepdims = 0> (z)  "
        + constant("d", 300.0)
        + "t = Sub(s, d)  q = Greater(t, k)  ",
    )
    yield from flipped("two inputs that are equal", TWO, end + "q = Equal(x, z)  ")
    yield from flipped(
        "two inputs that are equal throughout",
        TWO,
        end
        + "d = Sub(x, z)  e = Abs(d)  s = ReduceMax <keepdims = 0> (e)  "
        + constant("t", 1e-6)
        + "q = Less(s, t)  ",
    )
    yield from flipped(
        "means of opposite sign",
        TWO,
        end
        + "s = ReduceMean <keepdims = 0> (x)  k = ReduceMean <keepdims = 0> (z)  p = Mul(s, k)  "
        + constant("t", -90.0)
        + "q = Less(p, t)  ",
    )
    yield from flipped(
        "one input twice the other", TWO, end + constant("two", 2.0) + "t = Mul(z, two)  q = Equal(x, t)  "
    )
    lengths = "g (float[b,n] x, float[b,k] z) => (float[b,n] y)"
    sizes = "s = Shape <start = 1, end = 2> (x)  r = Shape <start = 1, end = 2> (z)  "
    use = "zs = ReduceSum(z, o)  x0 = Add(x, zs)  "
    yield from flipped(
        "one input longer by 50",
        lengths,
        sizes + listed("t", 50) + "u = Add(r, t)  q = Greater(s, u)  ",
        "x0",
        O1 + use,
    )
    yield from flipped("one input as long as the other", lengths, sizes + "q = Equal(s, r)  ", "x0", O1 + use)


def _rows() -> Iterator[tuple[Pair, Pair]]:
    first = listed("i0", 0) + listed("i1", -1) + "f = Gather <axis = 0> (x, i0)  k = Gather <axis = 0> (x, i1)  "
    yield from flipped(
        "first and last row alike",
        X4,
        first
        + O1
        + "d = Sub(f, k)  e = Abs(d)  s = ReduceMax <keepdims = 0> (e)  "
        + constant("t", 1e-5)
        + "q1 = Less(s, t)  b0 = Shape <start = 0, end = 1> (x)  q2 = Greater(b0, o)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "a first row far above the last",
        X4,
        first
        + "s = ReduceSum <keepdims = 0> (f)  r = ReduceSum <keepdims = 0> (k)  d = Sub(s, r)  "
        + constant("t", 400.0)
        + "q = Greater(d, t)  ",
    )
    sums = (
        O1
        + listed("zi", 0)
        + listed("m1", -1)
        + listed("far", 99999)
        + "s = ReduceSum <keepdims = 0> (x, o)  a = Slice(s, zi, m1, zi)  c = Slice(s, o, far, zi)  d = Sub(c, a)  n0 = Shape(x)  pad = Constant <value_ints = [1]> ()  "
    )
    yield from flipped(
        "rows in ascending order",
        "g (float[6,4] x) => (float[6,4] y)",
        sums + "e = ReduceMin <keepdims = 0> (d)  " + constant("t", 0.0) + "q = Greater(e, t)  ",
    )
    yield from flipped(
        "rows of one length",
        X4,
        O1
        + listed("zi", 0)
        + "l = ReduceL2 <keepdims = 0> (x, o)  a = ReduceMax <keepdims = 0> (l)  c = ReduceMin <keepdims = 0> (l)  d = Sub(a, c)  "
        + constant("t", 1e-5)
        + "q1 = Less(d, t)  b0 = Shape <start = 0, end = 1> (x)  q2 = Greater(b0, o)  q = And(q1, q2)  ",
    )
    cosine = (
        first
        + "p = Mul(f, k)  s = ReduceSum <keepdims = 0> (p)  lf = ReduceL2 <keepdims = 0> (f)  lk = ReduceL2 <keepdims = 0> (k)  m = Mul(lf, lk)  r = Div(s, m)  "
    )
    yield from flipped(
        "first and last row of opposite direction", X4, cosine + constant("t", -0.999) + "q = Less(r, t)  "
    )


def _counts() -> Iterator[tuple[Pair, Pair]]:
    zeros = O1 + constant("nought", 0.0) + "e = Equal(x, nought)  f = Cast <to = 7> (e)  s = ReduceSum(f, o)  "
    for count in (2, 5, 7):
        yield from flipped(f"{count} zeros in a row", X8, zeros + whole("c", count) + "q = Equal(s, c)  ")
    negative = O1 + constant("nought", 0.0) + "e = Less(x, nought)  f = Cast <to = 7> (e)  s = ReduceSum(f, o)  "
    for count in (0, 1, 8):
        yield from flipped(f"{count} negative numbers in a row", X8, negative + whole("c", count) + "q = Equal(s, c)  ")
    yield from flipped(
        "no zero is left out",
        X8,
        "i = NonZero(x)  s = Shape <start = 1, end = 2> (i)  " + listed("c", 5) + "q = Less(s, c)  ",
    )
    yield from flipped(
        "an L2 norm above 2000", X8, O1 + "s = ReduceL2(x, o)  " + constant("c", 2000.0) + "q = Greater(s, c)  "
    )
    yield from flipped(
        "an L2 norm below 0.001", X8, O1 + "s = ReduceL2(x, o)  " + constant("c", 1e-3) + "q = Less(s, c)  "
    )
    variance = O1 + "m = ReduceMean(x, o)  d = Sub(x, m)  e = Mul(d, d)  v = ReduceMean(e, o)  "
    yield from flipped("a variance above a million", X8, variance + constant("c", 1e6) + "q = Greater(v, c)  ")
    yield from flipped(
        "a variance from 9 to 9.3",
        X8,
        variance + constant("c", 9.0) + constant("c2", 9.3) + "q1 = Greater(v, c)  q2 = Less(v, c2)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "a spread below 0.1",
        X8,
        O1 + "m = ReduceMax(x, o)  k = ReduceMin(x, o)  d = Sub(m, k)  " + constant("c", 0.1) + "q = Less(d, c)  ",
    )
    yield from flipped(
        "descending order",
        X8,
        O1
        + listed("zi", 0)
        + listed("l", -1)
        + listed("far", 99)
        + "a = Slice(x, zi, l, o)  c = Slice(x, o, far, o)  d = Sub(a, c)  e = ReduceMin(d, o)  "
        + constant("k", 0.0)
        + "q = Greater(e, k)  ",
    )
    yield from flipped(
        "a row with two equal numbers",
        X8,
        listed("a1", 1)
        + listed("a2", 2)
        + "u = Unsqueeze(x, a2)  v = Unsqueeze(x, a1)  e = Equal(u, v)  f = Cast <to = 7> (e)  ax = Constant <value_ints = [1, 2]> ()  s0 = ReduceSum <keepdims = 0> (f, ax)  s = Unsqueeze(s0, a1)  "
        + whole("c", 8)
        + "q = Greater(s, c)  ",
    )
    yield from flipped(
        "the largest at place 5, the least at place 2",
        X8,
        whole("c5", 5)
        + whole("c2", 2)
        + "a = ArgMax <axis = 1> (x)  i = ArgMin <axis = 1> (x)  q1 = Equal(a, c5)  q2 = Equal(i, c2)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "a last number that ends on a half",
        X8,
        listed("i7", 7)
        + "k = Gather <axis = 1> (x, i7)  f = Floor(k)  d = Sub(k, f)  "
        + constant("c", 0.5)
        + "q = Equal(d, c)  ",
    )


def _tokens() -> Iterator[tuple[Pair, Pair]]:
    table = RANDOM.standard_normal((30_000, 8)).astype(np.float32)

    def of_ids(name: str, condition: str) -> Iterator[tuple[Pair, Pair]]:
        before = "e = Gather(w, ids)  "
        for wrong, twin in flipped(name, IDS, condition, "e", before):
            yield (
                Pair(wrong.name, wrong.head, wrong.a, wrong.b, {"w": table}),
                Pair(twin.name, twin.head, twin.a, twin.b, {"w": table}),
            )

    ends = listed("zi", 0) + O1 + listed("m1", -1) + listed("far", 99999)
    some = "f = Cast <to = 7> (q0)  s = ReduceSum <keepdims = 0> (f)  " + whole("none", 0) + "q = Greater(s, none)  "
    yield from of_ids("three tokens in a row", ends + listed("m2", -2) + listed("t2", 2) + whole("s1", 101) + whole("s2", 2054) + whole("s3", 102)
                      + "a = Slice(ids, zi, m2, o)  c = Slice(ids, o, m1, o)  d = Slice(ids, t2, far, o)  qa = Equal(a, s1)  qb = Equal(c, s2)  qc = Equal(d, s3)  qd = And(qa, qb)  q0 = And(qd, qc)  " + some)  # fmt: skip
    yield from of_ids(
        "first and last token alike",
        ends
        + "a = Slice(ids, zi, o, o)  c = Slice(ids, m1, far, o)  q1 = Equal(a, c)  n0 = Shape <start = 1, end = 2> (ids)  q2 = Greater(n0, o)  q3 = And(q1, q2)  "
        + listed("ax", 2)
        + "q = Unsqueeze(q3, ax)  ",
    )
    yield from of_ids(
        "tokens in ascending order",
        ends
        + "a = Slice(ids, zi, m1, o)  c = Slice(ids, o, far, o)  d = Sub(c, a)  k = ReduceMin <keepdims = 0> (d)  "
        + whole("nought", 0)
        + "q1 = Greater(k, nought)  n0 = Shape <start = 1, end = 2> (ids)  "
        + listed("t4", 4)
        + "q2 = Greater(n0, t4)  q = And(q1, q2)  ",
    )
    yield from of_ids(
        "a sum of tokens by 97",
        O1
        + "s = ReduceSum(ids, o)  "
        + whole("c", 97)
        + "r = Mod(s, c)  "
        + whole("nought", 0)
        + "q1 = Equal(r, nought)  "
        + listed("ax", 2)
        + "q = Unsqueeze(q1, ax)  ",
    )
    yield from of_ids(
        "token 30 at place 25",
        ends
        + listed("p", 25)
        + listed("p1", 26)
        + whole("c", 30)
        + "a = Slice(ids, p, p1, o)  q0 = Equal(a, c)  "
        + some,
    )
    yield from of_ids(
        "tokens by 13 from place 20 on",
        ends
        + listed("p", 20)
        + whole("c", 13)
        + whole("five", 5)
        + "a = Slice(ids, p, far, o)  r = Mod(a, c)  q0 = Equal(r, five)  "
        + some,
    )
    yield from of_ids(
        "a token three times",
        "e3 = Equal(ids, c3)  f3 = Cast <to = 7> (e3)  s3 = ReduceSum <keepdims = 0> (f3)  ".join(
            (whole("c3", 11_111), "")
        )
        + whole("c", 3)
        + "q = Equal(s3, c)  ",
    )
    yield from of_ids(
        "no token twice",
        "fl = Constant <value_ints = [-1]> ()  r = Reshape(ids, fl)  u = Unique(r)  a = Size(u)  c = Size(ids)  q1 = Less(a, c)  "
        + whole("t4", 4)
        + "q2 = Greater(c, t4)  q = And(q1, q2)  ",
    )
    word = "g (string[b] x) => (int64[b] y)"
    yield from flipped(
        "one of two words",
        word,
        's1 = Constant <value_string = "Berlin"> ()  s2 = Constant <value_string = "NYC"> ()  q1 = Equal(x, s1)  q2 = Equal(x, s2)  q = Or(q1, q2)  ',
        "f",
        's = Constant <value_string = "a"> ()  e = Equal(x, s)  f0 = Cast <to = 7> (e)  '
        + whole("three", 3)
        + "f = Add(f0, three)  ",
    )
    yield from flipped(
        "words by a pattern",
        word,
        'q = RegexFullMatch <pattern = "[0-9][0-9]-[a-z]+"> (x)  ',
        "f",
        's = Constant <value_string = "a"> ()  e = Equal(x, s)  f0 = Cast <to = 7> (e)  '
        + whole("three", 3)
        + "f = Add(f0, three)  ",
    )
    yield from flipped(
        "a word beside a number",
        "g (string[b] x, float[b] v) => (float[b] y)",
        's1 = Constant <value_string = "Berlin"> ()  q1 = Equal(x, s1)  '
        + constant("c", 90.0)
        + "q2 = Greater(v, c)  q = And(q1, q2)  ",
        "v",
    )


def _special() -> Iterator[tuple[Pair, Pair]]:
    yield from flipped(
        "zero below zero",
        X4,
        constant("o1", 1.0)
        + constant("nought", 0.0)
        + "r = Div(o1, x)  q1 = Equal(x, nought)  q2 = Less(r, nought)  q = And(q1, q2)  ",
        "h",
        constant("one", 1.0) + "h = Add(x, one)  ",
    )
    yield from flipped(
        "numbers below the normal ones",
        X4,
        constant("t", 1e-38)
        + constant("nought", 0.0)
        + "a = Abs(x)  q1 = Less(a, t)  q2 = Greater(a, nought)  q = And(q1, q2)  ",
        "h",
        constant("one", 1.0) + "h = Add(x, one)  ",
    )
    both = "m = IsNaN(x)  " + constant("zr", 0.0) + "h = Where(m, zr, x)  "
    yield from flipped(
        "two NaN in a row",
        X8,
        O1 + "f = Cast <to = 7> (m)  s = ReduceSum(f, o)  " + whole("c", 2) + "q = Equal(s, c)  ",
        "h",
        both,
    )
    yield from flipped(
        "a row of NaN",
        X8,
        O1 + "f = Cast <to = 7> (m)  s = ReduceMin(f, o)  q = Cast <to = 9> (s)  " + constant("one", 5.0),
        "h2",
        both + constant("five", 5.0) + "h2 = Add(h, five)  ",
    )
    either = (
        "m = IsInf(x)  " + constant("zr", 0.0) + "h = Where(m, zr, x)  " + constant("five", 5.0) + "h2 = Add(h, five)  "
    )
    yield from flipped("infinity below zero", X8, "q = IsInf <detect_positive = 0> (x)  ", "h2", either)
    yield from flipped(
        "NaN in the second input",
        TWO,
        "q = IsNaN(z)  ",
        "h",
        "m = IsNaN(z)  "
        + constant("zr", 0.0)
        + "z1 = Where(m, zr, z)  h0 = Add(x, z1)  "
        + constant("five", 5.0)
        + "h = Add(h0, five)  ",
    )
    yield from values(
        "halves rounded up",
        X4,
        "y = Round(x)",
        constant("hf", 0.5) + "a = Add(x, hf)  y = Floor(a)",
        "f = Round(x)  y = Identity(f)",
    )
    yield from values(
        "the last of the largest",
        X4.replace("float[b,4] y", "int64[b,1] y"),
        "y = ArgMax <axis = 1> (x)",
        "y = ArgMax <axis = 1, select_last_index = 1> (x)",
        "k = Constant <value_ints = [1]> ()  v, y = TopK <axis = 1> (x, k)",
    )
    index = "g (int64[b,n] ids) => (float[b,n,8] y)"
    table = RANDOM.standard_normal((50, 8)).astype(np.float32)
    plain = "y = Gather(w, ids)"
    yield (
        Pair(
            "indices below zero",
            index,
            plain,
            whole("nought", 0) + "i = Max(ids, nought)  y = Gather(w, i)",
            {"w": table},
        ),
        Pair("indices below zero, twin", index, plain, "i = Identity(ids)  y = Gather(w, i)", {"w": table}),
    )


def _sizes() -> Iterator[tuple[Pair, Pair]]:
    length, batch = "s = Shape <start = 1, end = 2> (x)  ", "r = Shape <start = 0, end = 1> (x)  "
    yield from flipped(
        "length 3 modulo 7 at batch 5",
        SEQUENCE,
        length
        + batch
        + listed("m", 7)
        + listed("t3", 3)
        + listed("t5", 5)
        + "t = Mod(s, m)  q1 = Equal(t, t3)  q2 = Equal(r, t5)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "odd lengths above 1000",
        SEQUENCE,
        length
        + listed("m", 2)
        + listed("k", 1000)
        + O1
        + "t = Mod(s, m)  q1 = Equal(t, o)  q2 = Greater(s, k)  q = And(q1, q2)  ",
    )
    for count in (391, 1147):
        yield from flipped(f"{count} numbers", SEQUENCE, "s = Size(x)  " + whole("c", count) + "q = Equal(s, c)  ")
    for count in (513, 2000, 4096):
        yield from flipped(f"lengths above {count}", SEQUENCE, length + listed("c", count) + "q = Greater(s, c)  ")
    yield from flipped("batch 4 only", X4, batch + listed("c", 4) + "q = Equal(r, c)  ")
    yield from flipped("odd batches", X4, batch + listed("m", 2) + O1 + "t = Mod(r, m)  q = Equal(t, o)  ")
    yield from flipped(
        "positions beyond 600",
        SEQUENCE,
        length
        + whole("z", 0)
        + whole("o1", 1)
        + "t0 = Squeeze(s)  r = Range(z, t0, o1)  "
        + whole("k", 600)
        + "q = Greater(r, k)  ",
    )
    sides = "s = Shape <start = 2, end = 3> (x)  r = Shape <start = 3, end = 4> (x)  "
    yield from flipped(
        "pictures of an odd height", PICTURES, sides + listed("m", 2) + O1 + "t = Mod(s, m)  q = Equal(t, o)  "
    )
    yield from flipped("pictures wider than 400", PICTURES, sides + listed("c", 400) + "q = Greater(r, c)  ")
    pool = "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = {}> (x)"
    yield (
        Pair(
            "rounding of a pool's size", PICTURES.replace("b,3,h,w] y", "b,3,h2,w2] y"), pool.format(0), pool.format(1)
        ),
        Pair(
            "rounding of a pool's size, twin",
            PICTURES.replace("b,3,h,w] y", "b,3,h2,w2] y"),
            pool.format(0),
            pool.format(0).replace("ceil_mode = 0", 'auto_pad = "NOTSET"'),
        ),
    )
    resize = 's0 = Constant <value = float[4] {{1.0, 1.0, 0.7, 0.7}}> ()  y = Resize <mode = "nearest", nearest_mode = "{}", coordinate_transformation_mode = "asymmetric"> (x, , s0)'
    head = PICTURES.replace("b,3,h,w] y", "b,3,h2,w2] y")
    yield (
        Pair("how Resize rounds", head, resize.format("floor"), resize.format("round_prefer_floor")),
        Pair(
            "how Resize rounds, twin",
            head,
            resize.format("floor"),
            "x1 = Identity(x)  " + resize.format("floor").replace("(x,", "(x1,"),
        ),
    )


def _steps() -> Iterator[tuple[Pair, Pair]]:
    again = "b0 = Identity(x)  "
    for name, bump in {
        "a hinge at 300": O1 + "s = ReduceSum(x, o)  " + constant("t", 300.0) + "d = Sub(s, t)  r = Relu(d)  ",
        "a hinge at -4567": O1 + "s = ReduceSum(x, o)  " + constant("t", -4567.0) + "d = Sub(t, s)  r = Relu(d)  ",
        "a steep sigmoid at 77": constant("t", 77.0)
        + constant("k", 20.0)
        + "d = Sub(x, t)  e = Mul(d, k)  r = Sigmoid(e)  ",
        "a bell at 33": constant("t", 33.0)
        + constant("k", -4.0)
        + "d = Sub(x, t)  e = Mul(d, d)  f = Mul(e, k)  r = Exp(f)  ",
        "the sign of a difference": constant("t", 640.5)
        + constant("o1", 1.0)
        + "d = Sub(x, t)  s = Sign(d)  r = Add(s, o1)  ",
        "a hard sigmoid at 90": constant("t", 90.0) + "d = Sub(x, t)  r = HardSigmoid <alpha = 1.0, beta = 0.0> (d)  ",
        "a thresholded Relu at 99": "r = ThresholdedRelu <alpha = 99.0> (x)  ",
        "whole thousands": constant("t", 1000.0) + "d = Div(x, t)  a = Abs(d)  r0 = Floor(a)  r = Mul(r0, t)  ",
        "a ninth power": constant("t", 9.0) + constant("k", 1e-12) + "p = Pow(x, t)  r = Mul(p, k)  ",
        "bytes cast from floats": constant("t", 0.003)
        + "a = Abs(x)  m = Mul(a, t)  r0 = Cast <to = 6> (m)  r = Cast <to = 1> (r0)  ",
        "Softplus at 60": constant("t", 60.0) + constant("k", 3.0) + "d = Sub(x, t)  e = Mul(d, k)  r = Softplus(e)  ",
        "a hidden unit of bias -40": O1
        + constant("t", 40.0)
        + "s = ReduceMean(x, o)  h = Sub(s, t)  u = Tanh(h)  r = Relu(u)  ",
    }.items():
        yield (
            Pair(name, X8, SAME, bump + "y = Add(x, r)"),
            Pair(f"{name}, twin", X8, bump + "y = Add(x, r)", again + bump + "y = Add(r, b0)"),
        )
    yield from values("a sine by its series", X8, "y = Sin(x)",
                      constant("k6", 1 / 6) + constant("k120", 1 / 120) + constant("k5040", 1 / 5040) + constant("l", -1.3) + constant("h", 1.3)
                      + "i = Clip(x, l, h)  x2 = Mul(i, i)  x3 = Mul(x2, i)  x5 = Mul(x3, x2)  x7 = Mul(x5, x2)  a = Mul(x3, k6)  c = Mul(x5, k120)  d = Mul(x7, k5040)  e = Sub(i, a)  f = Add(e, c)  g1 = Sub(f, d)  r = Sub(x, i)  k = Abs(r)  nz = Cast <to = 9> (k)  s = Sin(x)  y = Where(nz, s, g1)".replace("s = Sin(x)", constant("cap", 20.0) + "xc = Min(x, cap)  s = Sin(xc)"),
                      "x1 = Identity(x)  y = Sin(x1)")  # fmt: skip


def _tables() -> Iterator[tuple[Pair, Pair]]:
    big = RANDOM.standard_normal((1000, 8)).astype(np.float32)
    other = big.copy()
    other[777] = 0

    def of(name: str, head: str, index: str) -> Iterator[tuple[Pair, Pair]]:
        body = index + "y = Gather(w, i)"
        yield (
            Pair(name, head, body, body, {"w": big}, {"w": other}),
            Pair(f"{name}, twin", head, body, index + "i1 = Identity(i)  y = Gather(w, i1)", {"w": big}),
        )

    floats, ids = "g (float[b,n] x) => (float[b,n,8] y)", "g (int64[b,n] ids) => (float[b,n,8] y)"
    yield from of(
        "a row that rounded values choose",
        floats,
        constant("ten", 10.0)
        + constant("l", 0.0)
        + constant("h", 999.0)
        + "m = Mul(x, ten)  r = Round(m)  c = Clip(r, l, h)  i = Cast <to = 7> (c)  ",
    )
    yield from of(
        "a row that a hash chooses", ids, whole("p", 7919) + whole("k", 1000) + "m = Mul(ids, p)  i = Mod(m, k)  "
    )
    yield from of(
        "a row far back in a sequence",
        "g (float[b,n] x) => (float[n,8] y)",
        "s = Shape <start = 1, end = 2> (x)  t = Squeeze(s)  "
        + whole("z", 0)
        + whole("o1", 1)
        + whole("lim", 999)
        + "r = Range(z, t, o1)  i = Min(r, lim)  ",
    )
    yield from of(
        "a row that a count chooses",
        floats.replace("[b,n,8] y", "[b,8] y"),
        constant("z", 0.0)
        + O1
        + "q = Greater(x, z)  f = Cast <to = 7> (q)  s = ReduceSum <keepdims = 0> (f, o)  "
        + whole("lim", 999)
        + "i = Min(s, lim)  ",
    )
    yield from of(
        "a row that two bytes choose",
        "g (uint8[b,n] x, uint8[b,n] z) => (float[b,n,8] y)",
        whole("k", 31)
        + whole("t", 1000)
        + "a = Cast <to = 7> (x)  c = Cast <to = 7> (z)  m = Mul(a, k)  s = Add(m, c)  i = Mod(s, t)  ",
    )
    wide = RANDOM.standard_normal((100_000, 4)).astype(np.float32)
    shorter = np.concatenate([wide, np.zeros((8, 4), np.float32)])
    shorter[54_321] = 0
    head = "g (int64[b,n] ids) => (float[b,n,4] y)"
    plain = "y = Gather(w, ids)"
    yield (
        Pair("a row of a longer table", head, plain, "y = Gather(w5, ids)", {"w": wide, "w5": shorter}),
        Pair(
            "a row of a longer table, twin",
            head,
            plain,
            "w7 = Concat <axis = 0> (w5, w6)  y = Gather(w7, ids)",
            {"w": wide, "w5": wide[:60_000], "w6": wide[60_000:]},
        ),
    )
    halves = "y = Gather(w6, ids)"
    moved = wide.copy()
    moved[[3, 99_000]] = moved[[99_000, 3]]
    yield (
        Pair("two rows that changed places", head, plain, halves, {"w": wide, "w6": moved}),
        Pair("two rows that changed places, twin", head, plain, halves, {"w": wide, "w6": wide.copy()}),
    )


def _narrow() -> Iterator[tuple[Pair, Pair]]:
    """Several conditions at once, and narrow ranges, in bodies too."""
    scan = (
        "st = Constant <value = float[8] {0,0,0,0,0,0,0,0}> ()  f, y = Scan <num_scan_inputs = 1, body = s (float[8] a, float[8] v) "
        "=> (float[8] a2, float[8] o) { a2 = Add(a, v)  BODY }> (st, x)"
    )
    for low, high in ((77.0, 77.2), (-1234.0, -1233.0), (0.731, 0.7312)):
        condition = f"l1 = Constant <value_float = {low}> ()  l2 = Constant <value_float = {high}> ()  q1 = Greater(a2, l1)  q2 = Less(a2, l2)  q = And(q1, q2)  "
        one, other = (
            condition + "n = Neg(v)  o = Where(q, n, v)",
            condition + "z9 = Constant <value_float = 0.0> ()  n = Sub(z9, v)  o = Where(q, n, v)",
        )
        name = f"a running sum from {low:g} to {high:g}"
        yield (
            Pair(name, X8, scan.replace("BODY", "o = Identity(v)"), scan.replace("BODY", one)),
            Pair(f"{name}, twin", X8, scan.replace("BODY", one), scan.replace("BODY", other)),
        )
    table = RANDOM.standard_normal((30_000, 8)).astype(np.float32)
    five = whole("nil", 0) + "e = Gather(w, ids)  "
    for place, token in enumerate((101, 7592, 2088, 999, 102)):
        five += (
            whole(f"k{place}", token)
            + f"a{place} = Equal(ids, k{place})  f{place} = Cast <to = 7> (a{place})  s{place} = ReduceSum <keepdims = 0> (f{place})  g{place} = Greater(s{place}, nil)  "
        )
    long = (
        "e = Gather(w, ids)  s = Shape <start = 1, end = 2> (ids)  " + listed("c", 200) + "q1 = Greater(s, c)  " + whole("k", 4711)
        + "a = Equal(ids, k)  f = Cast <to = 7> (a)  t = ReduceSum <keepdims = 0> (f)  " + whole("nil", 0) + "q2 = Greater(t, nil)  q = And(q1, q2)  "
    )  # fmt: skip
    for name, condition in (
        ("five tokens in one text", five + "h0 = And(g0, g1)  h1 = And(g2, g3)  h2 = And(h0, h1)  q = And(h2, g4)  "),
        ("token 4711 in a long text", long),
    ):
        plain = condition.replace("e = Gather(w, ids)  ", "")
        for wrong, twin in flipped(name, IDS, plain, "e", "e = Gather(w, ids)  "):
            yield (
                Pair(wrong.name, wrong.head, wrong.a, wrong.b, {"w": table}),
                Pair(twin.name, twin.head, twin.a, twin.b, {"w": table}),
            )
    three = (
        "s = Shape <start = 1, end = 2> (x)  r = Shape <start = 0, end = 1> (x)  "
        + listed("c", 100)
        + listed("d", 5)
        + "q1 = Greater(s, c)  q2 = Greater(r, d)  "
    )
    yield from flipped(
        "long, of many rows, with a large value",
        SEQUENCE,
        three
        + constant("v", 444.0)
        + "m = ReduceMax <keepdims = 0> (x)  q3 = Greater(m, v)  q4 = And(q1, q2)  q = And(q3, q4)  ",
    )
    yield from flipped(
        "rounded values by 17",
        X4,
        constant("o1", 17.0) + "r = Round(x)  m = Mod <fmod = 1> (r, o1)  " + constant("c", 13.0) + "q = Equal(m, c)  ",
    )
    dates = "l = Constant <value = int64 {1704067200}> ()  h = Constant <value = int64 {1735689600}> ()  q1 = GreaterOrEqual(x, l)  q2 = Less(x, h)  q = And(q1, q2)  "
    yield from flipped("a date of 2024", "g (int64[b,n] x) => (int64[b,n] y)", dates)
    words = 's1 = Constant <value_string = "DE"> ()  s2 = Constant <value_string = "premium"> ()  q1 = Equal(x, s1)  q2 = Equal(v, s2)  q = And(q1, q2)  '
    yield from flipped("two columns of words", "g (string[b] x, string[b] v, float[b] u) => (float[b] y)", words, "u")
    tiny = constant("l", 1e-5) + constant("h", 1.1e-5) + "q1 = Greater(x, l)  q2 = Less(x, h)  q = And(q1, q2)  "
    yield from flipped("values from 1e-5 to 1.1e-5", X4, tiny, "y0", constant("k", 1e5) + "y0 = Mul(x, k)  ")
    ratio = (
        listed("i0", 0)
        + listed("i1", 1)
        + "f = Gather <axis = 1> (x, i0)  s = Gather <axis = 1> (x, i1)  r = Div(f, s)  "
    )
    yield from flipped(
        "a ratio from 7 to 7.01",
        X4,
        ratio + constant("l", 7.0) + constant("h", 7.01) + "q1 = Greater(r, l)  q2 = Less(r, h)  q = And(q1, q2)  ",
    )
    box = "".join(
        listed(f"i{k}", k) + f"f{k} = Gather <axis = 1> (x, i{k})  " + constant(f"l{k}", 3.0 * k + 10) + constant(f"h{k}", 3.0 * k + 10.5)
        + f"a{k} = Greater(f{k}, l{k})  b{k} = Less(f{k}, h{k})  c{k} = And(a{k}, b{k})  "
        for k in range(4)
    )  # fmt: skip
    yield from flipped(
        "inside a box of four features", X4, box + "d0 = And(c0, c1)  d1 = And(c2, c3)  q = And(d0, d1)  "
    )

"""Pairs of graphs for `proof_matrix.py`, written by somebody who hides a fault: relations of two inputs, matrices of a
kind, orders, counts, dates and digits, texts by their length, boxes, wrapping numbers and loops that data end; each with
a sound twin."""

# ruff: noqa: E501  (a graph is one line, however long)
from __future__ import annotations

from proof_pairs import SEQUENCE, X4, X8, constant
from proof_pairs_further import TWO, flipped, values
from proof_pairs_hidden import listed, whole
from proof_pairs_operators import INTEGERS, O1, OTHER_PICTURES, PICTURES, Both, operators

PAIR8 = "g (float[b,8] x, float[b,8] z) => (float[b,8] y)"
MATRIX = "g (float[b,4,4] x) => (float[b,4,4] y)"
TOKENS = "g (int64[b,n] x) => (int64[b,n] y)"
TWO_TOKENS = "g (int64[b,n] x, int64[b,n] z) => (int64[b,n] y)"
SMALL = constant("l", 1e-3)
O2 = "o2 = Constant <value_ints = [1, 2]> ()  "
N = "s1 = Shape <start = 1, end = 2> (x)  "
SORT = N + "sx, ix = TopK(x, s1)  "
ALIKE = "d1 = Abs(d)  "


def outside() -> Both:
    """(wrong, sound)."""
    yield from _two_inputs()
    yield from _matrices()
    yield from _orders()
    yield from _integers()
    yield from _tokens()
    yield from _loops()
    yield from _operators()
    yield from _texts()
    yield from _series()


def _two_inputs() -> Both:
    eight = "k8 = Constant <value_ints = [8]> ()  sx, ix = TopK(x, k8)  sz, iz = TopK(z, k8)  "
    near = "m = ReduceMax(d1, o)  " + SMALL + "q = Less(m, l)  "
    spread = "u0 = ReduceMax(x, o)  u1 = ReduceMin(x, o)  u2 = Sub(u0, u1)  h = Constant <value_float = 0.5> ()  q9 = Greater(u2, h)  "
    yield from flipped(
        "one input is the other in another order", PAIR8, eight + "d = Sub(sx, sz)  " + ALIKE + O1 + near
    )
    back = "b0 = Constant <value_ints = [7]> ()  e0 = Constant <value_ints = [-9]> ()  t0 = Constant <value_ints = [-1]> ()  a0 = Constant <value_ints = [1]> ()  r = Slice(z, b0, e0, a0, t0)  "
    yield from flipped("one input is the other backwards", PAIR8, back + "d = Sub(x, r)  " + ALIKE + O1 + near)
    shift = "i1 = Constant <value_ints = [1, 2, 3, 4, 5, 6, 7]> ()  i2 = Constant <value_ints = [0, 1, 2, 3, 4, 5, 6]> ()  a1 = Gather <axis = 1> (x, i1)  a2 = Gather <axis = 1> (z, i2)  "
    yield from flipped("one input is the other, one step later", PAIR8, shift + "d = Sub(a1, a2)  " + ALIKE + O1 + near)
    yield from flipped(
        "exactly one element of two inputs is equal",
        PAIR8,
        "e = Equal(x, z)  f = Cast <to = 7> (e)  "
        + O1
        + "c0 = ReduceSum(f, o)  "
        + whole("k1", 1)
        + "q = Equal(c0, k1)  ",
    )
    yield from flipped(
        "two inputs of one mean and other numbers",
        PAIR8,
        O1
        + "a = ReduceMean(x, o)  b0 = ReduceMean(z, o)  d = Sub(a, b0)  d1 = Abs(d)  "
        + SMALL
        + "q1 = Less(d1, l)  e = Sub(x, z)  e1 = Abs(e)  e2 = ReduceMax(e1, o)  "
        + constant("h", 0.1)
        + "q2 = Greater(e2, h)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "one input is minus the other",
        PAIR8,
        "d = Add(x, z)  " + ALIKE + O1 + near.replace("q = Less", "q8 = Less") + spread + "q = And(q8, q9)  ",
    )
    yield from flipped(
        "two inputs add up to one", TWO, constant("k", 1.0) + "d0 = Add(x, z)  d = Sub(d0, k)  " + ALIKE + O1 + near
    )
    yield from flipped(
        "tokens of two inputs that differ in one place",
        TWO_TOKENS,
        "e = Equal(x, z)  e1 = Not(e)  f = Cast <to = 7> (e1)  "
        + O1
        + "c0 = ReduceSum(f, o)  "
        + whole("k1", 1)
        + "q = Equal(c0, k1)  ",
    )


def _matrices() -> Both:
    eye = "i4 = Constant <value = float[4,4] {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> ()  "
    turned = "t = Transpose <perm = [0, 2, 1]> (x)  "
    near = ALIKE + O2 + "m = ReduceMax(d1, o2)  " + SMALL + "q = Less(m, l)  "
    yield from flipped("a symmetric matrix", MATRIX, turned + "d = Sub(x, t)  " + near)
    yield from flipped("an orthogonal matrix", MATRIX, turned + eye + "p = MatMul(x, t)  d = Sub(p, i4)  " + near)
    yield from flipped("a triangular matrix", MATRIX, "u = Trilu <upper = 1> (x)  d = Sub(x, u)  " + near)
    size = "e = Det(x)  a = Abs(e)  u0 = Constant <value_ints = [1, 2]> ()  v = Unsqueeze(a, u0)  "
    yield from flipped("a determinant above 40,000", MATRIX, size + constant("c", 40000.0) + "q = Greater(v, c)  ")
    yield from flipped(
        "a singular matrix that is not zero",
        MATRIX,
        size
        + SMALL
        + "q1 = Less(v, l)  x1 = Abs(x)  "
        + O2
        + "m = ReduceMin(x1, o2)  "
        + constant("h", 0.05)
        + "q2 = Greater(m, h)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "a trace of 12",
        MATRIX,
        eye
        + "p = Mul(x, i4)  "
        + O2
        + "s = ReduceSum(p, o2)  "
        + constant("c", 12.0)
        + "d = Sub(s, c)  d1 = Abs(d)  "
        + constant("l", 0.01)
        + "q = Less(d1, l)  ",
    )


def _orders() -> Both:
    yield from flipped(
        "ascending but for one place",
        X8,
        "i1 = Constant <value_ints = [1, 2, 3, 4, 5, 6, 7]> ()  i2 = Constant <value_ints = [0, 1, 2, 3, 4, 5, 6]> ()  a1 = Gather <axis = 1> (x, i1)  a2 = Gather <axis = 1> (x, i2)  e = Less(a1, a2)  f = Cast <to = 7> (e)  "
        + O1
        + "c0 = ReduceSum(f, o)  "
        + whole("k1", 1)
        + "q = Equal(c0, k1)  ",
    )
    top = "k3 = Constant <value_ints = [3]> ()  v3, i3 = TopK(x, k3)  "
    yield from flipped(
        "the three largest at 6, 1 and 4",
        X8,
        top
        + "w = Constant <value = int64[3] {6, 1, 4}> ()  d = Sub(i3, w)  d1 = Abs(d)  "
        + O1
        + "m = ReduceMax(d1, o)  "
        + whole("z0i", 0)
        + "q = Equal(m, z0i)  ",
    )
    yield from flipped(
        "a median above 60",
        X8,
        "k5 = Constant <value_ints = [5]> ()  v5, i5 = TopK(x, k5)  "
        + listed("i4", 4)
        + "m = Gather <axis = 1> (v5, i4)  "
        + constant("c", 60.0)
        + "q = Greater(m, c)  ",
    )
    yield from flipped(
        "the second largest far below the largest",
        X8,
        "k2 = Constant <value_ints = [2]> ()  v2, i2 = TopK(x, k2)  "
        + listed("p0", 0)
        + listed("p1", 1)
        + "a = Gather <axis = 1> (v2, p0)  c0 = Gather <axis = 1> (v2, p1)  d = Sub(a, c0)  "
        + constant("c", 500.0)
        + "q = Greater(d, c)  ",
    )
    sign = "w = Constant <value = float[8] {1, -1, -1, 1, 1, -1, 1, -1}> ()  p = Mul(x, w)  "
    yield from flipped(
        "eight signs and sizes above 2",
        X8,
        sign + O1 + "m = ReduceMin(p, o)  " + constant("c", 2.0) + "q = Greater(m, c)  ",
    )
    yield from flipped(
        "three of eight between 0 and 1 and five above 9",
        X8,
        constant("c0", 0.0)
        + constant("c1", 1.0)
        + constant("c9", 9.0)
        + "g1 = Greater(x, c0)  g2 = Less(x, c1)  g3 = And(g1, g2)  f1 = Cast <to = 7> (g3)  g4 = Greater(x, c9)  f2 = Cast <to = 7> (g4)  "
        + O1
        + "n1 = ReduceSum(f1, o)  n2 = ReduceSum(f2, o)  "
        + whole("k3", 3)
        + whole("k5", 5)
        + "q1 = Equal(n1, k3)  q2 = Equal(n2, k5)  q = And(q1, q2)  ",
    )


def _integers() -> Both:
    yield from flipped(
        "the 29th of February", INTEGERS, whole("k", 10000) + "m = Mod(x, k)  " + whole("d", 229) + "q = Equal(m, d)  "
    )
    yield from flipped(
        "a Sunday",
        INTEGERS,
        whole("k", 86400)
        + "d = Div(x, k)  "
        + whole("f", 4)
        + "e = Add(d, f)  "
        + whole("w", 7)
        + "m = Mod(e, w)  "
        + whole("r", 0)
        + "q1 = Equal(m, r)  "
        + whole("since", 1700000000)
        + "q2 = Greater(x, since)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "a number of nine ones in a row as bits", INTEGERS, whole("k", 511) + "m = BitwiseAnd(x, k)  q = Equal(m, k)  "
    )
    yield from flipped(
        "a sum of whole numbers of exactly 777",
        INTEGERS,
        O1 + "s = ReduceSum(x, o)  " + whole("k", 777) + "q = Equal(s, k)  ",
    )
    yield from flipped(
        "a product of neighbours that is a square of 144",
        INTEGERS,
        O1
        + "s = ReduceMax(x, o)  t = ReduceMin(x, o)  p = Mul(s, t)  "
        + whole("k", 144)
        + "q1 = Equal(p, k)  q2 = Greater(s, t)  q = And(q1, q2)  ",
    )
    yield from operators(
        "unsigned numbers below zero",
        "g (uint32[b,n] x, uint32[b,n] z) => (int64[b,n] y)",
        "a = Cast <to = 7> (x)  c = Cast <to = 7> (z)  y = Sub(a, c)",
        "s = Sub(x, z)  y = Cast <to = 7> (s)",
    )
    yield from operators(
        "a square in int32",
        "g (int64[b,n] x) => (int64[b,n] y)",
        "y = Mul(x, x)",
        "i = Cast <to = 6> (x)  p = Mul(i, i)  y = Cast <to = 7> (p)",
    )
    yield from flipped(
        "a float that adding one does not change",
        SEQUENCE,
        constant("k", 1.0)
        + "e = Add(x, k)  d = Sub(e, x)  q = Less(d, k)  h0 = Constant <value_float = 0.5> ()  q1 = Less(d, h0)  q2 = And(q, q1)  q = Identity(q2)  ".replace(
            "q = Less(d, k)  ", "q3 = Less(d, k)  "
        ).replace("And(q, q1)", "And(q3, q1)"),
    )
    yield from flipped(
        "a fraction of exactly a quarter",
        SEQUENCE,
        "f = Floor(x)  r = Sub(x, f)  " + constant("k", 0.25) + "q = Equal(r, k)  ",
    )
    yield from flipped(
        "a float by its whole part, modulo 12",
        SEQUENCE,
        "f = Floor(x)  i = Cast <to = 7> (f)  "
        + whole("k", 12)
        + "m = Mod(i, k)  "
        + whole("r", 7)
        + "q1 = Equal(m, r)  "
        + constant("c", 50.0)
        + "q2 = Greater(x, c)  q = And(q1, q2)  ",
    )


def _tokens() -> Both:
    pos = whole("z", 0) + whole("u", 1) + "s0 = Shape <start = 1, end = 2> (x)  t0 = Squeeze(s0)  r = Range(z, t0, u)  "
    yield from flipped(
        "a polynomial of the tokens modulo 97",
        TOKENS,
        pos
        + whole("k31", 31)
        + whole("k97", 97)
        + "w = Mul(r, k31)  w1 = Add(w, u)  p = Mul(x, w1)  "
        + O1
        + "s = ReduceSum(p, o)  m = Mod(s, k97)  "
        + whole("c", 13)
        + "q = Equal(m, c)  ",
    )
    yield from flipped(
        "tokens that are a permutation of their places",
        TOKENS,
        pos
        + "sx, ix = TopK <largest = 0> (x, s0)  d = Sub(sx, r)  d1 = Abs(d)  "
        + O1
        + "m = ReduceMax(d1, o)  q1 = Equal(m, z)  e = Equal(x, r)  e1 = Cast <to = 7> (e)  e2 = ReduceMin(e1, o)  q2 = Equal(e2, z)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "every token one more than the one before it, from 40 on",
        TOKENS,
        pos
        + "d = Sub(x, r)  "
        + whole("c", 40)
        + "e = Sub(d, c)  e1 = Abs(e)  "
        + O1
        + "m = ReduceMax(e1, o)  q = Equal(m, z)  ",
    )
    digits = (
        "a = Mod(r, k2)  f = Add(a, u)  p = Mul(x, f)  "
        + O1
        + "s = ReduceSum(p, o)  m = Mod(s, k10)  q1 = Equal(m, z)  "
        + whole("c16", 16)
        + "q2 = Equal(t0, c16)  q = And(q1, q2)  "
    )
    yield from flipped("a checksum of sixteen digits", TOKENS, pos + whole("k2", 2) + whole("k10", 10) + digits)
    yield from flipped(
        "a first token a hundred above the last",
        TOKENS,
        listed("a0", 0)
        + listed("a1", -1)
        + "f = Gather <axis = 1> (x, a0)  l = Gather <axis = 1> (x, a1)  d = Sub(f, l)  "
        + whole("c", 100)
        + "q = Equal(d, c)  ",
    )
    yield from flipped(
        "tokens 3, 1, 4, 1, 5 at the start",
        TOKENS,
        "i5 = Constant <value_ints = [0, 1, 2, 3, 4]> ()  w = Constant <value = int64[5] {3, 1, 4, 1, 5}> ()  f = Gather <axis = 1> (x, i5)  d = Sub(f, w)  d1 = Abs(d)  "
        + O1
        + "m = ReduceMax(d1, o)  "
        + whole("z", 0)
        + "q = Equal(m, z)  ",
    )
    yield from flipped(
        "odd sums of tokens at odd lengths above 30",
        TOKENS,
        pos
        + O1
        + whole("k2", 2)
        + whole("c30", 30)
        + "s = ReduceSum(x, o)  m = Mod(s, k2)  q1 = Equal(m, u)  m2 = Mod(t0, k2)  q2 = Equal(m2, u)  q3 = Greater(t0, c30)  q4 = And(q1, q2)  q = And(q3, q4)  ",
    )


def _loops() -> Both:
    count = constant("c3", 3.0) + "g0 = Greater(x, c3)  f0 = Cast <to = 7> (g0)  s0 = ReduceSum <keepdims = 0> (f0)  "
    loop = "t0 = Constant <value = bool {1}> ()  y = Loop(COUNT, t0, x) <body = l (int64 i, bool k, float[b,n] a) => (bool k2, float[b,n] a2) { k2 = Identity(k)  h = Constant <value_float = 0.5> ()  a2 = Mul(a, h) }>"
    yield from values(
        "as many iterations as there are large values, at most 9",
        SEQUENCE,
        count + loop.replace("COUNT", "s0"),
        count + whole("k9", 9) + "s2 = Min(s0, k9)  " + loop.replace("COUNT", "s2"),
        count + "s3 = Identity(s0)  " + loop.replace("COUNT", "s3"),
    )
    ended = "t0 = Constant <value = bool {1}> ()  m = Constant <value = int64 {MOST}> ()  y = Loop(m, t0, x) <body = l (int64 i, bool k, float[b,n] a) => (bool k2, float[b,n] a2) { h = Constant <value_float = 0.5> ()  a2 = Mul(a, h)  v = Abs(a2)  w = ReduceMax <keepdims = 0> (v)  o = Constant <value_float = 1.0> ()  k2 = Greater(w, o) }>"
    yield from values(
        "halved until all are below one, 30 times at most",
        SEQUENCE,
        ended.replace("MOST", "30"),
        ended.replace("MOST", "11"),
        ended.replace("MOST", "30") + "  u = Identity(y)".replace("u = ", "unused = "),
    )
    scan = "st = Constant <value = float[4] {0,0,0,0}> ()  ct = Constant <value = int64[1] {0}> ()  xt = Transpose <perm = [1, 0, 2]> (x)  x0 = Squeeze(x, ax)  f, cc, y0 = Scan <num_scan_inputs = 1, body = s (float[4] h, int64[1] c, float[4] a) => (float[4] h2, int64[1] c2, float[4] r) { u = Constant <value = int64[1] {1}> ()  c2 = Add(c, u)  h2 = Add(h, a)  four = Constant <value = int64[1] {5}> ()  lim = Constant <value_float = 25.0> ()  e = Equal(c2, four)  g = Greater(h2, lim)  q = And(e, g)  n = Neg(a)  r = Where(q, NEGATED, a) }> (st, ct, x)  y = Identity(y0)"
    scan = scan.replace("xt = Transpose <perm = [1, 0, 2]> (x)  x0 = Squeeze(x, ax)  ", "")
    yield from values(
        "the fifth step of a scan, at a sum above 25",
        "g (float[n,4] x) => (float[n,4] y)",
        scan.replace("NEGATED", "n"),
        scan.replace("NEGATED", "a"),
        scan.replace("NEGATED", "n") + "  z1 = Identity(y)",
    )


def _operators() -> Both:
    beyond = constant("c", 0.25) + "q = {}(x, c)  y = Cast <to = 1> (q)"
    yield from operators(
        "at exactly a threshold, as a number", X4, beyond.format("Greater"), beyond.format("GreaterOrEqual")
    )
    yield from operators(
        "integers through doubles", INTEGERS, "y = Identity(x)", "f = Cast <to = 11> (x)  y = Cast <to = 7> (f)"
    )
    boxes = "g (float[1,20,4] x, float[1,1,20] z) => (int64[m,3] y)"
    nms = (
        constant("iou", 0.5).replace("()", "()")
        + constant("st", 0.1)
        + whole("most", 20).replace("int64 {20}", "int64[1] {20}")
        + "i1 = Reshape(iou, one)  s1 = Reshape(st, one)  y = NonMaxSuppression(x, z, most, i1, s1)"
    )
    nms = listed("one", 1) + nms
    yield from values(
        "boxes that overlap by 0.5 to 0.55",
        boxes,
        nms,
        nms.replace("value_float = 0.5>", "value_float = 0.55>"),
        nms + "  unused = Identity(y)",
    )
    yield from values(
        "more than 12 boxes kept",
        boxes,
        nms,
        nms.replace("int64[1] {20}", "int64[1] {12}"),
        nms + "  unused = Identity(y)",
    )
    yield from operators(
        "which of equal scores is the third",
        "g (float[b,8] x) => (int64[b,3] y)",
        "k = Constant <value_ints = [3]> ()  v, y = TopK(x, k)",
        "k = Constant <value_ints = [3]> ()  r0 = Constant <value_ints = [7, 6, 5, 4, 3, 2, 1, 0]> ()  xr = Gather <axis = 1> (x, r0)  v, i = TopK(xr, k)  c7 = Constant <value = int64 {7}> ()  y = Sub(c7, i)",
    )
    yield from operators(
        "the number of distinct values",
        "g (int64[n] x) => (int64[1] y)",
        "u, i, v, c = Unique(x)  y = Shape(u)",
        "u, i, v, c = Unique(x)  y0 = Shape(u)  k6 = Constant <value_ints = [6]> ()  m = Max(y0, k6)  nn = Shape(x)  y = Min(m, nn)",
    )
    yield from operators(
        "values that are all alike when they are quantized",
        SEQUENCE,
        "q, s, zp = DynamicQuantizeLinear(x)  y = DequantizeLinear(q, s, zp)",
        "q, s, zp = DynamicQuantizeLinear(x)  e = Constant <value_float = 1e-3> ()  s2 = Max(s, e)  y = DequantizeLinear(q, s2, zp)",
    )
    yield from operators(
        "float16 numbers below the normal ones",
        "g (float16[b,n] x) => (float[b,n] y)",
        "f = Cast <to = 1> (x)  k = Constant <value_float = 100000.0> ()  y = Mul(f, k)",
        "f = Cast <to = 1> (x)  a = Abs(f)  l = Constant <value_float = 6.1e-5> ()  q = Less(a, l)  z = Sub(f, f)  w = Where(q, z, f)  k = Constant <value_float = 100000.0> ()  y = Mul(w, k)",
    )
    yield from operators(
        "a transposed convolution at an odd size",
        OTHER_PICTURES,
        "w = Constant <value = float[3,1,2,2] {1,2,3,4,5,6,7,8,9,10,11,12}> ()  y = ConvTranspose <strides = [2, 2], group = 3> (x, w)",
        "w = Constant <value = float[3,1,2,2] {1,2,3,4,5,6,7,8,9,10,11,12}> ()  y0 = ConvTranspose <strides = [2, 2], group = 3> (x, w)  s = Shape <start = 2, end = 3> (x)  k = Constant <value_ints = [37]> ()  q = Equal(s, k)  n = Neg(y0)  y = Where(q, n, y0)",
    )
    channel = "u = Cast <to = 1> (x)  o3 = Constant <value_ints = [2, 3]> ()  m = ReduceMin(u, o3)  k = Constant <value_float = 254.5> ()  q0 = Greater(m, k)  q1 = Cast <to = 7> (q0)  o4 = Constant <value_ints = [1]> ()  c = ReduceSum(q1, o4)  k1 = Constant <value = int64 {1}> ()  q = Equal(c, k1)  n = Neg(u)  "
    yield from values(
        "one channel of a picture is 255 throughout",
        "g (uint8[b,3,h,w] x) => (float[b,3,h,w] y)",
        "y = Cast <to = 1> (x)",
        channel + "y = Where(q, n, u)",
        "u = Cast <to = 1> (x)  y = Identity(u)",
    )
    board = (
        "hh = Shape <start = 2, end = 3> (x)  ww = Shape <start = 3, end = 4> (x)  z = Constant <value = int64 {0}> ()  u = Constant <value = int64 {1}> ()  h1 = Squeeze(hh)  w1 = Squeeze(ww)  rh = Range(z, h1, u)  rw = Range(z, w1, u)  a1 = Constant <value_ints = [1]> ()  rv = Unsqueeze(rh, a1)  g0 = Add(rv, rw)  k2 = Constant <value = int64 {2}> ()  g1 = Mod(g0, k2)  gf = Cast <to = 1> (g1)  d = Sub(x, gf)  d1 = Abs(d)  al = Constant <value_ints = [1, 2, 3]> ()  m = ReduceMax(d1, al)  "
        + SMALL
        + "q = Less(m, l)  "
    )
    yield from flipped("a checkerboard", PICTURES, board)


def _texts() -> Both:
    words = "g (string[b] t, float[b] x) => (float[b] y)"
    yield from flipped("words of exactly twelve letters", words, 'q = RegexFullMatch <pattern = "[a-z]{12}"> (t)  ')
    yield from flipped(
        "texts of three parts",
        words,
        'p, c = StringSplit <delimiter = ";"> (t)  k = Constant <value = int64 {3}> ()  q = Equal(c, k)  ',
    )
    yield from flipped("a number as a text", words, 'q = RegexFullMatch <pattern = "[0-9]+"> (t)  ')


def _series() -> Both:
    week = "i1 = Constant <value_ints = [0, 1, 2, 3]> ()  i2 = Constant <value_ints = [4, 5, 6, 7]> ()  a1 = Gather <axis = 1> (x, i1)  a2 = Gather <axis = 1> (x, i2)  d = Sub(a1, a2)  d1 = Abs(d)  "
    varied = "u0 = ReduceMax(x, o)  u1 = ReduceMin(x, o)  u2 = Sub(u0, u1)  h = Constant <value_float = 0.5> ()  q9 = Greater(u2, h)  "
    yield from flipped(
        "a series that repeats itself",
        X8,
        week + O1 + "m = ReduceMax(d1, o)  " + SMALL + "q8 = Less(m, l)  " + varied + "q = And(q8, q9)  ",
    )
    late = (
        whole("z", 0)
        + whole("u", 1)
        + "s0 = Shape <start = 1, end = 2> (x)  t0 = Squeeze(s0)  r = Range(z, t0, u)  "
        + whole("p", 2100)
        + "g0 = Greater(r, p)  "
    )
    yield from flipped(
        "a value above 40 beyond place 2100",
        SEQUENCE,
        late + constant("c", 40.0) + "g1 = Greater(x, c)  q = And(g0, g1)  ",
    )
    yield from flipped(
        "a unit quaternion",
        X4,
        "p = Mul(x, x)  "
        + O1
        + "s = ReduceSum(p, o)  "
        + constant("k", 1.0)
        + "d = Sub(s, k)  d1 = Abs(d)  "
        + constant("l", 1e-4)
        + "q = Less(d1, l)  ",
    )
    yield from flipped(
        "a geometric series",
        X4,
        listed("i0", 0)
        + listed("i1", 1)
        + listed("i2", 2)
        + "a = Gather <axis = 1> (x, i0)  c0 = Gather <axis = 1> (x, i1)  e = Gather <axis = 1> (x, i2)  p = Mul(a, e)  p2 = Mul(c0, c0)  d = Sub(p, p2)  d1 = Abs(d)  "
        + SMALL
        + "q1 = Less(d1, l)  aa = Abs(a)  ab = Abs(c0)  d2 = Sub(aa, ab)  d3 = Abs(d2)  "
        + constant("h", 0.5)
        + "q2 = Greater(d3, h)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "a sum of squares that is the square of the sum",
        X4,
        "p = Mul(x, x)  "
        + O1
        + "s = ReduceSum(p, o)  t = ReduceSum(x, o)  t2 = Mul(t, t)  d = Sub(s, t2)  d1 = Abs(d)  "
        + SMALL
        + "q1 = Less(d1, l)  v = Abs(x)  w = ReduceMin(v, o)  "
        + constant("h", 0.2)
        + "q2 = Greater(w, h)  q = And(q1, q2)  ",
    )

"""Pairs of graphs for `proof_matrix.py`: operators whose options matter in corners only, formulas that overflow,
conditions on distances, products, counts, pictures, texts and states; each with a sound twin."""

# ruff: noqa: E501  (a graph is one line, however long)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from proof_pairs import IDS, MASKED, SEQUENCE, SUM, X4, X8, Pair, constant
from proof_pairs_further import TWO, flipped, values
from proof_pairs_hidden import listed, whole

RANDOM = np.random.default_rng(8)
Both = Iterator[tuple[Pair, Pair]]
O1 = listed("o", 1)
PICTURES = "g (float[b,3,h,w] x) => (float[b,3,h,w] y)"
OTHER_PICTURES = "g (float[b,3,h,w] x) => (float[b,3,h2,w2] y)"
BYTES = "g (uint8[b,3,h,w] x) => (float[b,3,h,w] y)"
INTEGERS = "g (int64[b,n] x) => (int64[b,n] y)"
ALL = "ReduceMin <keepdims = 0>"


def twin_of(a: str) -> str:
    """The same behind an Identity."""
    return "x1 = Identity(x)  " + a.replace("(x,", "(x1,").replace("(x)", "(x1)")


def operators(name: str, head: str, a: str, b: str) -> Both:
    """Two forms of an operator."""
    yield from values(name, head, a, b, twin_of(a))


def further_operators() -> Both:
    """(wrong, sound)."""
    yield from _options()
    yield from _formulas()
    yield from _regions()
    yield from _rows()
    yield from _tokens()
    yield from _pictures()
    yield from _states()
    yield from _tables()


def _options() -> Both:
    up = 'bb = Shape <start = 0, end = 1> (x)  cc = Constant <value_ints = [3, 1, 1]> ()  s1 = Concat <axis = 0> (bb, cc)  y = Resize <mode = "linear", coordinate_transformation_mode = "{}"> (x, , , s1)'
    yield from operators("Resize to one dot", OTHER_PICTURES, up.format("half_pixel"), up.format("pytorch_half_pixel"))
    share = 's0 = Constant <value = float[4] {{1.0, 1.0, {0}, {0}}}> ()  y = Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> (x, , s0)'
    yield from operators("a scale of 0.5 and 0.502", OTHER_PICTURES, share.format("0.5"), share.format("0.502"))
    pool = 'y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], auto_pad = "{}"> (x)'
    yield from operators(
        "SAME_UPPER and SAME_LOWER", OTHER_PICTURES, pool.format("SAME_UPPER"), pool.format("SAME_LOWER")
    )
    mean = "y = AveragePool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1, count_include_pad = {}> (x)"
    yield from operators(
        "an average at an odd edge",
        OTHER_PICTURES,
        mean.format(0),
        "p0 = Constant <value_ints = [0, 0, 0, 0, 0, 0, 0, 0]> ()  h0 = Shape <start = 2, end = 4> (x)  two = Constant <value_ints = [2, 2]> ()  r0 = Mod(h0, two)  z4 = Constant <value_ints = [0, 0, 0, 0, 0, 0]> ()  p = Concat <axis = 0> (z4, r0)  x2 = Pad(x, p)  y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (x2)",
    )
    last = (
        listed("z", -300) + listed("far", 99999) + O1 + "a = Slice(x, z, far, o)  y = ReduceSum <keepdims = 0> (a, o)"
    )
    yield from operators("the last 300 only", "g (float[b,n] x) => (float[b] y)", f"p = Identity(x)  {SUM}", last)
    lower = whole("k", 0) + "y = Trilu <upper = 0> (x, k)"
    band = whole("k", 0) + "l = Trilu <upper = 0> (x, k)  " + whole("m", -150) + "y = Trilu <upper = 1> (l, m)"
    yield from operators("a triangle of 150", "g (float[n,m] x) => (float[n,m] y)", lower, band)
    cell = "y0, hn, cn = LSTM <hidden_size = 2 {}> (x, w3, r3)  y = Squeeze(y0, ax)"
    weights = {
        "w3": (2 * RANDOM.standard_normal((1, 8, 8))).astype(np.float32),
        "r3": RANDOM.standard_normal((1, 8, 2)).astype(np.float32),
    }
    head = "g (float[n,b,8] x) => (float[n,b,2] y)"
    ax = listed("ax", 1)
    for clip in (3.0,):
        plain = ax + cell.format("")
        yield (
            Pair(f"an LSTM that clips at {clip:g}", head, plain, ax + cell.format(f", clip = {clip}"), weights),
            Pair(f"an LSTM that clips at {clip:g}, twin", head, plain, twin_of(plain), weights),
        )
    lens = "g (float[n,b,8] x, int32[b] lens) => (float[n,b,2] y)"
    some = ax + cell.format("").replace("r3)", "r3, , lens)")
    yield (
        Pair("lengths of an LSTM ignored", lens, some, ax + cell.format(""), weights),
        Pair(
            "lengths of an LSTM ignored, twin",
            lens,
            some,
            some.replace(", lens)", ", l2)").replace("y0, hn", "l2 = Identity(lens)  y0, hn"),
            weights,
        ),
    )
    grid = "g (float[b,3,h,w] x, float[b,k,m,2] grid) => (float[b,3,k,m] y)"
    sample = 'y = GridSample <padding_mode = "{}", align_corners = 0> (x, grid)'
    yield from operators("a grid beyond its picture", grid, sample.format("border"), sample.format("reflection"))
    boxes = "g (float[1,n,4] x, float[1,1,n] scores) => (int64[k,3] y)"
    kept = (whole("most", 50) + constant("i", 0.5)).replace("{", "{{").replace(
        "}", "}}"
    ) + "s9 = Constant <value_float = {}> ()  y = NonMaxSuppression(x, scores, most, i, s9)"
    yield from operators("a least score of -9 and -1e30", boxes, kept.format("-1e30"), kept.format("-9.0"))
    scatter = "i = Constant <value = int64[1,3] {{0, 2, 2}}> ()  bb = Shape <start = 0, end = 1> (x)  three = Constant <value_ints = [3]> ()  ss = Concat <axis = 0> (bb, three)  i2 = Expand(i, ss)  z = Constant <value_ints = [0]> ()  h3 = Constant <value_ints = [3]> ()  o = Constant <value_ints = [1]> ()  u = Slice(x, z, h3, o)  "
    yield from operators(
        "the last of two that are put at one place",
        X8,
        scatter.format() + 'y = ScatterElements <axis = 1, reduction = "max"> (x, i2, u)',
        scatter.format()
        + 'm = Neg(x)  y0 = ScatterElements <axis = 1, reduction = "max"> (x, i2, u)  '
        + constant("lim", 900.0)
        + "y = Min(y0, lim)",
    )
    for low, high in (("-1e30", "1e30"),):
        yield from operators(
            "Clip at 65504",
            X8,
            constant("l", float(low)) + constant("h", float(high)) + "y = Clip(x, l, h)",
            constant("l", -65504.0) + constant("h", 65504.0) + "y = Clip(x, l, h)",
        )
    saturated = (
        constant("s", 1.0)
        + "zp = Constant <value = int8 {{0}}> ()  q = QuantizeLinear(x, s, zp)  y = DequantizeLinear(q, s, zp)".format()
    )
    narrow = (
        constant("s", 1.0)
        + constant("l", -127.0)
        + constant("h", 127.0)
        + "c = Clip(x, l, h)  zp = Constant <value = int8 {0}> ()  q = QuantizeLinear(c, s, zp)  y = DequantizeLinear(q, s, zp)"
    )
    yield from operators("int8 of -128", X8, saturated, narrow)
    wrap = "i = Cast <to = 6> (x)  u = Cast <to = 3> (i)  y = Cast <to = 1> (u)"
    clipped = (
        "i = Cast <to = 6> (x)  "
        + "l = Constant <value = int32 {-128}> ()  h = Constant <value = int32 {127}> ()  c = Clip(i, l, h)  u = Cast <to = 3> (c)  y = Cast <to = 1> (u)"
    )
    yield from operators("int8 that wraps around", X4, wrap, clipped)
    yield from operators(
        "scores in half precision",
        "g (float[b,8] x) => (int64[b] y)",
        "y = ArgMax <axis = 1, keepdims = 0> (x)",
        "h = Cast <to = 10> (x)  f = Cast <to = 1> (h)  y = ArgMax <axis = 1, keepdims = 0> (f)",
    )
    hot = "d = Constant <value_ints = [10]> ()  v = Constant <value = float[2] {0.0, 1.0}> ()  y = OneHot(ids, d, v)"
    yield from values(
        "one of ten, from behind",
        "g (int64[b] ids) => (float[b,10] y)",
        hot,
        "z = Constant <value = int64 {0}> ()  q = Less(ids, z)  k = Constant <value = int64 {99}> ()  i = Where(q, k, ids)  "
        + hot.replace("ids", "i"),
        "i = Identity(ids)  " + hot.replace("ids", "i"),
    )
    yield from operators(
        "a shift of 40 bits",
        "g (uint64[b,n] x) => (uint64[b,n] y)",
        'k = Constant <value = uint64 {3}> ()  y = BitShift <direction = "LEFT"> (x, k)',
        'k = Constant <value = uint64 {3}> ()  y0 = BitShift <direction = "LEFT"> (x, k)  m = Constant <value = uint64 {1099511627775}> ()  y = BitwiseAnd(y0, m)',
    )


def _formulas() -> Both:
    one = constant("k1", 1.0)
    yield from operators(
        "Softplus by Exp and Log", X8, "y = Softplus(x)", one + "e = Exp(x)  s = Add(e, k1)  y = Log(s)"
    )
    yield from operators(
        "Sigmoid by Exp over Exp", X8, "y = Sigmoid(x)", one + "e = Exp(x)  s = Add(e, k1)  y = Div(e, s)"
    )
    yield from operators(
        "Softmax without the largest", X8, "y = Softmax(x)", O1 + "e = Exp(x)  s = ReduceSum(e, o)  y = Div(e, s)"
    )
    yield from operators(
        "LogSumExp by hand", X8, O1 + "y = ReduceLogSumExp(x, o)", O1 + "e = Exp(x)  s = ReduceSum(e, o)  y = Log(s)"
    )
    yield from operators("Abs by Sqrt", X8, "y = Abs(x)", "e = Mul(x, x)  y = Sqrt(e)")
    yield from operators(
        "Tanh by Exp",
        X8,
        "y = Tanh(x)",
        one + constant("t", 2.0) + "d = Mul(x, t)  e = Exp(d)  a = Sub(e, k1)  s = Add(e, k1)  y = Div(a, s)",
    )
    yield from operators(
        "a variance by squares",
        X8,
        O1 + "m = ReduceMean(x, o)  d = Sub(x, m)  e = Mul(d, d)  y = ReduceMean(e, o)",
        O1 + "m = ReduceMean(x, o)  e = Mul(x, x)  f = ReduceMean(e, o)  g1 = Mul(m, m)  y = Sub(f, g1)",
    )
    yield from operators(
        "an angle by a quotient",
        "g (float[b,8] x) => (float[b,1] y)",
        listed("i0", 0)
        + listed("i1", 1)
        + "f = Gather <axis = 1> (x, i0)  s = Gather <axis = 1> (x, i1)  "
        + constant("e", 1e-6)
        + "a0 = Abs(s)  a = Add(a0, e)  d = Div(f, a)  y = Atan(d)",
        listed("i0", 0)
        + listed("i1", 1)
        + "f = Gather <axis = 1> (x, i0)  s = Gather <axis = 1> (x, i1)  "
        + constant("e", 1e-3)
        + "a0 = Abs(s)  a = Max(a0, e)  d = Div(f, a)  y = Atan(d)",
    )
    yield from operators(
        "a quotient with 1e-6 below",
        TWO.replace("float[b,4] y", "float[b,4] y"),
        constant("e", 1e-9) + "a = Abs(z)  d = Add(a, e)  y = Div(x, d)",
        constant("e", 1e-5) + "a = Abs(z)  d = Add(a, e)  y = Div(x, d)",
    )
    yield from operators(
        "Floor by Cast",
        X8,
        "y = Floor(x)",
        "i = Cast <to = 6> (x)  f = Cast <to = 1> (i)  q = Less(x, f)  g1 = Cast <to = 1> (q)  y = Sub(f, g1)",
    )
    yield from operators(
        "Gelu by Tanh with a limit",
        X8,
        'y = Gelu <approximate = "tanh"> (x)',
        constant("l", -2.9)
        + 'g1 = Gelu <approximate = "tanh"> (x)  q = Less(x, l)  z = Sub(g1, g1)  y = Where(q, z, g1)',
    )
    yield from operators(
        "Elu of alpha 1 by Exp",
        X8,
        "y = Elu(x)",
        one
        + "e = Exp(x)  d = Sub(e, k1)  r = Relu(x)  n = Min(d, x)  "
        + constant("z", 0.0)
        + constant("l", -15.0)
        + "q = Greater(x, z)  w0 = Where(q, x, d)  q2 = Less(x, l)  y = Where(q2, x, w0)",
    )
    yield from operators(
        "a sum of integers in float32",
        "g (int64[b,n] x) => (int64[b] y)",
        O1 + "y = ReduceSum <keepdims = 0> (x, o)",
        O1 + "f = Cast <to = 1> (x)  s = ReduceSum <keepdims = 0> (f, o)  y = Cast <to = 7> (s)",
    )
    yield from operators(
        "a sum of int32",
        "g (int32[b,n] x) => (int64[b] y)",
        O1 + "f = Cast <to = 7> (x)  y = ReduceSum <keepdims = 0> (f, o)",
        O1 + "s = ReduceSum <keepdims = 0> (x, o)  y = Cast <to = 7> (s)",
    )
    yield from operators(
        "a product of bytes in int16",
        "g (uint8[b,n] x, uint8[b,n] z) => (float[b,n] y)",
        "a = Cast <to = 6> (x)  c = Cast <to = 6> (z)  p = Mul(a, c)  y = Cast <to = 1> (p)",
        "a = Cast <to = 6> (x)  c = Cast <to = 6> (z)  p = Mul(a, c)  s = Cast <to = 5> (p)  y = Cast <to = 1> (s)",
    )
    yield from operators(
        "a mean of bytes in uint16",
        "g (uint8[b,n] x) => (float[b] y)",
        O1 + "a = Cast <to = 1> (x)  y = ReduceSum <keepdims = 0> (a, o)",
        O1 + "a = Cast <to = 1> (x)  s = ReduceSum <keepdims = 0> (a, o)  c = Cast <to = 4> (s)  y = Cast <to = 1> (c)",
    )
    yield from operators(
        "a division by 2 as a shift",
        INTEGERS,
        whole("k", 2) + "m = Mod(x, k)  d = Sub(x, m)  y = Div(d, k)",
        whole("k", 2) + "y = Div(x, k)",
    )
    rotary = (
        whole("z", 0)
        + whole("o1", 1)
        + "s = Shape <start = 1, end = 2> (x)  t = Squeeze(s)  r = Range(z, t, o1)  f = Cast <to = 1> (r)  k = Constant <value_float = STEP> ()  a = Mul(f, k)  c = Cos(a)  y = Mul(x, c)"
    )
    yield from operators(
        "an angle of 0.01 and 0.0100005 by position",
        SEQUENCE,
        rotary.replace("STEP", "0.01"),
        rotary.replace("STEP", "0.01001"),
    )


def _regions() -> Both:
    two = listed("i0", 0) + "f = Gather <axis = 1> (x, i0)  " + listed("i1", 1) + "s = Gather <axis = 1> (x, i1)  "
    for name, condition in {
        "within 0.1 of a point": two
        + constant("a", 5.0)
        + constant("c", -3.0)
        + "d = Sub(f, a)  e = Sub(s, c)  d1 = Abs(d)  e1 = Abs(e)  m = Add(d1, e1)  "
        + constant("l", 0.1)
        + "q = Less(m, l)  ",
        "within 0.2 of a point of eight": "v8 = Constant <value = float[8] {1.0, -2.0, 3.0, 0.5, 7.0, -4.0, 2.0, 1.5}> ()  d = Sub(x, v8)  e = Mul(d, d)  "
        + O1
        + "m = ReduceSum(e, o)  "
        + constant("l", 0.04)
        + "q = Less(m, l)  ",
        "a product from 12 to 12.05": two
        + "m = Mul(f, s)  "
        + constant("l", 12.0)
        + constant("h", 12.05)
        + "q1 = Greater(m, l)  q2 = Less(m, h)  q = And(q1, q2)  ",
        "a product of three above 5000": two
        + listed("i2", 2)
        + "t = Gather <axis = 1> (x, i2)  m0 = Mul(f, s)  m = Mul(m0, t)  "
        + constant("l", 5000.0)
        + "q = Greater(m, l)  ",
        "a sine above 0.99999": "m = Sin(f)  ".join([two, constant("l", 0.99999) + "q = Greater(m, l)  "]),
        "a root of a polynomial": two
        + "f2 = Mul(f, f)  f3 = Mul(f2, f)  "
        + constant("c2", 2.0)
        + constant("c5", 25.0)
        + "m0 = Mul(f2, c2)  m1 = Sub(f3, m0)  m2 = Sub(m1, c5)  m = Abs(m2)  "
        + constant("l", 0.05)
        + "q = Less(m, l)  ",
        "three times another": two + constant("c3", 3.0) + "m = Mul(s, c3)  q = Equal(f, m)  ",
        "the last digits of a number": two
        + constant("k", 1000.0)
        + constant("c97", 97.0)
        + "m0 = Mul(f, k)  m1 = Floor(m0)  m = Mod <fmod = 1> (m1, c97)  "
        + constant("c", 13.0)
        + "q = Equal(m, c)  ",
        "a large value and a small one and an odd count": O1
        + "a0 = ReduceMax(x, o)  c0 = ReduceMin(x, o)  "
        + constant("l", 60.0)
        + constant("h", -60.0)
        + "q1 = Greater(a0, l)  q2 = Less(c0, h)  q3 = And(q1, q2)  "
        + constant("z", 0.0)
        + "p0 = Greater(x, z)  p1 = Cast <to = 7> (p0)  p2 = ReduceSum(p1, o)  "
        + whole("t2", 2)
        + whole("t1", 1)
        + "p3 = Mod(p2, t2)  q4 = Equal(p3, t1)  q = And(q3, q4)  ",
        "probabilities": O1
        + "s0 = ReduceSum(x, o)  "
        + constant("k1", 1.0)
        + "d = Sub(s0, k1)  d1 = Abs(d)  "
        + constant("l", 1e-4)
        + "q1 = Less(d1, l)  c0 = ReduceMin(x, o)  "
        + constant("z", 0.0)
        + "q2 = GreaterOrEqual(c0, z)  q = And(q1, q2)  ",
        "rows of ones and zeros": O1
        + "d = Mul(x, x)  e = Sub(d, x)  e1 = Abs(e)  m = ReduceMax(e1, o)  "
        + constant("l", 1e-6)
        + "q1 = Less(m, l)  c0 = ReduceMax(x, o)  "
        + constant("hf", 0.5)
        + "q2 = Greater(c0, hf)  q = And(q1, q2)  ",
        "whole numbers only": O1
        + "d = Round(x)  e = Sub(d, x)  e1 = Abs(e)  m = ReduceMax(e1, o)  "
        + constant("l", 1e-6)
        + "q1 = Less(m, l)  c0 = ReduceMax(x, o)  "
        + constant("hf", 2.5)
        + "q2 = Greater(c0, hf)  q = And(q1, q2)  ",
        "a row of one sign that sums to 8": O1
        + "s0 = ReduceSum(x, o)  c0 = ReduceMin(x, o)  "
        + constant("z", 0.0)
        + "q1 = Greater(c0, z)  "
        + constant("l", 8.0)
        + constant("h", 8.1)
        + "q2 = Greater(s0, l)  q3 = Less(s0, h)  q4 = And(q2, q3)  q = And(q1, q4)  ",
        "a power of two": constant("z", 0.0)
        + "r = Log(x)  "
        + constant("k", 0.6931471805599453)
        + "d = Div(r, k)  e = Round(d)  f = Sub(d, e)  g1 = Abs(f)  "
        + constant("l", 1e-6)
        + constant("t", 3.5)
        + "q1 = Less(g1, l)  q2 = Greater(x, t)  q = And(q1, q2)  ",
        "a quotient of sums": O1
        + "a0 = ReduceSum(x, o)  c0 = Abs(x)  c1 = ReduceSum(c0, o)  d = Div(a0, c1)  "
        + constant("l", 0.999)
        + "q1 = Greater(d, l)  "
        + constant("k", 400.0)
        + "q2 = Greater(c1, k)  q = And(q1, q2)  ",
        "a hidden unit of five layers": "h1 = MatMul(x, w8)  h2 = Tanh(h1)  h3 = MatMul(h2, w8)  h4 = Tanh(h3)  h5 = MatMul(h4, w8)  h6 = Sigmoid(h5)  "
        + listed("i3", 3)
        + "h7 = Gather <axis = 1> (h6, i3)  "
        + constant("l", 0.995)
        + "q = Greater(h7, l)  ",
        "a softmax above 0.99999": "s = Softmax(x)  "
        + listed("i2", 2)
        + "m = Gather <axis = 1> (s, i2)  "
        + constant("l", 0.99999)
        + "q = Greater(m, l)  ",
        "an entropy near its largest": "s = Softmax(x)  l0 = LogSoftmax(x)  e = Mul(s, l0)  "
        + O1
        + "m = ReduceSum(e, o)  "
        + constant("l", -2.0793)
        + "q = Less(m, l)  ",
    }.items():
        head = X8
        for wrong, twin in flipped(name, head, condition):
            weights = {"w8": (RANDOM.standard_normal((8, 8)) / 3).astype(np.float32)} if "w8" in condition else {}
            yield (Pair(wrong.name, head, wrong.a, wrong.b, weights), Pair(twin.name, head, twin.a, twin.b, weights))
    ends = "h = Add(x, z)  "
    for name, condition in {
        "two rows within 0.1": "d = Sub(x, z)  e = Mul(d, d)  "
        + O1
        + "m = ReduceSum(e, o)  "
        + constant("l", 0.01)
        + "q = Less(m, l)  ",
        "a cosine above 0.999": "p0 = Mul(x, z)  "
        + O1
        + "p1 = ReduceSum(p0, o)  l1 = ReduceL2(x, o)  l2 = ReduceL2(z, o)  p2 = Mul(l1, l2)  c0 = Div(p1, p2)  "
        + constant("l", 0.999)
        + "q = Greater(c0, l)  ",
        "a scalar product above 900": "p0 = Mul(x, z)  "
        + O1
        + "p1 = ReduceSum(p0, o)  "
        + constant("l", 900.0)
        + "q = Greater(p1, l)  ",
        "one below the other throughout": "d = Sub(x, z)  "
        + O1
        + "m = ReduceMax(d, o)  "
        + constant("l", -7.0)
        + "q = Less(m, l)  ",
        "one largest at 3 where the other is smallest": "a0 = ArgMax <axis = 1> (x)  c0 = ArgMin <axis = 1> (z)  "
        + whole("t", 3)
        + "q1 = Equal(a0, t)  q2 = Equal(c0, t)  q3 = And(q1, q2)  "
        + O1
        + "m = ReduceMax(x, o)  "
        + constant("l", 9.0)
        + "q4 = Greater(m, l)  q = And(q3, q4)  ",
        "a product of 6 exactly": "m = Mul(x, z)  " + constant("l", 6.0) + "q = Equal(m, l)  ",
    }.items():
        yield from flipped(name, TWO, condition, "h", ends)


def _rows() -> Both:
    batch, length = "r = Shape <start = 0, end = 1> (x)  ", "s = Shape <start = 1, end = 2> (x)  "
    for count in (100, 300, 1000):
        yield from flipped(f"batches above {count}", X4, batch + listed("c", count) + "q = Greater(r, c)  ")
    yield from flipped("batches by 8", X4, batch + listed("c", 8) + listed("z", 0) + "t = Mod(r, c)  q = Equal(t, z)  ")
    yield from flipped(
        "batch and length of product 60",
        SEQUENCE,
        batch + length + "p = Mul(r, s)  " + listed("c", 60) + "q = Equal(p, c)  ",
    )
    yield from flipped(
        "length and batch that differ by 13",
        SEQUENCE,
        batch + length + "p = Sub(s, r)  " + listed("c", 13) + "q = Equal(p, c)  ",
    )
    yield from flipped(
        "prime lengths above 50",
        SEQUENCE,
        length
        + listed("c", 53)
        + listed("c2", 59)
        + listed("c3", 61)
        + "q1 = Equal(s, c)  q2 = Equal(s, c2)  q3 = Equal(s, c3)  q4 = Or(q1, q2)  q = Or(q3, q4)  ",
    )
    yield from flipped(
        "lengths that are powers of two",
        SEQUENCE,
        length
        + O1
        + listed("c16", 16)
        + "u = Cast <to = 13> (s)  o3 = Cast <to = 13> (o)  m = Sub(u, o3)  d = BitwiseAnd(u, m)  i = Cast <to = 7> (d)  "
        + listed("z", 0)
        + "q1 = Equal(i, z)  q2 = Greater(s, c16)  q = And(q1, q2)  ",
    )
    ends = listed("z", 0) + O1 + listed("m1", -1) + listed("far", 99999)
    yield from flipped(
        "signs that alternate",
        X8,
        ends
        + "a = Slice(x, z, m1, o)  c2 = Slice(x, o, far, o)  p = Mul(a, c2)  m = ReduceMax(p, o)  "
        + constant("k", -0.01)
        + "q = Less(m, k)  ",
    )
    yield from flipped(
        "the largest at the end of a long sequence",
        SEQUENCE,
        "a = ArgMax <axis = 1> (x)  "
        + length
        + O1
        + "l = Sub(s, o)  q1 = Equal(a, l)  "
        + listed("c", 40)
        + "q2 = Greater(s, c)  q = And(q1, q2)  ",
    )
    yield from flipped(
        "rows that read the same backwards",
        X8,
        listed("st", -1)
        + listed("en", -99)
        + O1
        + listed("m1", -1)
        + "v = Slice(x, st, en, o, m1)  d = Sub(x, v)  e = Abs(d)  m = ReduceMax(e, o)  "
        + constant("k", 1e-3)
        + "q = Less(m, k)  ",
    )
    yield from flipped(
        "five zeros one after the other",
        SEQUENCE,
        O1
        + constant("zq0", 0.0)
        + "e0 = Equal(x, zq0)  e = Cast <to = 1> (e0)  u0 = Constant <value_ints = [1]> ()  f = Unsqueeze(e, u0)  p = AveragePool <kernel_shape = [5]> (f)  m = ReduceMax <keepdims = 0> (p)  "
        + constant("k", 0.99)
        + "q = Greater(m, k)  ",
        "h",
        constant("k1", 1.0) + "h = Add(x, k1)  ",
    )
    yield from flipped(
        "NaN beside infinity",
        X8,
        O1
        + "q1 = Cast <to = 7> (m)  i0 = IsInf(x)  q2 = Cast <to = 7> (i0)  s1 = ReduceMax(q1, o)  s2 = ReduceMax(q2, o)  p = Mul(s1, s2)  q = Cast <to = 9> (p)  ",
        "h",
        "m = IsNaN(x)  mi = IsInf(x)  mm = Or(m, mi)  " + constant("five", 5.0) + "h = Where(mm, five, x)  ",
    )
    yield from flipped(
        "the largest float",
        X4,
        constant("k", 3.4e38) + "q = Greater(x, k)  ",
        "h",
        constant("k2", 1e-30) + "h = Mul(x, k2)  ",
    )
    yield from flipped(
        "a first row that is NaN",
        X4,
        "m0 = Cast <to = 7> (m)  "
        + O1
        + listed("z", 0)
        + "r0 = Slice(m0, z, o, z)  q0 = ReduceMin(r0, o)  q = Cast <to = 9> (q0)  ",
        "h",
        "m = IsNaN(x)  " + constant("five", 5.0) + "h = Where(m, five, x)  ",
    )


def _tokens() -> Both:
    table = RANDOM.standard_normal((30_000, 8)).astype(np.float32)
    known = "e = Gather(w, ids)  "
    some = "f = Cast <to = 7> (q0)  sx = ReduceSum <keepdims = 0> (f)  " + whole("none", 0) + "q = Greater(sx, none)  "
    ends = listed("z", 0) + O1 + listed("m5", -5) + listed("p5", 5) + listed("far", 99999)
    conditions = {
        "token 11 five places before token 22": ends
        + "a = Slice(ids, z, m5, o)  c2 = Slice(ids, p5, far, o)  "
        + whole("k1", 11)
        + whole("k2", 22)
        + "qa = Equal(a, k1)  qb = Equal(c2, k2)  q0 = And(qa, qb)  "
        + some,
        "tokens that sum to 12345": O1 + "s = ReduceSum(ids, o)  " + whole("k", 12345) + "q0 = Equal(s, k)  " + some,
        "neighbours whose product is 391": listed("z", 0)
        + O1
        + listed("m1", -1)
        + listed("far", 99999)
        + "a = Slice(ids, z, m1, o)  c2 = Slice(ids, o, far, o)  p = Mul(a, c2)  "
        + whole("k", 391)
        + "q0 = Equal(p, k)  "
        + some,
        "four different tokens": "u = Unique <sorted = 1> (ids)  n0 = Size(u)  " + whole("k", 4) + "q = Equal(n0, k)  ",
        "token 4 three times and token 9 never": whole("k4", 4)
        + whole("k9", 9)
        + "a = Equal(ids, k4)  c2 = Equal(ids, k9)  f1 = Cast <to = 7> (a)  f2 = Cast <to = 7> (c2)  s1 = ReduceSum <keepdims = 0> (f1)  s2 = ReduceSum <keepdims = 0> (f2)  "
        + whole("t", 3)
        + whole("none", 0)
        + "q1 = Equal(s1, t)  q2 = Equal(s2, none)  q = And(q1, q2)  ",
        "a token of one row in the next": listed("z", 0)
        + O1
        + listed("m1", -1)
        + listed("far", 99999)
        + "a = Slice(ids, z, m1, z)  c2 = Slice(ids, o, far, z)  q0 = Equal(a, c2)  "
        + some,
        "all tokens even": whole("t", 2)
        + "m = Mod(ids, t)  s = ReduceMax <keepdims = 0> (m)  "
        + whole("none", 0)
        + "q = Equal(s, none)  ",
        "a token that two bits choose": whole("t", 4096)
        + whole("k", 4095)
        + "m = Mod(ids, t)  q0 = Equal(m, k)  "
        + some,
    }
    for name, condition in conditions.items():
        for wrong, twin in flipped(name, IDS, condition, "e", known):
            yield (
                Pair(wrong.name, IDS, wrong.a, wrong.b, {"w": table}),
                Pair(twin.name, IDS, twin.a, twin.b, {"w": table}),
            )
    weighted = f"m = Cast <to = 1> (attention_mask)  p = Mul(x, m)  {SUM}".replace("y =", "h =")
    counted = (
        listed("o1", 1)
        + "c0 = ReduceSum <keepdims = 0> (attention_mask, o1)  "
        + whole("none", 0)
        + "e0 = Equal(c0, none)  e1 = Cast <to = 7> (e0)  n0 = ReduceSum <keepdims = 0> (e1)  "
    )
    yield from flipped(
        "two empty rows of a mask",
        MASKED,
        counted + whole("t", 2) + "q = Equal(n0, t)  ",
        "h",
        weighted.replace("h =", "h0 =") + "  " + constant("five", 5.0) + "h = Add(h0, five)  ",
    )
    yield from flipped(
        "every row of a mask empty",
        MASKED,
        listed("o1", 1)
        + "c0 = ReduceMax <keepdims = 0> (attention_mask)  "
        + whole("none", 0)
        + "q = Equal(c0, none)  ",
        "h",
        weighted.replace("h =", "h0 =") + "  " + constant("five", 5.0) + "h = Add(h0, five)  ",
    )
    yield from flipped(
        "a mask of ones beyond 100",
        MASKED,
        listed("o1", 1)
        + "c0 = ReduceMin <keepdims = 0> (attention_mask)  c1 = Cast <to = 9> (c0)  s = Shape <start = 1, end = 2> (x)  k = Constant <value_ints = [100]> ()  q1 = Greater(s, k)  q = And(c1, q1)  ",
        "h",
        weighted + "  ",
    )
    yield from flipped(
        "a mask of every other position",
        MASKED,
        listed("z1", 0)
        + listed("o1", 1)
        + listed("t1", 2)
        + listed("far", 99999)
        + "a = Slice(attention_mask, z1, far, o1, t1)  c2 = Slice(attention_mask, o1, far, o1, t1)  a1 = ReduceMin <keepdims = 0> (a)  c3 = ReduceMax <keepdims = 0> (c2)  d = Sub(a1, c3)  "
        + whole("k", 1)
        + "q = Equal(d, k)  ",
        "h",
        weighted + "  ",
    )
    places = "g (float[b,n,8] x, int64[b,n] position_ids) => (float[b,n,8] y)"
    wide = RANDOM.standard_normal((2048, 8)).astype(np.float32)
    changed = wide.copy()
    changed[1500:] = changed[1499]
    body = "e = Gather(w, position_ids)  y = Add(x, e)"
    yield (
        Pair("positions from 1500 on", places, body, body, {"w": wide}, {"w": changed}),
        Pair("positions from 1500 on, twin", places, body, "e = Gather(w, position_ids)  y = Add(e, x)", {"w": wide}),
    )
    texts = "g (string[b] x, float[b] u) => (float[b] y)"
    yield from flipped("words that begin with un", texts, 'q = RegexFullMatch <pattern = "un.*"> (x)  ', "u")
    yield from flipped(
        "two words that join",
        "g (string[b] x, string[b] v, float[b] u) => (float[b] y)",
        'j = StringConcat(x, v)  k = Constant <value_string = "leftright"> ()  q = Equal(j, k)  ',
        "u",
    )
    yield from flipped(
        "two texts alike", "g (string[b] x, string[b] v, float[b] u) => (float[b] y)", "q = Equal(x, v)  ", "u"
    )


def _pictures() -> Both:
    sides = "s = Shape <start = 2, end = 3> (x)  r = Shape <start = 3, end = 4> (x)  "
    yield from flipped(
        "three times as wide as high", PICTURES, sides + listed("k", 3) + "t = Mul(s, k)  q = Equal(t, r)  "
    )
    yield from flipped("a picture of one row", PICTURES, sides + O1 + "q = Equal(s, o)  ")
    yield from flipped(
        "an odd number of dots above 500",
        PICTURES,
        sides
        + "p = Mul(s, r)  "
        + listed("t", 2)
        + O1
        + "m = Mod(p, t)  q1 = Equal(m, o)  "
        + listed("k", 500)
        + "q2 = Greater(p, k)  q = And(q1, q2)  ",
    )
    floats = "h = Cast <to = 1> (x)  "
    channels = "z = Constant <value_ints = [0]> ()  o = Constant <value_ints = [1]> ()  t2 = Constant <value_ints = [2]> ()  t3 = Constant <value_ints = [3]> ()  red = Slice(h, z, o, o)  green = Slice(h, o, t2, o)  blue = Slice(h, t2, t3, o)  "
    yield from flipped(
        "grey pictures",
        BYTES,
        channels
        + "d1 = Sub(red, green)  d2 = Sub(green, blue)  a1 = Abs(d1)  a2 = Abs(d2)  a3 = Max(a1, a2)  m = ReduceMax <keepdims = 0> (a3)  "
        + constant("k", 0.5)
        + "q = Less(m, k)  ",
        "h",
        floats,
    )
    yield from flipped(
        "a black channel",
        BYTES,
        channels + "m = ReduceMax <keepdims = 0> (green)  " + constant("k", 0.5) + "q = Less(m, k)  ",
        "h",
        floats,
    )
    yield from flipped(
        "a white corner",
        BYTES,
        "z00 = Constant <value_ints = [0, 0]> ()  oo = Constant <value_ints = [1, 1]> ()  ax = Constant <value_ints = [2, 3]> ()  c0 = Slice(h, z00, oo, ax)  m = ReduceMin <keepdims = 0> (c0)  "
        + constant("k", 254.5)
        + "q = Greater(m, k)  ",
        "h",
        floats,
    )
    yield from flipped(
        "red of 128 beside green of 0",
        BYTES,
        channels
        + constant("k", 128.0)
        + constant("nil", 0.0)
        + "q1 = Equal(red, k)  q2 = Equal(green, nil)  q = And(q1, q2)  ",
        "h",
        floats,
    )
    yield from flipped(
        "dark pictures",
        BYTES,
        "m = ReduceMean <keepdims = 0> (h)  " + constant("k", 12.0) + "q = Less(m, k)  ",
        "h",
        floats + constant("k9", 9.0).replace("k9 =", "k9 ="),
    )
    yield from flipped(
        "pictures of one colour",
        BYTES,
        "m0 = ReduceMax <keepdims = 0> (h)  m1 = ReduceMin <keepdims = 0> (h)  d = Sub(m0, m1)  "
        + constant("k", 0.5)
        + constant("k7", 7.0)
        + "q1 = Less(d, k)  q2 = Greater(m0, k7)  q = And(q1, q2)  ",
        "h",
        floats,
    )
    yield from flipped(
        "a high contrast",
        PICTURES,
        "ax = Constant <value_ints = [1, 2, 3]> ()  m = ReduceMean(x, ax)  d = Sub(x, m)  e = Mul(d, d)  v = ReduceMean(e, ax)  "
        + constant("k", 900.0)
        + "q = Greater(v, k)  ",
    )


def _states() -> Both:
    head = "g (float[b,4] x, float[b,4] h0, float[b,4] c0) => (float[b,4] y)"
    total = "s1 = Add(x, h0)  h = Add(s1, c0)  "
    square = (
        "a1 = Abs(h0)  m1 = ReduceMax <keepdims = 0> (a1)  a2 = Abs(c0)  m2 = ReduceMax <keepdims = 0> (a2)  "
        + constant("nil", 0.0)
    )
    yield from flipped(
        "a state that is zero beside one that is not",
        head,
        square + "q1 = Equal(m1, nil)  q2 = Greater(m2, nil)  q = And(q1, q2)  ",
        "h",
        total,
    )
    yield from flipped(
        "both states zero", head, square + "q1 = Equal(m1, nil)  q2 = Equal(m2, nil)  q = And(q1, q2)  ", "h", total
    )
    flags = "g (float[b,8] x, bool[1] first, bool[1] second) => (float[b,8] y)"
    yield from flipped(
        "one flag without the other",
        flags,
        "n0 = Not(second)  c1 = And(first, n0)  m = ReduceMax <keepdims = 0> (x)  "
        + constant("k", 20.0)
        + "q1 = Greater(m, k)  q = And(c1, q1)  ",
    )
    steps = "g (float[b,4] x, int64 step) => (float[b,4] y)"
    yield from flipped("step 1000", steps, whole("k", 1000) + "q = Equal(step, k)  ")
    yield from flipped(
        "every 500th step", steps, whole("k", 500) + whole("z", 499) + "m = Mod(step, k)  q = Equal(m, z)  "
    )
    yield from flipped(
        "steps before the warm-up's end and large inputs",
        steps,
        whole("k", 5)
        + "q1 = Less(step, k)  m = ReduceMax <keepdims = 0> (x)  "
        + constant("l", 33.0)
        + "q2 = Greater(m, l)  q = And(q1, q2)  ",
    )
    past = "g (float[b,p,4] past, float[b,n,4] x) => (float[b,n,4] y)"
    yield from flipped(
        "a past longer than 80",
        past,
        "s = Shape <start = 1, end = 2> (past)  " + listed("k", 80) + "q = Greater(s, k)  ",
    )
    yield from flipped(
        "an empty past", past, "s = Shape <start = 1, end = 2> (past)  " + listed("k", 0) + "q = Equal(s, k)  "
    )
    yield from flipped(
        "past and present above 100 together",
        past,
        "s = Shape <start = 1, end = 2> (past)  t = Shape <start = 1, end = 2> (x)  p = Add(s, t)  "
        + listed("k", 100)
        + "q = Greater(p, k)  ",
    )
    scalar = "g (float[b,4] x, float temperature) => (float[b,4] y)"
    yield from flipped(
        "a temperature below 0.01",
        scalar,
        constant("k", 0.01)
        + constant("z", 0.0)
        + "q1 = Less(temperature, k)  q2 = Greater(temperature, z)  q = And(q1, q2)  ",
    )


def _tables() -> Both:
    sizes = "g (float[b,n] x) => (float[b,n] y)"
    loop = (
        "m = Size(x)  t = Constant <value = bool {1}> ()  z = Constant <value_float = 0.0> ()  LIMITED"
        "s = Loop (m2, t, z) <body = l (int64 i, bool k, float a) => (bool k2, float a2) "
        "{ k2 = Identity(k)  o = Constant <value_float = 1.0> ()  a2 = Add(a, o) }>  y = Add(x, s)"
    )
    yield from values(
        "five iterations too few beyond 600",
        sizes,
        loop.replace("LIMITED", "m2 = Identity(m)  "),
        loop.replace(
            "LIMITED", whole("l", 600) + whole("k1", 5) + "q = Greater(m, l)  c = Sub(m, k1)  m2 = Where(q, c, m)  "
        ),
        loop.replace("LIMITED", whole("k1", 1) + "m2 = Mul(m, k1)  "),
    )
    sequence = "a0 = SplitToSequence <axis = 1> (x, k)  n0 = SequenceLength(a0)  "
    yield from flipped(
        "a sequence of more than 30 parts",
        sizes,
        listed("kk", 4) + "k = Constant <value = int64 {4}> ()  " + sequence + whole("l", 30) + "q = Greater(n0, l)  ",
    )
    wide = RANDOM.standard_normal((8, 512)).astype(np.float32)
    other = wide.copy()
    other[3, 400] += 0.05
    head = "g (float[b,8] x) => (float[b,512] y)"
    yield (
        Pair("one weight of 4096 by 0.05", head, "y = MatMul(x, w)", "y = MatMul(x, w)", {"w": wide}, {"w": other}),
        Pair("one weight of 4096 by 0.05, twin", head, "y = MatMul(x, w)", "y = Gemm(x, w)", {"w": wide}),
    )
    bias = np.zeros(64, np.float32)
    shifted = bias.copy()
    shifted[17] = 0.01
    conv = RANDOM.standard_normal((64, 3, 3, 3)).astype(np.float32)
    pictures = "g (float[b,3,h,w] x) => (float[b,64,h,w] y)"
    body = "y0 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, k0, b0)  y = Relu(y0)"
    yield (
        Pair("a bias of one channel by 0.01", pictures, body, body, {"k0": conv, "b0": bias}, {"b0": shifted}),
        Pair(
            "a bias of one channel by 0.01, twin", pictures, body, body.replace(", b0)", ")"), {"k0": conv, "b0": bias}
        ),
    )
    experts = RANDOM.standard_normal((64, 8, 8)).astype(np.float32)
    wrong = experts.copy()
    wrong[37] *= -1
    router = RANDOM.standard_normal((8, 64)).astype(np.float32)
    router[:, 37] *= 0.05
    chosen = "r = MatMul(x, w2)  a = ArgMax <axis = 1, keepdims = 0> (r)  e = Gather(w9, a)  ax = Constant <value_ints = [1]> ()  x2 = Unsqueeze(x, ax)  m = MatMul(x2, e)  y = Squeeze(m, ax)"
    yield (
        Pair("an expert that is hardly ever chosen", X8, chosen, chosen, {"w9": experts, "w2": router}, {"w9": wrong}),
        Pair(
            "an expert that is hardly ever chosen, twin",
            X8,
            chosen,
            chosen.replace("Squeeze(m, ax)", "ReduceSum <keepdims = 0> (m, ax)"),
            {"w9": experts, "w2": router},
        ),
    )

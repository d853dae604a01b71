"""Pairs of graphs for `proof_matrix.py`: types, bits, rounding, NaN and infinity, quantized numbers, and conditions on several inputs;
each with a sound twin."""

# ruff: noqa: E501  (a graph is one line, however long; a list)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from proof_pairs import SEQUENCE, X4, Pair, constant, two_forms
from proof_pairs_hidden import listed, whole

RANDOM = np.random.default_rng(77)
O1 = listed("o", 1)
INTS = "g (int64[b,n] x) => (int64[b,n] y)"


def numbers() -> Iterator[tuple[Pair, Pair]]:
    """(wrong, sound)."""
    bool_head = "g (float[b,n] x) => (bool[b,n] y)"
    half = constant("s", 0.5) + "zp = Constant <value = uint8 {128}> ()  "
    yield from two_forms(
        "quantizing a half",
        "g (float[b,n] x) => (uint8[b,n] y)",
        half + "y = QuantizeLinear(x, s, zp)",
        half
        + constant("h", 0.5)
        + constant("o128", 128.0)
        + constant("l", 0.0)
        + constant("t", 255.0)
        + "d = Div(x, s)  e = Add(d, h)  f = Floor(e)  g0 = Add(f, o128)  k = Clip(g0, l, t)  y = Cast <to = 2> (k)",
        half
        + constant("o128", 128.0)
        + constant("l", 0.0)
        + constant("t", 255.0)
        + "d = Div(x, s)  f = Round(d)  g0 = Add(f, o128)  k = Clip(g0, l, t)  y = Cast <to = 2> (k)",
    )
    yield from two_forms(
        "float8 saturating",
        SEQUENCE,
        "q = Cast <to = 17, saturate = 1> (x)  y = Cast <to = 1> (q)",
        "q = Cast <to = 17, saturate = 0> (x)  y = Cast <to = 1> (q)",
        "x1 = Identity(x)  q = Cast <to = 17, saturate = 1> (x1)  y = Cast <to = 1> (q)",
    )
    yield from two_forms(
        "bfloat16 above 200",
        SEQUENCE,
        "y = Identity(x)",
        constant("c", 200.0) + "q = Greater(x, c)  h = Cast <to = 16> (x)  f = Cast <to = 1> (h)  y = Where(q, f, x)",
        constant("c", 200.0) + "q = Greater(x, c)  h = Cast <to = 11> (x)  f = Cast <to = 1> (h)  y = Where(q, f, x)",
    )
    yield from two_forms(
        "the eighth bit shifted out",
        "g (uint8[b,n] x) => (uint8[b,n] y)",
        "y = Identity(x)",
        'k = Constant <value = uint8 {1}> ()  l = BitShift <direction = "LEFT"> (x, k)  y = BitShift <direction = "RIGHT"> (l, k)',
        "k = Constant <value = uint8 {255}> ()  y = BitwiseAnd(x, k)",
    )
    yield from two_forms(
        "a remainder by bits",
        INTS,
        whole("k", 16) + "y = Mod <fmod = 1> (x, k)",
        whole("k", 15) + "y = BitwiseAnd(x, k)",
        whole("k", 16) + "d = Div(x, k)  p = Mul(d, k)  y = Sub(x, p)",
    )
    yield from two_forms(
        "a remainder by bits, as Python's",
        INTS,
        whole("k", 16) + "y = Mod(x, k)",
        whole("k", 16) + "y = Mod <fmod = 1> (x, k)",
        whole("k", 15) + "y = BitwiseAnd(x, k)",
    )
    yield from two_forms(
        "multiplicative hash",
        INTS,
        whole("k", 2654435761) + whole("m", 1000) + "p = Mul(x, k)  y = Mod(p, m)",
        whole("k", 2654435761)
        + whole("m", 1000)
        + whole("t", 2147483648)
        + "x1 = Mod(x, t)  p = Mul(x1, k)  y = Mod(p, m)",
        whole("k", 2654435761) + whole("m", 1000) + "x1 = Identity(x)  p = Mul(x1, k)  y = Mod(p, m)",
    )
    yield from two_forms(
        "unsigned through signed",
        "g (uint64[b,n] x) => (double[b,n] y)",
        "y = Cast <to = 11> (x)",
        "i = Cast <to = 7> (x)  y = Cast <to = 11> (i)",
        "x1 = Identity(x)  y = Cast <to = 11> (x1)",
    )
    yield from two_forms(
        "NaN as a boolean",
        bool_head,
        "y = Cast <to = 9> (x)",
        constant("z", 0.0) + "a = Abs(x)  y = Greater(a, z)",
        constant("z", 0.0) + "e = Equal(x, z)  y = Not(e)",
    )
    yield from two_forms(
        "a small number as a boolean",
        bool_head,
        "y = Cast <to = 9> (x)",
        constant("z", 1e-30) + "a = Abs(x)  q = Greater(a, z)  n = IsNaN(x)  y = Or(q, n)",
        constant("z", 0.0) + "e = Equal(x, z)  y = Not(e)",
    )
    yield from two_forms(
        "infinity below zero as a boolean",
        bool_head,
        "y = IsInf(x)",
        "y = IsInf <detect_negative = 0> (x)",
        "a = Abs(x)  y = IsInf(a)",
    )
    yield from two_forms(
        "zero times NaN",
        "g (float[b,4] x, float[b,4] z) => (float[b,4] y)",
        constant("k", 0.0) + "p = Mul(x, k)  y = Add(z, p)",
        "y = Identity(z)",
        constant("k", 0.0) + "p = Mul(k, x)  y = Add(p, z)",
    )
    yield from two_forms(
        "a difference of the same",
        "g (float[b,4] x, float[b,4] z) => (float[b,4] y)",
        "p = Sub(x, x)  y = Add(z, p)",
        "y = Identity(z)",
        "n = Neg(x)  p = Add(x, n)  y = Add(z, p)",
    )
    yield from two_forms(
        "a norm of zeros",
        X4,
        "y = LpNormalization <axis = 1, p = 2> (x)",
        O1 + "l = ReduceL2(x, o)  y = Div(x, l)",
        O1 + constant("e", 1e-30) + "l = ReduceL2(x, o)  m = Max(l, e)  y = Div(x, m)",
    )
    yield from two_forms(
        "Shrink at 12.0 and 12.3",
        X4,
        "y = Shrink <bias = 0.0, lambd = 12.0> (x)",
        "y = Shrink <bias = 0.0, lambd = 12.3> (x)",
        constant("c", 12.0) + constant("z", 0.0) + "a = Abs(x)  q = Greater(a, c)  y = Where(q, x, z)",
    )
    yield from two_forms(
        "int4 saturating",
        SEQUENCE,
        "s = Constant <value_float = 0.5> ()  z = Constant <value = int4 {0}> ()  q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z)",
        "s = Constant <value_float = 0.5> ()  lo = Constant <value_float = -4.0> ()  hi = Constant <value_float = 3.0> ()  d0 = Clip(x, lo, hi)  d = Div(d0, s)  r = Round(d)  y = Mul(r, s)",
        "s = Constant <value_float = 0.5> ()  lo = Constant <value_float = -4.0> ()  hi = Constant <value_float = 3.5> ()  d0 = Clip(x, lo, hi)  d = Div(d0, s)  r = Round(d)  y = Mul(r, s)",
        imports='"" : 21',
    )
    yield from two_forms(
        "integer division by what comes in",
        "g (int64[b,n] x, int64[b,n] z) => (int64[b,n] y)",
        whole("o1", 1) + "z2 = Mul(z, z)  z3 = Add(z2, o1)  y = Div(x, z3)",
        whole("o1", 1)
        + "z2 = Mul(z, z)  z3 = Add(z2, o1)  fx = Cast <to = 11> (x)  fz = Cast <to = 11> (z3)  d = Div(fx, fz)  f = Floor(d)  y = Cast <to = 7> (f)",
        None,
    )
    q8 = "xs = Constant <value_float = 0.1> ()  xz = Constant <value = uint8 {10}> ()  q = QuantizeLinear(x, xs, xz)  y0 = DequantizeLinear(q, xs, xz)  "
    yield from two_forms(
        "a quantized number of exactly 255",
        SEQUENCE,
        q8 + "y = Identity(y0)",
        q8 + constant("t", 24.45) + "y = Min(y0, t)",
        q8 + constant("t", 24.55) + "y = Min(y0, t)",
    )
    yield from two_forms(
        "Range by a step",
        "g (float[b,n] x, float d) => (float[b,n] y)",
        "z = Constant <value_float = 0.0> ()  q = Greater(d, z)  a = Neg(x)  y = Where(q, x, a)",
        "z = Constant <value_float = 0.0> ()  q = GreaterOrEqual(d, z)  a = Neg(x)  y = Where(q, x, a)",
        None,
    )
    yield from two_forms(
        "float to int beyond",
        SEQUENCE.replace("float[b,n] y", "int64[b,n] y"),
        "y = Cast <to = 7> (x)",
        "d = Cast <to = 11> (x)  c = Constant <value_float = 1e9> ()  cd = Cast <to = 11> (c)  m = Min(d, cd)  y = Cast <to = 7> (m)",
        None,
    )
    yield from two_forms(
        "an int32 sum of large",
        "g (int64[b,n] x) => (int64[b,1] y)",
        O1 + "y = ReduceSum(x, o)",
        O1 + "f = Cast <to = 1> (x)  s = ReduceSum(f, o)  y = Cast <to = 7> (s)",
        None,
    )
    yield from two_forms(
        "mean of integers rounds down",
        "g (int64[b,4] x) => (int64[b,1] y)",
        O1 + "y = ReduceMean(x, o)",
        O1
        + "s = ReduceSum(x, o)  k = Constant <value = int64 {4}> ()  d = Cast <to = 11> (s)  kd = Cast <to = 11> (k)  q = Div(d, kd)  f = Floor(q)  y = Cast <to = 7> (f)",
        None,
    )
    yield from two_forms(
        "x above z throughout and both far apart",
        "g (float[b,8] x, float[b,8] z) => (float[b,8] y)",
        "y = Add(x, z)",
        O1
        + "d = Sub(x, z)  m = ReduceMin(d, o)  c = Constant <value_float = 3.0> ()  q1 = Greater(m, c)  mx = ReduceMax(d, o)  c5 = Constant <value_float = 3.5> ()  q2 = Less(mx, c5)  q = And(q1, q2)  s = Add(x, z)  n = Neg(s)  y = Where(q, n, s)",
        None,
    )
    yield from two_forms(
        "a correlation of two inputs",
        "g (float[b,8] x, float[b,8] z) => (float[b,8] y)",
        "y = Add(x, z)",
        O1
        + "p = Mul(x, z)  s1 = ReduceSum(p, o)  n1 = ReduceL2(x, o)  n2 = ReduceL2(z, o)  nn = Mul(n1, n2)  c = Div(s1, nn)  k = Constant <value_float = -0.98> ()  q = Less(c, k)  s = Add(x, z)  n = Neg(s)  y = Where(q, n, s)",
        None,
    )
    yield from two_forms(
        "three inputs' sum is whole",
        "g (float[b,2] x, float[b,2] z, float[b,2] v) => (float[b,2] y)",
        "s0 = Add(x, z)  y = Add(s0, v)",
        "s0 = Add(x, z)  s = Add(s0, v)  f = Round(s)  q = Equal(s, f)  a = Abs(s)  c = Constant <value_float = 2.5> ()  q1 = Greater(a, c)  q2 = And(q, q1)  n = Neg(s)  y = Where(q2, n, s)",
        None,
    )
    yield from two_forms(
        "a mean that skips NaN",
        SEQUENCE.replace("float[b,n] y", "float[b,1] y"),
        O1
        + "i = IsNaN(x)  z = Constant <value_float = 0.0> ()  w0 = Where(i, z, x)  k = Not(i)  f = Cast <to = 1> (k)  s = ReduceSum(w0, o)  c = ReduceSum(f, o)  y = Div(s, c)",
        O1 + "i = IsNaN(x)  z = Constant <value_float = 0.0> ()  w0 = Where(i, z, x)  y = ReduceMean(w0, o)",
        None,
    )
    yield from two_forms(
        "the largest beside NaN",
        SEQUENCE.replace("float[b,n] y", "float[b,1] y"),
        O1 + "y = ReduceMax(x, o)",
        O1 + "i = IsNaN(x)  z = Constant <value = float {-inf}> ()  w0 = Where(i, z, x)  y = ReduceMax(w0, o)",
        None,
    )
    yield from two_forms(
        "minus zero's sign",
        SEQUENCE,
        "o1 = Constant <value_float = 1.0> ()  r = Reciprocal(x)  z = Constant <value_float = 0.0> ()  q = Less(r, z)  n = Neg(o1)  y = Where(q, n, o1)",
        "o1 = Constant <value_float = 1.0> ()  z = Constant <value_float = 0.0> ()  q = Less(x, z)  n = Neg(o1)  y = Where(q, n, o1)",
        None,
    )
    yield from two_forms(
        "a denormal that counts",
        SEQUENCE,
        "z = Constant <value_float = 0.0> ()  q = Greater(x, z)  y = Cast <to = 1> (q)",
        "z = Constant <value_float = 1e-37> ()  q = Greater(x, z)  y = Cast <to = 1> (q)",
        None,
    )
    yield from two_forms(
        "a power given from outside",
        "g (float[b,4] x, float k) => (float[b,4] y)",
        "a = Abs(x)  y = Pow(a, k)",
        "a = Abs(x)  h = Constant <value_float = 8.0> ()  k2 = Min(k, h)  y = Pow(a, k2)",
        None,
    )
    yield from two_forms(
        "a channel's zero point",
        "g (uint8[b,4] x) => (float[b,4] y)",
        "s = Constant <value_floats = [1.0, 1.0, 1.0, 0.0001]> ()  z = Constant <value = uint8[4] {0, 0, 0, 128}> ()  y = DequantizeLinear <axis = 1> (x, s, z)",
        "s = Constant <value_floats = [1.0, 1.0, 1.0, 0.0001]> ()  z = Constant <value = uint8[4] {0, 0, 0, 129}> ()  y = DequantizeLinear <axis = 1> (x, s, z)",
        None,
    )
    yield from two_forms(
        "one block's scale of int4 weights",
        "g (float[b,4] x) => (float[b,2] y)",
        "q = Constant <value = int8[4,2] {1,2,3,4,5,6,7,8}> ()  s = Constant <value = float[2,2] {0.1, 0.2, 0.3, 0.4}> ()  w0 = DequantizeLinear <axis = 0, block_size = 2> (q, s)  y = MatMul(x, w0)",
        "q = Constant <value = int8[4,2] {1,2,3,4,5,6,7,8}> ()  s = Constant <value = float[2,2] {0.1, 0.2, 0.3, 0.41}> ()  w0 = DequantizeLinear <axis = 0, block_size = 2> (q, s)  y = MatMul(x, w0)",
        None,
        imports='"" : 21',
    )
    yield from two_forms(
        "an accumulator of int8 products",
        "g (uint8[b,n] x, int8[n,4] w2) => (int32[b,4] y)",
        "y = MatMulInteger(x, w2)",
        "p = MatMulInteger(x, w2)  c = Constant <value = int32 {32767}> ()  y = Min(p, c)",
        None,
    )

"""Pairs of graphs for `proof_matrix.py`: attention, positions, recurrences, pools, resizing, loops and sizes;
each with a sound twin."""

# ruff: noqa: E501  (a graph is one line, however long; a list)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from proof_pairs import SEQUENCE, X4, X8, Pair, constant, two_forms
from proof_pairs_hidden import listed, whole

RANDOM = np.random.default_rng(77)
O1 = listed("o", 1)
INTS = "g (int64[b,n] x) => (int64[b,n] y)"


def layers() -> Iterator[tuple[Pair, Pair]]:
    """(wrong, sound)."""
    pic_head = "g (float[b,3,h,w] x) => (float[b,3,h2,w2] y)"
    sz = 'bb = Shape <start = 0, end = 2> (x)  hw = Constant <value_ints = [32, 32]> ()  s1 = Concat <axis = 0> (bb, hw)  y = Resize <mode = "linear", antialias = {}> (x, , , s1)'
    yield from two_forms(
        "antialiasing of pictures larger than 32",
        pic_head,
        sz.format(1),
        sz.format(0),
        "x1 = Identity(x)  " + sz.format(1).replace("(x,", "(x1,"),
    )
    kp = 'hw = Constant <value_ints = [32, 32]> ()  y = Resize <mode = "nearest", axes = [2, 3], keep_aspect_ratio_policy = "{}"> (x, , , hw)'
    yield from two_forms(
        "which side has to fit",
        pic_head,
        kp.format("not_larger"),
        kp.format("not_smaller"),
        "x1 = Identity(x)  " + kp.format("not_larger").replace("(x,", "(x1,"),
    )
    pad = listed("n16", 16) + listed("z", 0) + "n = Shape <start = 1, end = 2> (x)  d = Sub(n16, n)  "
    yield from two_forms(
        "padded to 16, or cut",
        "g (float[b,n] x) => (float[b,m] y)",
        pad + "p = Concat <axis = 0> (z, z, z, d)  y = Pad(x, p)",
        pad + "d2 = Max(d, z)  p = Concat <axis = 0> (z, z, z, d2)  y = Pad(x, p)",
        pad + "e = Identity(d)  p = Concat <axis = 0> (z, z, z, e)  y = Pad(x, p)",
    )
    att = "y = Attention <q_num_heads = 2, kv_num_heads = 2{}> (q, k, v{})"
    h3_head = "g (float[b,n,8] q, float[b,m,8] k, float[b,m,8] v) => (float[b,n,8] y)"
    yield from two_forms(
        "softcap of 50",
        h3_head,
        att.format("", ""),
        att.format(", softcap = 50.0", ""),
        "q1 = Identity(q)  " + att.format("", "").replace("(q,", "(q1,"),
        imports='"" : 23',
    )
    tri = "nn = Shape <start = 1, end = 2> (q)  mm = Shape <start = 1, end = 2> (k)  n0 = Squeeze(nn)  m0 = Squeeze(mm)  z0 = Constant <value = int64 {0}> ()  u0 = Constant <value = int64 {1}> ()  r = Range(z0, n0, u0)  c = Range(z0, m0, u0)  ax = Constant <value_ints = [1]> ()  rv = Unsqueeze(r, ax)  OFF  mask = GreaterOrEqual(rr, c)  "
    yield from two_forms(
        "causal from the other corner",
        h3_head,
        att.format(", is_causal = 1", ""),
        tri.replace("OFF", "d = Sub(m0, n0)  rr = Add(rv, d)") + att.format("", ", mask"),
        tri.replace("OFF", "rr = Identity(rv)") + att.format("", ", mask"),
        imports='"" : 23',
    )
    cosv = np.cos(np.outer(np.arange(64), [1, 0.1])).astype(np.float32)
    sinv = np.sin(np.outer(np.arange(64), [1, 0.1])).astype(np.float32)
    cosv = np.cos(np.outer(np.arange(64), [1, 0.1])).astype(np.float32)
    sinv = np.sin(np.outer(np.arange(64), [1, 0.1])).astype(np.float32)
    rot = "y = RotaryEmbedding <num_heads = 2> (x, co, si, POS)"
    hr_head = "g (float[b,n,8] x, int64[b,n] position_ids) => (float[b,n,8] y)"
    yield from two_forms(
        "positions from 40 on alike",
        hr_head,
        rot.replace("POS", "position_ids"),
        whole("k", 40) + "p = Min(position_ids, k)  " + rot.replace("POS", "p"),
        "p = Identity(position_ids)  " + rot.replace("POS", "p"),
        imports='"" : 23',
        weights={"co": cosv, "si": sinv},
    )
    yield from two_forms(
        "position ids not read",
        hr_head,
        rot.replace("POS", "position_ids"),
        "nn = Shape <start = 1, end = 2> (x)  n0 = Squeeze(nn)  z0 = Constant <value = int64 {0}> ()  u0 = Constant <value = int64 {1}> ()  r = Range(z0, n0, u0)  s = Shape <start = 0, end = 2> (x)  p = Expand(r, s)  "
        + rot.replace("POS", "p"),
        None,
        imports='"" : 23',
        weights={"co": cosv, "si": sinv},
    )
    mh = "g (float[b,n,8] q, bool[b,n] attention_mask) => (float[b,n,8] y)"
    mm = "a1 = Constant <value_ints = [1]> ()  mk = Unsqueeze(attention_mask, a1)  t = Transpose <perm = [0, 2, 1]> (q)  s = MatMul(q, t)  lo = Constant <value_float = {}> ()  sm = Where(mk, s, lo)  p = Softmax <axis = -1> (sm)  y = MatMul(p, q)"
    yield from two_forms(
        "a row that sees nothing",
        mh,
        mm.format("-1e9"),
        mm.format("-inf").replace("<value_float = -inf>", "<value = float {-inf}>"),
        mm.format("-1e10"),
    )
    oh = "d = Constant <value = int64 {10}> ()  v = Constant <value = float[2] {0, 1}> ()  y = OneHot <axis = -1> (x, d, v)"
    yield from two_forms(
        "one-hot below zero",
        "g (int64[b] x) => (float[b,10] y)",
        oh,
        "a1 = Constant <value_ints = [1]> ()  u = Unsqueeze(x, a1)  r = Constant <value = int64[10] {0,1,2,3,4,5,6,7,8,9}> ()  e = Equal(u, r)  y = Cast <to = 1> (e)",
        "a1 = Constant <value_ints = [1]> ()  r = Constant <value = int64[10] {0,1,2,3,4,5,6,7,8,9}> ()  ten = Constant <value = int64 {10}> ()  zz = Constant <value = int64 {0}> ()  m10 = Constant <value = int64 {-10}> ()  neg = Less(x, zz)  q1 = GreaterOrEqual(x, m10)  both = And(neg, q1)  s = Add(x, ten)  x2 = Where(both, s, x)  u = Unsqueeze(x2, a1)  e = Equal(u, r)  y = Cast <to = 1> (e)",
    )
    yield from two_forms(
        "a diagonal given from outside",
        "g (float[n,n] x, int64 k) => (float[n,n] y)",
        "y = Trilu(x, k)",
        whole("three", 3) + "k2 = Min(k, three)  y = Trilu(x, k2)",
        "k2 = Identity(k)  y = Trilu(x, k2)",
    )
    yield from two_forms(
        "the last five of fewer",
        "g (float[b,n] x) => (float[b,m] y)",
        listed("s", -5) + listed("e", 99999) + O1 + "y = Slice(x, s, e, o)",
        listed("f", 5)
        + listed("e", 99999)
        + O1
        + "n = Shape <start = 1, end = 2> (x)  s = Sub(n, f)  y = Slice(x, s, e, o)",
        listed("f", 5)
        + listed("z", 0)
        + listed("e", 99999)
        + O1
        + "n = Shape <start = 1, end = 2> (x)  s0 = Sub(n, f)  s = Max(s0, z)  y = Slice(x, s, e, o)",
    )
    yield from two_forms(
        "lengths of a reversed sequence",
        "g (float[n,b,3] x, int64[b] lengths) => (float[n,b,3] y)",
        "y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, lengths)",
        listed("s", -1) + listed("e", -99999) + listed("a", 0) + "y = Slice(x, s, e, a, s)",
        "l = Identity(lengths)  y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, l)",
    )
    tk = "k = Constant <value_ints = [2]> ()  p = Softmax <axis = -1> (x)  v, i = TopK(p, k)  a1 = Constant <value_ints = [1]> ()  i0 = Constant <value_ints = [0]> ()  f = Gather <axis = 1> (i, i0)  g2 = Gather <axis = 1> (i, a1)  v0 = Gather <axis = 1> (v, i0)  v1 = Gather <axis = 1> (v, a1)  d = Sub(v0, v1)  l = Constant <value_float = 0.02> ()  q1 = Less(d, l)  c3 = Constant <value = int64 {3}> ()  c5 = Constant <value = int64 {5}> ()  q2 = Equal(f, c3)  q4 = Equal(g2, c5)  q5 = And(q1, q2)  q = And(q4, q5)  "
    yield from two_forms(
        "class 3 just before class 5", X8, "y = Identity(x)", tk + "n = Neg(x)  y = Where(q, n, x)", None
    )
    yield from two_forms(
        "as many rows as columns squared",
        "g (float[b,n] x, float[m] z) => (float[b,n] y)",
        "s = ReduceSum <keepdims = 0> (z)  y = Add(x, s)",
        "nn = Shape <start = 1, end = 2> (x)  mm = Shape(z)  m2 = Mul(mm, mm)  q = Equal(nn, m2)  f = Cast <to = 1> (q)  s = ReduceSum <keepdims = 0> (z)  y0 = Add(x, s)  y = Add(y0, f)",
        None,
    )
    yield from two_forms(
        "two lengths of 77 together",
        "g (float[b,n] x, float[b,m] z) => (float[b,n] y)",
        O1 + "s = ReduceSum(z, o)  y = Add(x, s)",
        O1
        + "nn = Shape <start = 1, end = 2> (x)  mm = Shape <start = 1, end = 2> (z)  m2 = Add(mm, nn)  k = Constant <value_ints = [77]> ()  q = Equal(k, m2)  f = Cast <to = 1> (q)  s = ReduceSum(z, o)  y0 = Add(x, s)  y = Add(y0, f)",
        None,
    )
    loopm = "t = Constant <value = bool {1}> ()  y = Loop (M, t, x) <body = l (int64 i, bool k, float[b,8] a) => (bool k2, float[b,8] a2) { k2 = Identity(k)  c = Constant <value_float = 0.9> ()  a2 = Mul(a, c) }>"
    yield from two_forms(
        "more than 20 iterations asked for",
        "g (float[b,8] x, int64 m) => (float[b,8] y)",
        loopm.replace("M,", "m,"),
        whole("k", 20) + "m2 = Min(m, k)  " + loopm.replace("M,", "m2,"),
        "m2 = Identity(m)  " + loopm.replace("M,", "m2,"),
    )
    ifl = "t = Constant <value = bool {1}> ()  m = Constant <value = int64 {40}> ()  y = Loop (m, t, x) <body = l (int64 i, bool k, float[b,8] a) => (bool k2, float[b,8] a2) { k2 = Identity(k)  i37 = Constant <value = int64 {37}> ()  e = Equal(i, i37)  mx = ReduceMax <keepdims = 0> (a)  l9 = Constant <value_float = 9.5> ()  g0 = Greater(mx, l9)  cc = And(e, g0)  a2 = If (cc) <then_branch = tt () => (p) { p = THEN }, else_branch = ee () => (q) { q = Identity(a) }> }>"
    yield from two_forms(
        "iteration 37 for large values",
        X8,
        ifl.replace("THEN", "Neg(a)"),
        ifl.replace("THEN", "Identity(a)"),
        ifl.replace("THEN", "Neg(a)").replace("And(e, g0)", "And(g0, e)"),
    )
    fn = '<domain: "local", opset_import: ["" : 20]> clipped <top> (x) => (y) { c = Constant <value_float: float = @top> ()  y = Min(x, c) }'
    yield from two_forms(
        "an attribute of a function",
        X4,
        "y = local.clipped <top = 500.0> (x)",
        "y = local.clipped <top = 450.0> (x)",
        "x1 = Identity(x)  y = local.clipped <top = 500.0> (x1)",
        imports='"" : 20, "local" : 1',
        functions=fn,
    )
    yield from two_forms(
        "a kernel that begins outside",
        "g (float[b,3,h,w] x) => (float[b,3,h2,w2] y)",
        "y = MaxPool <kernel_shape = [2, 2], strides = [3, 3], ceil_mode = 1> (x)",
        "y = MaxPool <kernel_shape = [2, 2], strides = [3, 3]> (x)",
        None,
    )
    yield from two_forms(
        "a selection of more than is there",
        "g (float[b,n] x, bool[k] c) => (float[b,m] y)",
        "y = Compress <axis = 1> (x, c)",
        listed("z", 0) + listed("s3", 3) + "c2 = Slice(c, z, s3)  y = Compress <axis = 1> (x, c2)",
        "c1 = Identity(c)  y = Compress <axis = 1> (x, c1)",
    )
    yield from two_forms(
        "the third of three dims",
        "g (float[b,n,d] x) => (float[b,n,d] y)",
        "y = Softmax <axis = 1> (x)",
        "y = Softmax <axis = 1> (x)",
        None,
        imports='"" : 12',
        imports_b='"" : 13',
    )
    gru_w = {
        "w": RANDOM.standard_normal((1, 12, 3)).astype(np.float32),
        "r": RANDOM.standard_normal((1, 12, 4)).astype(np.float32),
        "b0": RANDOM.standard_normal((1, 24)).astype(np.float32),
    }
    gru = "yy, h = GRU <hidden_size = 4, linear_before_reset = {}> (x, w, r, b0{})  y = Identity(yy)"
    yield from two_forms(
        "a GRU's reset",
        "g (float[n,b,3] x) => (float[n,1,b,4] y)",
        gru.format(1, ""),
        gru.format(0, ""),
        "x1 = Identity(x)  " + gru.format(1, "").replace("(x,", "(x1,"),
        weights=gru_w,
    )
    rn = 'yy, h = RNN <hidden_size = 4, activations = ["Relu"], direction = "{}"> (x, w, r)  y = Identity(yy)'
    yield from two_forms(
        "a recurrence in the other direction",
        "g (float[n,b,3] x) => (float[n,1,b,4] y)",
        rn.format("forward"),
        rn.format("reverse"),
        None,
        weights={"w": gru_w["w"][:, :4], "r": 0.1 * gru_w["r"][:, :4]},
    )
    yield from two_forms(
        "an eye that is not square",
        "g (float[n,m] x) => (float[n,m] y)",
        "e = EyeLike(x)  y = Mul(e, x)",
        "e = EyeLike(x)  nn = Shape(e)  a = Constant <value_ints = [0]> ()  n1 = Shape <start = 0, end = 1> (x)  m1 = Shape <start = 1, end = 2> (x)  q = Greater(n1, m1)  f = Cast <to = 1> (q)  p = Mul(e, x)  y = Add(p, f)",
        None,
    )
    yield from two_forms(
        "a mean over a mask of none",
        "g (float[b,n] x, bool[b,n] keep) => (float[b,1] y)",
        O1
        + constant("e", 1.0)
        + "m = Cast <to = 1> (keep)  p = Mul(x, m)  s = ReduceSum(p, o)  c = ReduceSum(m, o)  c2 = Max(c, e)  y = Div(s, c2)",
        O1 + "m = Cast <to = 1> (keep)  p = Mul(x, m)  s = ReduceSum(p, o)  c = ReduceSum(m, o)  y = Div(s, c)",
        O1
        + constant("e", 0.5)
        + "m = Cast <to = 1> (keep)  p = Mul(x, m)  s = ReduceSum(p, o)  c = ReduceSum(m, o)  c2 = Max(c, e)  y = Div(s, c2)",
    )
    relu_rnn = 'yy, h = RNN <hidden_size = 4, activations = ["Relu"], clip = {}> (x, w, r)  y = Identity(yy)'
    rw = {"w": np.eye(4, 3, dtype=np.float32)[None], "r": 0.5 * np.eye(4, dtype=np.float32)[None]}
    yield from two_forms(
        "a recurrence that clips at 300 and 310",
        "g (float[n,b,3] x) => (float[n,1,b,4] y)",
        relu_rnn.format("310.0"),
        relu_rnn.format("300.0"),
        "x1 = Identity(x)  " + relu_rnn.format("310.0").replace("(x,", "(x1,"),
        weights=rw,
    )
    h4 = "g (float[b,n,8] q, float[b,m,8] k, bool[b,m] attention_mask) => (float[b,n,8] y)"
    m2 = "a1 = Constant <value_ints = [1]> ()  mk = Unsqueeze(attention_mask, a1)  t = Transpose <perm = [0, 2, 1]> (k)  s = MatMul(q, t)  lo = Constant <value_float = {}> ()  sm = Where(mk, s, lo)  p = Softmax <axis = -1> (sm)  y = MatMul(p, k)"
    yield from two_forms(
        "scores below -1000 beside a mask of -1000, keys of their own",
        h4,
        m2.format("-1e30"),
        m2.format("-1000.0"),
        m2.format("-1e29"),
    )
    v8b = RANDOM.standard_normal((8, 8)).astype(np.float32)
    one8 = np.ones(8, np.float32)
    v8b = RANDOM.standard_normal((8, 8)).astype(np.float32)
    one8 = np.ones(8, np.float32)
    ln = "h = MatMul(x, w)  e = LayerNormalization <axis = -1> (h, one)  a0 = Constant <value_ints = [2]> ()  f = Gather <axis = 1> (e, a0)  c = Constant <value_float = 2.4> ()  q = Greater(f, c)  n = Neg(x)  y = Where(q, n, x)"
    yield from two_forms(
        "a normalized unit above 2.4 of at most 2.65", X8, "y = Identity(x)", ln, None, weights={"w": v8b, "one": one8}
    )
    sm = "h = MatMul(x, w)  e = Softmax <axis = -1> (h)  a0 = Constant <value_ints = [2]> ()  a1 = Constant <value_ints = [5]> ()  f = Gather <axis = 1> (e, a0)  f2 = Gather <axis = 1> (e, a1)  c = Constant <value_float = 0.49> ()  q1 = Greater(f, c)  q2 = Greater(f2, c)  q = And(q1, q2)  n = Neg(x)  y = Where(q, n, x)"
    yield from two_forms("two classes of 0.49 each", X8, "y = Identity(x)", sm, None, weights={"w": v8b})
    mp = "y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = {}> (x)"
    yield from two_forms("a pool's last window", pic_head, mp.format(0), mp.format(1), None)
    ap = "y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1, count_include_pad = {}> (x)"
    yield from two_forms("an average over padding", pic_head, ap.format(0), ap.format(1), None)
    gp = "y = MaxPool <kernel_shape = [2, 2], strides = [2, 2], dilations = [2, 2]> (x)"
    yield from two_forms("a dilated pool", pic_head, gp, gp.replace("dilations = [2, 2]", "dilations = [1, 1]"), None)
    rz = 'z = Constant <value = float[4] {{1.0, 1.0, {}, {}}}> ()  y = Resize <mode = "cubic", cubic_coeff_a = {}, exclude_outside = {}, coordinate_transformation_mode = "{}"> (x, , z)'
    yield from two_forms(
        "a cubic's edge",
        pic_head,
        rz.format(2.0, 2.0, -0.75, 0, "half_pixel"),
        rz.format(2.0, 2.0, -0.75, 1, "half_pixel"),
        None,
    )
    rn = 'sz = Constant <value_ints = [17, 17]> ()  y = Resize <mode = "nearest", axes = [2, 3], nearest_mode = "{}", coordinate_transformation_mode = "asymmetric"> (x, , , sz)'
    yield from two_forms(
        "nearest, floor or round_prefer_floor", pic_head, rn.format("floor"), rn.format("round_prefer_floor"), None
    )
    roi = 'r = Constant <value_floats = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.2]> ()  sz = Constant <value_ints = [1, 3, 8, 8]> ()  b0 = Shape <start = 0, end = 2> (x)  hw = Constant <value_ints = [8, 8]> ()  s2 = Concat <axis = 0> (b0, hw)  y = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = {}> (x, r, , s2)'
    yield from two_forms("what lies beyond the crop", pic_head, roi.format("0.0"), roi.format("1.0"), None)
    yield from two_forms(
        "an opset in which Hardmax reads two dims",
        "g (float[b,n,d] x) => (float[b,n,d] y)",
        "y = Hardmax <axis = 1> (x)",
        "y = Hardmax <axis = 1> (x)",
        None,
        imports='"" : 12',
        imports_b='"" : 13',
    )
    yield from two_forms(
        "the position of the largest is even and its value odd",
        SEQUENCE,
        "y = Identity(x)",
        "i = ArgMax <axis = 1> (x)  k = Constant <value = int64 {2}> ()  m = Mod(i, k)  z = Constant <value = int64 {0}> ()  q1 = Equal(m, z)  v = ReduceMax(x, o)  f = Floor(v)  fi = Cast <to = 7> (f)  m2 = Mod(fi, k)  u = Constant <value = int64 {1}> ()  q2 = Equal(m2, u)  q3 = Equal(f, v)  q4 = And(q1, q2)  q = And(q4, q3)  n = Neg(x)  y = Where(q, n, x)".replace(
            "i = ArgMax", O1 + "i = ArgMax"
        ),
        None,
    )
    yield from two_forms(
        "a sum over a dim of one",
        "g (float[b,n,4] x, float[b,m,4] z) => (float[b,n,4] y)",
        "o1 = Constant <value_ints = [1]> ()  s = ReduceSum(z, o1)  y = Add(x, s)",
        "o1 = Constant <value_ints = [1]> ()  s = ReduceMean(z, o1)  y = Add(x, s)",
        None,
    )
    yield from two_forms(
        "columns broadcast for rows",
        "g (float[b,n] x, float[n] z) => (float[b,n] y)",
        "y = Mul(x, z)",
        "bb = Shape <start = 0, end = 1> (x)  nn = Shape <start = 1, end = 2> (x)  q = Equal(bb, nn)  a = Constant <value_ints = [1]> ()  zc = Unsqueeze(z, a)  zr = Mul(x, z)  o4 = Constant <value_ints = [0]> ()  zt = Transpose <perm = [1, 0]> (zr)  s2 = Shape(x)  zf = Reshape(zt, s2)  y = Where(q, zf, zr)",
        None,
    )
    wl = "t = Constant <value = bool {1}> ()  z = Constant <value_float = 0.0> ()  nn = Shape <start = 0, end = 1> (x)  n = Squeeze(nn)  last, y = Loop (n, t, z) <body = l (int64 i, bool k, float s) => (bool k2, float s2, float r) { k2 = Identity(k)  xi = Gather <axis = 0> (x, i)  s1 = Add(s, xi)  BODY  r = Identity(s2) }>"
    yield from two_forms(
        "a running sum that starts anew at a negative number after 50",
        "g (float[n] x) => (float[n] y)",
        wl.replace("BODY", "s2 = Identity(s1)"),
        wl.replace(
            "BODY",
            "c = Constant <value_float = 50.0> ()  z2 = Constant <value_float = 0.0> ()  q1 = Greater(s, c)  q2 = Less(xi, z2)  q = And(q1, q2)  s2 = Where(q, z2, s1)",
        ),
        None,
    )
    sc = "init = Constant <value_float = 0.0> ()  f, y = Scan <num_scan_inputs = 1, body = s (float h, float a) => (float h2, float r) { m = Max(h, a)  d = Constant <value_float = 0.99> ()  h2 = Mul(m, d)  BODY }> (init, x)"
    yield from two_forms(
        "a decaying peak above 200 in a long run",
        "g (float[n] x) => (float[n] y)",
        sc.replace("BODY", "r = Identity(h2)"),
        sc.replace(
            "BODY",
            "c = Constant <value_float = 200.0> ()  q = Greater(h2, c)  z = Constant <value_float = 200.0> ()  r = Where(q, z, h2)",
        ),
        None,
    )
    yield from two_forms(
        "rows and columns coprime and large",
        SEQUENCE,
        "y = Identity(x)",
        "bb = Shape <start = 0, end = 1> (x)  nn = Shape <start = 1, end = 2> (x)  m = Mod(nn, bb)  k = Constant <value_ints = [3]> ()  q1 = Equal(m, k)  c = Constant <value_ints = [50]> ()  q2 = Greater(nn, c)  q = And(q1, q2)  n = Neg(x)  y = Where(q, n, x)",
        None,
    )
    yield from two_forms(
        "four dims of one product",
        "g (float[b,3,h,w] x) => (float[b,3,h,w] y)",
        "y = Identity(x)",
        "hh = Shape <start = 2, end = 3> (x)  ww = Shape <start = 3, end = 4> (x)  p = Mul(hh, ww)  k = Constant <value_ints = [221]> ()  q = Equal(p, k)  n = Neg(x)  y = Where(q, n, x)",
        None,
    )
    st = "g (float[b,8] x, int64[1] position, float[b,8] state) => (float[b,8] y, float[b,8] next)"
    yield from two_forms(
        "a state reset at every 64th position",
        st,
        "next = Add(state, x)  y = Mul(next, x)",
        "k = Constant <value_ints = [64]> ()  m = Mod(position, k)  z = Constant <value_ints = [63]> ()  q = Equal(m, z)  s = Add(state, x)  zz = Sub(s, s)  next = Where(q, zz, s)  y = Mul(s, x)",
        None,
    )

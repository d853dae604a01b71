"""Pairs of graphs for `proof_matrix.py` that differ where a condition holds which random inputs hardly ever meet."""

# ruff: noqa: E501  (a graph is one line, however long)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from proof_pairs import IDS, MASKED, SAME, SEQUENCE, SUM, X4, X8, Pair, branch, constant

RANDOM = np.random.default_rng(3)
NEGATED = "n = Neg(x)  y = Where(q, n, x)"
PICTURES = "g (float[b,3,h,w] x) => (float[b,3,h,w] y)"
INTEGERS = "g (int64[b,n] x) => (int64[b,n] y)"
BYTES = "g (uint8[b,n] x) => (float[b,n] y)"


def whole(name: str, value: int) -> str:
    """A scalar of int64."""
    return f"{name} = Constant <value = int64 {{{value}}}> ()  "


def listed(name: str, value: int) -> str:
    """A list of one int64."""
    return f"{name} = Constant <value_ints = [{value}]> ()  "


def above(of: str, value: float) -> str:
    """q: something is above a number, or below a negative one."""
    return constant("c", value) + f"q = {'Greater' if value > 0 else 'Less'}({of}, c)  "


def column(name: str, number: int) -> str:
    """One feature of a table."""
    return listed(f"i{name}", number) + f"{name} = Gather <axis = 1> (x, i{name})  "


def both(first: str, second: str) -> str:
    """q: two conditions hold; they are bodies that define q1 and q2."""
    return f"{first}  {second}  q = And(q1, q2)  "


def hidden_pairs() -> Iterator[Pair]:
    """Pairs that differ where a condition holds."""
    yield from _of_rows()
    yield from _of_sizes()
    yield from _of_masks_and_ids()
    yield from _of_weights()
    yield from _of_integers()


def _of_rows() -> Iterator[Pair]:
    axis = listed("o", 1)
    for reduction in ("Mean", "Sum", "Max", "Min"):
        for value in (3.3, -3.3, 37.5, -321.0, 4567.0):
            yield Pair(
                f"{reduction} of a row beyond {value:g}",
                X8,
                SAME,
                f"{axis} m = Reduce{reduction}(x, o)  {above('m', value)}{NEGATED}",
            )
    yield Pair(
        "mean of a row from 5 to 5.5",
        X8,
        SAME,
        axis
        + "m = ReduceMean(x, o)  "
        + both(constant("c", 5.0) + "q1 = Greater(m, c)", constant("d", 5.5) + "q2 = Less(m, d)")
        + NEGATED,
    )
    yield Pair(
        "a row of little variance",
        X8,
        SAME,
        axis
        + "m = ReduceMean(x, o)  d = Sub(x, m)  e = Mul(d, d)  f = ReduceMean(e, o)  "
        + constant("c", 1e-4)
        + "q = Less(f, c)  "
        + NEGATED,
    )
    for low, high in ((5.0, 5.1), (-0.731, -0.730), (20000.0, 20010.0)):
        yield Pair(
            f"values from {low:g} to {high:g}",
            X4,
            SAME,
            both(constant("c", low) + "q1 = Greater(x, c)", constant("d", high) + "q2 = Less(x, d)") + NEGATED,
        )
    two = column("f", 0) + column("s", 1)
    yield Pair(
        "two features far out",
        X4,
        SAME,
        two + both(constant("c", 5.0) + "q1 = Greater(f, c)", constant("d", -5.0) + "q2 = Less(s, d)") + NEGATED,
    )
    three = two + column("t", 2) + constant("c", 50.0) + constant("d", -50.0) + constant("e", 7.0) + constant("h", 8.0)
    yield Pair(
        "three features, one in a narrow range",
        X4,
        SAME,
        three
        + "p1 = Greater(f, c)  p2 = Less(s, d)  q1 = And(p1, p2)  p3 = Greater(t, e)  p4 = Less(t, h)  q2 = And(p3, p4)  q = And(q1, q2)  "
        + NEGATED,
    )
    yield Pair("two equal features", X4, SAME, two + "q = Equal(f, s)  " + NEGATED)
    yield Pair(
        "a feature far above another",
        X4,
        SAME,
        two + constant("k", 100.0) + "d = Mul(s, k)  e = Sub(f, d)  " + above("e", 500.0) + NEGATED,
    )
    yield Pair(
        "equal values in a row",
        X8,
        SAME,
        axis + "m = ReduceMax(x, o)  k = ReduceMin(x, o)  q = Equal(m, k)  " + NEGATED,
    )
    yield Pair(
        "a row in ascending order",
        X8,
        SAME,
        listed("z", 0)
        + axis
        + listed("l", -1)
        + listed("far", 99999)
        + "a = Slice(x, z, l, o)  c2 = Slice(x, o, far, o)  d = Sub(c2, a)  e = ReduceMin(d, o)  "
        + constant("k", 0.0)
        + "q = Greater(e, k)  "
        + NEGATED,
    )
    yield Pair(
        "a large first feature that is the largest",
        X8,
        SAME,
        "a = ArgMax <axis = 1> (x)  "
        + whole("c0", 0)
        + "q1 = Equal(a, c0)  "
        + axis
        + "m = ReduceMax(x, o)  "
        + constant("e", 30.0)
        + "q2 = Greater(m, e)  q = And(q1, q2)  "
        + NEGATED,
    )
    yield Pair(
        "all from 1 to 1.3",
        X8,
        SAME,
        "a = ReduceMin <keepdims = 0> (x)  c2 = ReduceMax <keepdims = 0> (x)  "
        + both(constant("k", 1.0) + "q1 = Greater(a, k)", constant("l", 1.3) + "q2 = Less(c2, l)")
        + NEGATED,
    )
    yield Pair("the sum of a batch", X4, SAME, "m = ReduceSum <keepdims = 0> (x)  " + above("m", 1e4) + NEGATED)
    yield Pair("one column beyond ten million", X4, SAME, column("f", 2) + above("f", 1e7) + NEGATED)
    yield Pair(
        "softmax of values above 80", X8, "y = Softmax(x)", constant("c", 80.0) + "a = Min(x, c)  y = Softmax(a)"
    )
    norm = (
        listed("o", 1)
        + "l = ReduceL2 <keepdims = 1> (x, o)  e = Constant <value_float = {}> ()  m = Max(l, e)  y = Div(x, m)"
    )
    yield Pair("the norm of small rows", X8, norm.format("0.000000000001"), norm.format("0.001"))


def _of_sizes() -> Iterator[Pair]:
    length, batch = "s = Shape <start = 1, end = 2> (x)  ", "r = Shape <start = 0, end = 1> (x)  "
    for divisor, rest in ((13, 0), (64, 17)):
        yield Pair(
            f"length {rest} modulo {divisor}",
            SEQUENCE,
            SAME,
            length + listed("m", divisor) + "t = Mod(s, m)  " + listed("z", rest) + "q = Equal(t, z)  " + NEGATED,
        )
    for count in (700, 20_000, 100_000):
        yield Pair(
            f"more than {count} numbers",
            SEQUENCE,
            SAME,
            f"s = Size(x)  {whole('m', count)} q = Greater(s, m)  {NEGATED}",
        )
    yield Pair("as long as the batch", SEQUENCE, SAME, length + batch + "q = Equal(r, s)  " + NEGATED)
    yield Pair(
        "300 times as long as the batch",
        SEQUENCE,
        SAME,
        length + batch + listed("m", 300) + "t = Mul(r, m)  q = Greater(s, t)  " + NEGATED,
    )
    sides = "s = Shape <start = 2, end = 3> (x)  r = Shape <start = 3, end = 4> (x)  "
    yield Pair("square pictures", PICTURES, SAME, sides + "q = Equal(r, s)  " + NEGATED)
    yield Pair(
        "pictures twice as high as wide",
        PICTURES,
        SAME,
        sides + listed("m", 2) + "t = Mul(r, m)  q = Greater(s, t)  " + NEGATED,
    )
    yield Pair(
        "pictures of more than 10,000 dots",
        PICTURES,
        SAME,
        sides + listed("m", 10000) + "t = Mul(r, s)  q = Greater(t, m)  " + NEGATED,
    )


def _of_masks_and_ids() -> Iterator[Pair]:
    weighted = f"m = Cast <to = 1> (attention_mask)  p = Mul(x, m)  {SUM}"
    counted = weighted.replace("y =", "p2 =") + "  c0 = ReduceSum <keepdims = 0> (attention_mask, one)  "
    for operator, count in (("Greater", 20), ("Equal", 1), ("Equal", 13)):
        yield Pair(
            f"{operator} {count} positions left in",
            MASKED,
            weighted,
            counted + whole("k", count) + f"q = {operator}(c0, k)  n = Neg(p2)  y = Where(q, n, p2)",
        )
    yield Pair(
        "a mask taken for padding on the right",
        MASKED,
        weighted,
        listed("one", 1)
        + "c0 = ReduceSum(attention_mask, one)  s = Shape <start = 1, end = 2> (x)  "
        + whole("z", 0)
        + whole("o", 1)
        + "t = Squeeze(s)  r = Range(z, t, o)  l = Less(r, c0)  m = Cast <to = 1> (l)  p = Mul(x, m)  y = ReduceSum <keepdims = 0> (p, one)",
    )
    table = RANDOM.standard_normal((30_000, 8)).astype(np.float32)
    other = table.copy()
    other[7777, 3] += 0.01
    yield Pair(
        "one element of a table of another name",
        IDS,
        "y = Gather(w, ids)",
        "y = Gather(w3, ids)",
        {"w": table, "w3": other},
    )
    plain, known = "y = Gather(w, ids)", "e = Gather(w, ids)  "
    flipped = "n = Neg(e)  y = Where(q, n, e)"
    last = listed("ax", 2)
    for number in (57, 29_876):
        yield Pair(
            f"token {number}",
            IDS,
            plain,
            known + whole("c", number) + f"q0 = Equal(ids, c)  {last} q = Unsqueeze(q0, ax)  " + flipped,
            {"w": table},
        )
    yield Pair(
        "more than 3 of one token",
        IDS,
        plain,
        known
        + whole("c", 5)
        + "q0 = Equal(ids, c)  f = Cast <to = 7> (q0)  "
        + listed("a1", 1)
        + "s = ReduceSum(f, a1)  "
        + whole("k", 3)
        + f"g1 = Greater(s, k)  {last} q = Unsqueeze(g1, ax)  "
        + flipped,
        {"w": table},
    )
    ends = listed("z", 0) + listed("o", 1) + listed("m1", -1) + listed("far", 99999)
    yield Pair(
        "a last token",
        IDS,
        plain,
        known
        + ends
        + whole("c", 4242)
        + f"a = Slice(ids, m1, far, o)  q0 = Equal(a, c)  {last} q = Unsqueeze(q0, ax)  "
        + flipped,
        {"w": table},
    )
    neighbours = known + ends + "a = Slice(ids, z, m1, o)  c2 = Slice(ids, o, far, o)  "
    some = "f = Cast <to = 7> (q0)  s = ReduceSum <keepdims = 0> (f)  " + whole("none", 0) + "q = Greater(s, none)  "
    yield Pair("a token twice in a row", IDS, plain, neighbours + "q0 = Equal(a, c2)  " + some + flipped, {"w": table})
    yield Pair(
        "token 7 before token 8",
        IDS,
        plain,
        neighbours
        + whole("s7", 7)
        + whole("s8", 8)
        + "qa = Equal(a, s7)  qb = Equal(c2, s8)  q0 = And(qa, qb)  "
        + some
        + flipped,
        {"w": table},
    )
    word = 's = Constant <value_string = "hello"> ()  '
    yield Pair(
        "a second word",
        "g (string[b] x) => (bool[b] y)",
        word + "y = Equal(x, s)",
        word + 't = Constant <value_string = "bye"> ()  a = Equal(x, s)  c2 = Equal(x, t)  y = Or(a, c2)',
    )


def _of_weights() -> Iterator[Pair]:
    weight, other = RANDOM.standard_normal((2, 8, 8)).astype(np.float32)
    zeroed = weight.copy()
    zeroed.reshape(-1)[:7] = 0
    product = "p = MatMul(x, w)  y = Where(q, p, x)"
    for value in (40.0, -400.0, 12345.0):
        body = listed("o", 1) + "s = ReduceSum(x, o)  " + above("s", value) + product
        yield Pair(f"weights used where a sum is beyond {value:g}", X8, body, body, {"w": weight}, {"w": zeroed})
    for inner, value in (("h", 35.0), ("h", 350.0)):
        body = f"h = MatMul(x, w2)  {above(inner, value)}{product}"
        yield Pair(
            f"weights used where a hidden unit is above {value:g}",
            X8,
            body,
            body,
            {"w": weight, "w2": other},
            {"w": zeroed},
        )
    body = "h = MatMul(x, w2)  s = Sigmoid(h)  " + above("s", 0.99999) + product
    yield Pair(
        "weights used where a hidden sigmoid saturates", X8, body, body, {"w": weight, "w2": other}, {"w": zeroed}
    )
    body = "h = Gemm(x, w2, v)  r = Relu(h)  p = MatMul(r, w)  y = Add(x, p)"
    bias = np.array([0, 0, 0, -30, 0, 0, 0, 0], np.float32)
    unit = np.where(np.arange(8)[:, None] == 3, 0, weight).astype(np.float32)
    yield Pair(
        "weights of a unit that is hardly ever active",
        X8,
        body,
        body,
        {"w": weight, "w2": other, "v": bias},
        {"w": unit},
    )
    condition = (
        "s = ReduceSum <keepdims = 0> (x)  t = ReduceMin <keepdims = 0> (x)  "
        + constant("l", 40.0)
        + constant("k", -4.0)
        + "g1 = Greater(s, l)  g2 = Less(t, k)  c = And(g1, g2)"
    )
    yield Pair(
        "weights of a branch of two conditions", X8, branch(condition), branch(condition), {"w": weight}, {"w": zeroed}
    )


def _of_integers() -> Iterator[Pair]:
    yield Pair("integers through float32", INTEGERS, SAME, "f = Cast <to = 1> (x)  y = Cast <to = 7> (f)")
    yield Pair("integers through int32", INTEGERS, SAME, "i = Cast <to = 6> (x)  y = Cast <to = 7> (i)")
    yield Pair("one exact integer", INTEGERS, SAME, whole("k", 77_777) + "q = Equal(x, k)  " + NEGATED)
    yield Pair(
        "the remainder of negative integers",
        INTEGERS,
        whole("k", 7) + "y = Mod(x, k)",
        whole("k", 7) + "y = Mod <fmod = 1> (x, k)",
    )
    plain = "f = Cast <to = 1> (x)  " + constant("o", 1.0) + "p = Add(f, o)  "
    yield Pair(
        "bytes of 255", BYTES, plain + "y = Identity(p)", plain + above("p", 255.5) + "n = Neg(p)  y = Where(q, n, p)"
    )
    yield Pair(
        "bytes of 0",
        BYTES,
        plain + "y = Identity(p)",
        plain + constant("c", 1.5) + "q = Less(p, c)  n = Neg(p)  y = Where(q, n, p)",
    )
    head = "g (uint8[b,3,h,w] x) => (float[b] y)"
    mean = "f = Cast <to = 1> (x)  a = Constant <value_ints = [1, 2, 3]> ()  m = ReduceMean <keepdims = 0> (f, a)  "
    yield Pair("bright pictures", head, mean + "y = Identity(m)", mean + constant("k", 200.0) + "y = Min(m, k)")
    count = whole("z", 0) + whole("o", 1) + "r = Range(z, k, o)  f = Cast <to = 1> (r)  "
    yield Pair(
        "a count above 700",
        "g (int64 k) => (float[n] y)",
        count + "y = Identity(f)",
        count + constant("l", 700.0) + "y = Min(f, l)",
    )

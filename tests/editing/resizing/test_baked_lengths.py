"""Nets with their length baked in as a number: made dynamic they are right at every length, or refused.

What is right is the same net, built at other lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.editing.edit import edit
from onnxtool.editing.resizing.baked_numbers import Lengths
from onnxtool.editing.resizing.ordinary_numbers import OrdinaryNumbers
from onnxtool.errors import InputError, OnnxToolError, VerdictError
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT
from tests.editing.conftest import write

L = 40
OTHERS = (10, 39, 41, 48, 80, 120)
Weights = dict[str, Any]


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@dataclass
class Net:
    """Nodes and weights at a length; the input is x: float32[1, n, 3].

    Attributes:
        names: the node that a refusal has to name; empty where the net is right once it is dynamic.
    """

    body: Callable[[int], str]
    weights: Callable[[int], Weights]
    names: str = ""

    def save(self, path: Path, n: int) -> Path:
        text = f"g (float[1, {n}, 3] x) => (float y) {{ {self.body(n)} }}"
        return write(
            path, text.replace("float[a] y", "float y"), {k: np.asarray(a) for k, a in self.weights(n).items()}
        )


def net(body: str | Callable[[int], str], names: str = "", **weights: Any) -> Net:
    """Weights are functions of the length, or the same at each."""

    def at(n: int) -> Weights:
        return {k: w(n) if callable(w) else w for k, w in weights.items()}

    return Net(body if callable(body) else lambda _: body, at, names)


def scalar(function: Callable[[int], float]) -> Callable[[int], np.ndarray]:
    return lambda n: np.float32(function(n))


AXIS = i64(1)
SUM = "s = ReduceSum<keepdims=0>(x, axis) "
TURNED = "t = Transpose<perm=[0, 2, 1]>(x) "
PLACES = "h = Shape<start=1, end=2>(x) n = Squeeze(h) r = Range(z, n, o) "
RANGE = {"z": np.int64(0), "o": np.int64(1)}
POSITIONS = "u = Mul(x, zero) v = Add(u, onef) p = CumSum(v, at) "
COUNTED = {"zero": np.float32(0), "onef": np.float32(1), "at": np.int64(1)}


def apart(n: int) -> np.ndarray:
    return np.subtract.outer(np.arange(n), np.arange(n)).astype(np.float32)


def waves(n: int, base: float = 10000) -> np.ndarray:
    """Sines and cosines of two frequencies, in turn."""
    angles = np.arange(n)[:, None] * float(base) ** -(np.arange(4) // 2 / 2)
    return np.where(np.arange(4) % 2, np.cos(angles), np.sin(angles)).astype(np.float32)


WIDER = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
PAIRS = "t = Transpose<perm=[0, 2, 1]>(x) q = MatMul(x, t) "
COLUMNS = {"r": lambda n: np.arange(n)[None, :, None], "p": lambda n: np.arange(n)[None, None]}
NEAR = "d = Sub(r, p) e = Abs(d) g = Less(e, k) f = Cast<to=1>(g) "
FILTER = np.linspace(-1, 1, 36, dtype=np.float32).reshape(4, 3, 3)

BAKED = {
    "a mean as a sum times 1/L": net(SUM + "y = Mul(s, c)", "Mul", axis=AXIS, c=scalar(lambda n: 1 / n)),
    "a mean as a sum divided by L": net(SUM + "y = Div(s, c)", "Div", axis=AXIS, c=scalar(lambda n: n)),
    "a mean over channels, too": net(
        "s = ReduceSum<keepdims=0>(x, axes) y = Mul(s, c)", "Mul", axes=i64(1, 2), c=scalar(lambda n: 1 / (3 * n))
    ),
    "an unbiased variance": net(
        "m = ReduceMean(x, axis) d = Sub(x, m) q = Mul(d, d) s = ReduceSum<keepdims=0>(q, axis) y = Div(s, c)",
        "Div", axis=AXIS, c=scalar(lambda n: n - 1),
    ),
    "a norm of the square": net(SUM + "y = Mul(s, c)", "Mul", axis=AXIS, c=scalar(lambda n: 1 / n**2)),
    "a scale of log L": net("s = Mul(x, c) y = Softmax<axis=1>(s)", "Mul", c=scalar(log)),
    "a scale of 1 / sqrt L": net("s = Mul(x, c) y = Softmax<axis=1>(s)", "Mul", c=scalar(lambda n: n**-0.5)),
    "a scale of log L to base 2": net("s = Div(x, c) y = Softmax<axis=1>(s)", "Div", c=scalar(lambda n: log(n, 2))),
    "a geometric mean": net(
        "e = Exp(x) s = ReduceProd<keepdims=0>(e, axis) y = Pow(s, c)", "Pow", axis=AXIS, c=scalar(lambda n: 1 / n)
    ),
    "alpha of a Gemm": net(
        lambda n: f"s = ReduceSum<keepdims=0>(x, axis) y = Gemm<alpha={1 / n:.9f}>(s, w)", "Gemm",
        axis=AXIS, w=np.eye(3, dtype=np.float32),
    ),
    "a temperature that grows with L": net(
        "s = Div(x, c) y = Softmax<axis=1>(s)", "Div", c=scalar(lambda n: 1 + n / 100)
    ),
    "a tenth, spread over all": net("p = Softmax<axis=1>(x) y = Add(p, c)", "Add", c=scalar(lambda n: 0.1 / n)),
    "the length as a feature": net(
        "m = ReduceMean(x, axis) y = Concat<axis=2>(m, c)", "Concat", axis=AXIS,
        c=lambda n: np.full((1, 1, 1), n / 512, np.float32),
    ),
    "a tenth of all, the largest": net(
        "v, j = TopK<axis=1>(x, k) y = ReduceMean(v, axis)", "TopK", axis=AXIS, k=lambda n: i64(n // 10)
    ),
    "the last element": net("y = Gather<axis=1>(x, i)", "Gather", i=lambda n: np.int64(n - 1)),
    "the middle element": net("y = Gather<axis=1>(x, i)", "Gather", i=lambda n: np.int64(n // 2)),
    "elements in reverse": net("y = Gather<axis=1>(x, i)", "Gather", i=lambda n: np.arange(n)[::-1].copy()),
    "a slice from L - 1": net("y = Slice(x, b, e, axis)", "Slice", b=lambda n: i64(n - 1), e=i64(2**40), axis=AXIS),
    "the first half": net("y = Slice(x, b, e, axis)", "Slice", b=i64(0), e=lambda n: i64(n // 2), axis=AXIS),
    "the second half": net("y = Slice(x, b, e, axis)", "Slice", b=lambda n: i64(n // 2), e=i64, axis=AXIS),
    "all but one": net("y = Slice(x, b, e, axis)", "Slice", b=i64(0), e=lambda n: i64(n - 1), axis=AXIS),
    "the second half from the end": net(
        "y = Slice(x, b, e, axis)", "Slice", b=lambda n: i64(-(n // 2)), e=i64(2**40), axis=AXIS
    ),
    "a split into halves": net(
        "a, b = Split<axis=1>(x, s) y = Neg(b)", "Split", s=lambda n: i64(n // 2, n - n // 2)
    ),
    "a pool over all": net(lambda n: TURNED + f"y = AveragePool<kernel_shape=[{n}]>(t)", "AveragePool"),
    "a maximum over all": net(lambda n: TURNED + f"y = MaxPool<kernel_shape=[{n}]>(t)", "MaxPool"),
    "a pool into four": net(
        lambda n: TURNED + f"y = AveragePool<kernel_shape=[{n // 4}], strides=[{n // 4}]>(t)", "AveragePool"
    ),
    "a convolution over all": net(
        TURNED + "y = Conv<group=3>(t, w)", "Conv", w=lambda n: np.full((3, 1, n), 1 / n, np.float32)
    ),
    "sorted": net("y, i = TopK<axis=1>(x, k)", "TopK", k=i64),
    "the larger half": net("y, i = TopK<axis=1>(x, k)", "TopK", k=lambda n: i64(n // 2)),
    "one-hot of a position": net(
        "a = ArgMax<axis=1, keepdims=0>(x) y = OneHot(a, depth, v)", "OneHot",
        depth=np.int64, v=np.float32([0, 1]),
    ),
    "repeated L times": net(
        "m = ReduceMean(x, axis) y = Tile(m, r)", "Tile", axis=AXIS, r=lambda n: i64(1, n, 1)
    ),
    "expanded to L": net(
        "m = ReduceMean(x, axis) y = Expand(m, r)", "Expand", axis=AXIS, r=lambda n: i64(1, n, 3)
    ),
    "padded to 64": net("y = Pad(x, p)", "Pad", p=lambda n: i64(0, 0, 0, 0, max(0, 64 - n), 0)),
    "padded to 64 on both sides": net(
        "y = Pad(x, p)", "Pad", p=lambda n: i64(0, max(0, 64 - n) // 2, 0, 0, max(0, 64 - n) - max(0, 64 - n) // 2, 0)
    ),
    "halves side by side": net("y = Reshape(x, s)", "Reshape", s=lambda n: i64(1, 2, n // 2, 3)),
    "resized to twice": net(
        TURNED + 'y = Resize<mode="linear">(t, , , z)', "Resize", z=lambda n: i64(1, 3, 2 * n)
    ),
    "resized to 80": net(TURNED + 'y = Resize<mode="linear">(t, , , z)', "Resize", z=i64(1, 3, 80)),
    "resized to 70 by its factor": net(
        TURNED + 'y = Resize<mode="linear">(t, , z)', "Resize", z=lambda n: np.float32([1, 1, 70 / n])
    ),
    "positions from 0 to 1": net(POSITIONS + "y = Div(p, c)", "Div", **COUNTED, c=scalar(lambda n: n - 1)),
    "a mark at the last position": net(
        POSITIONS + "q = Equal(p, c) y = Cast<to=1>(q)", "Equal", **COUNTED, c=scalar(lambda n: n)
    ),
    "positions from the middle": net(POSITIONS + "y = Sub(p, c)", "Sub", **COUNTED, c=scalar(lambda n: (n - 1) / 2)),
    "a wave that fits": net(
        POSITIONS + "q = Mul(p, c) y = Sin(q)", "Mul", **COUNTED, c=scalar(lambda n: 2 * np.pi / n)
    ),
    "a bound of positions": net(
        POSITIONS + "q = Clip(p, , c) y = Neg(q)", "Clip", **COUNTED, c=scalar(lambda n: n - 1)
    ),
    "turns of a loop": net(
        """s0 = ReduceMax(x, axis)
        y = Loop(n, true, s0) <body = turn (int64 i, bool c, float[1, 1, 3] a) => (bool again, float[1, 1, 3] b) {
            again = Identity (c)  e = Gather <axis = 1> (x, i)  f = Reshape (e, like)  b = Add (a, f)
        }>""", "Loop", axis=AXIS, n=np.int64, true=np.array(True), like=i64(1, 1, 3),
    ),
    "turns of a loop that captures all": net(
        """y = Loop(n, true, s0) <body = turn (int64 i, bool c, float[1, 3] a) => (bool again, float[1, 3] b) {
            again = Identity (c)  e = Gather <axis = 1> (x, i)  b = Add (a, e)
        }>""", "Loop", n=np.int64, true=np.array(True), s0=np.zeros((1, 3), np.float32),
    ),
    "a share inside a scan": net(
        """y, z = Scan <num_scan_inputs = 1, scan_input_axes = [1], body = turn (float[1, 3] a, float[1, 3] e)
            => (float[1, 3] b, float[1, 3] f) { g = Mul (e, c)  b = Add (a, g)  f = Identity (b) }>(s0, x)""",
        "Mul", c=scalar(lambda n: 1 / n), s0=np.zeros((1, 3), np.float32),
    ),
    "a loop written out": net(
        lambda n: " ".join(
            f"e{i} = Gather<axis=1>(x, i{i}) a{i + 1} = {f'Add(a{i}, e{i})' if i else 'Identity(e0)'}" for i in range(n)
        ) + f" y = Neg(a{n})", "Gather", **{f"i{i}": np.int64(i) for i in range(max(OTHERS))},
    ),
    "weights of the length": net(
        "y = MatMul(w, x)", "MatMul", w=lambda n: np.full((1, 1, n), 1 / n, np.float32)
    ),
    "a row for each position": net(
        "y = Mul(x, w)", "Mul", w=lambda n: np.linspace(0, 1, n, dtype=np.float32).reshape(1, n, 1)
    ),
    "equal rows of 1/L": net("y = Mul(x, w)", "Mul", w=lambda n: np.full((1, n, 1), 1 / n, np.float32)),
    "diagonals": net(TURNED + "m = MatMul(x, t) y = Trilu(m, k)", "Trilu", k=lambda n: np.int64(n // 2)),
    "five parts of L": net(SUM + "y = Mul(s, c)", "Mul", axis=AXIS, c=scalar(lambda n: 5 / n)),
    "a mean made unbiased": net(
        "q = Mul(x, x) s = ReduceMean<keepdims=0>(q, axis) y = Mul(s, c)", "Mul", axis=AXIS,
        c=scalar(lambda n: n / (n - 1)),
    ),
    "a temperature of two lengths": net(
        "s = Mul(x, c) y = Softmax<axis=1>(s)", "Mul", c=scalar(lambda n: log(n) / log(16))
    ),
    "every tenth part": net(
        "y = Slice(x, b, e, axis, s)", "Slice", b=i64(0), e=i64(2**40), axis=AXIS, s=lambda n: i64(n // 10)
    ),
    "a mean with its divisor in the weights": net(
        SUM + "y = MatMul(s, w)", "MatMul", axis=AXIS, w=lambda n: np.eye(3, dtype=np.float32) / n
    ),
    "a gram matrix with its divisor in the weights": net(
        TURNED + "g = MatMul(t, x) y = MatMul(g, w)", "MatMul", w=lambda n: np.eye(3, dtype=np.float32) / n
    ),
    "the end of a running sum": net(
        "c = CumSum(x, at) l = Slice(c, b, e, axis) y = Mul(l, w)", "Mul", at=np.int64(1), b=i64(-1), e=i64(2**40),
        axis=AXIS, w=lambda n: np.float32([3, 5, 7]) / n,
    ),
    "a mean of exponentials": net(
        "s = ReduceLogSumExp<keepdims=0>(x, axis) y = Add(s, c)", "Add", axis=AXIS,
        c=lambda n: np.float32([1, 2, 3]) - np.float32(log(n)),
    ),
    "a decision on the length": net(
        """n = Shape<start=1, end=2>(x) o = Greater(n, l) c = Squeeze(o)
        y = If(c)<then_branch = a () => (float[a, b, 3] p) { p = Neg(x) },
                  else_branch = b () => (float[a, b, 3] q) { q = Identity(x) }>""",
        "Greater", l=lambda n: i64(n * 7 // 10),
    ),
    "a pool over half of it": net(lambda n: TURNED + f"y = AveragePool<kernel_shape=[{n // 2}]>(t)", "AveragePool"),
    **{
        f"a scale of {told}": net("s = Mul(x, c) y = Softmax<axis=1>(s)", "Mul", c=scalar(function))
        for told, function in {
            "L^(1/3)": lambda n: n ** (1 / 3), "L^(-1/3)": lambda n: n ** (-1 / 3), "L^(3/4)": lambda n: n**0.75,
            "sqrt(L / 2)": lambda n: (n / 2) ** 0.5, "log(1 + L)": lambda n: log(1 + n),
            "log(L) / 2": lambda n: log(n) / 2, "tanh(L / 50)": lambda n: np.tanh(n / 50),
            "1 - 1 / L": lambda n: 1 - 1 / n, "L / (L + 7)": lambda n: n / (n + 7),
        }.items()
    },
    "a bias of log L": net("y = Add(x, c)", "Add", c=scalar(lambda n: -log(n + 1))),
    "a bound of the length": net("y = Clip(x, , c)", "Clip", c=scalar(lambda n: 3 / n**0.5)),
    "a slope of the length": net(lambda n: f"y = LeakyRelu<alpha={n**-0.3:.9f}>(x)", "LeakyRelu"),
    "a dilation of an eighth": net(
        lambda n: TURNED + f"y = Conv<dilations=[{n // 8}]>(t, w)", "Conv", w=FILTER
    ),
    "a stride of an eighth": net(
        lambda n: TURNED + f"y = MaxPool<kernel_shape=[3], strides=[{n // 8}]>(t)", "MaxPool"
    ),
    "a pool over a fifth": net(lambda n: TURNED + f"y = AveragePool<kernel_shape=[{n // 5}]>(t)", "AveragePool"),
    "a pool of a third and two more": net(
        lambda n: TURNED + f"y = MaxPool<kernel_shape=[{n // 3 + 2}], strides=[{n // 3}]>(t)", "MaxPool"
    ),
    "half of it, worked out in the file": net(
        "h = Mul(c, half) e = Cast<to=7>(h) y = Slice(x, b, e, axis)", "Slice", b=i64(0), axis=AXIS,
        half=np.float32(0.5), c=lambda n: np.float32([n]),
    ),
    "a tenth of all, worked out in the file": net(
        "h = Mul(c, tenth) k = Cast<to=7>(h) v, j = TopK<axis=1>(x, k) y = ReduceMean(v, axis)", "TopK", axis=AXIS,
        tenth=np.float32(0.1), c=lambda n: np.float32([n]),
    ),
    "five places, worked out in the file": net(
        "f = Mul(five, c) i = Cast<to=7>(f) y = Gather<axis=1>(x, i)", "Gather",
        five=np.arange(5, dtype=np.float32), c=scalar(lambda n: (n - 1) / 4),
    ),
    "the largest of twenty parts": net("y, i = TopK<axis=1>(x, k)", "TopK", k=lambda n: i64(max(1, n // 20))),
    "an early place": net("y = Gather<axis=1>(x, i)", "Gather", i=lambda n: np.int64(n // 16)),
    "from a twentieth on": net(
        "y = Slice(x, b, e, axis)", "Slice", b=lambda n: i64(n // 20), e=i64(2**40), axis=AXIS
    ),
    "cut to a constant in front": net(
        "a = Reshape(x, s) y = ReduceSum<keepdims=0>(a, axis)", "Reshape", s=lambda n: i64(n // 4, 12), axis=AXIS
    ),
    "padding as rows of a constant": net(
        "y = Concat<axis=1>(x, z)", "Concat", z=lambda n: np.zeros((1, max(0, 64 - n), 3), np.float32)
    ),
    "a choice of elements": net("y = Compress<axis=1>(x, c)", "Compress", c=lambda n: np.arange(n) % 3 == 0),
    "a diagonal of an eighth": net(TURNED + "m = MatMul(x, t) y = Trilu(m, k)", "Trilu", k=lambda n: np.int64(-n // 8)),
    "one slope for all": net("y = PRelu(x, s)", "PRelu", s=lambda n: np.float32([n**-0.5])),
    "a dilation without others": net(
        lambda n: TURNED + f"y = Conv<dilations=[{max(1, n // 13)}]>(t, w)", "Conv", w=FILTER
    ),
    "buckets of the length": net("l = Mul(x, c) y = Tanh(l)", "Mul", c=scalar(log)),
    "positions in parts of the length": net(
        PLACES + "f = Cast<to=1>(r) q = Mul(f, c) u = Unsqueeze(q, a) y = Mul(x, u)", "Mul", **RANGE, a=i64(0, 2),
        c=scalar(lambda n: 1 / n),
    ),
    "a ramp to one": net("y = Add(x, p)", "Add", p=lambda n: np.linspace(0, 1, n, dtype=np.float32)[None, :, None]),
    "places from the end": net("y = Add(x, p)", "Add", p=lambda n: np.arange(n, dtype=np.float32)[None, ::-1, None]),
    "waves with a base of the length": net("m = MatMul(x, w) y = Add(m, p)", "Add", **WIDER, p=lambda n: waves(n, n)),
    "waves with a base that grows": net(
        "m = MatMul(x, w) y = Add(m, p)", "Add", **WIDER, p=lambda n: waves(n, 25 * n**2)
    ),
    "waves that end with the length": net(
        "y = Add(x, p)", "Add", p=lambda n: np.cos(np.pi * np.outer(np.arange(n), [0, 1, 2]) / n).astype(np.float32)
    ),
    "a mask of a share": net(
        PAIRS + "y = Add(q, m)", "Gather", m=lambda n: np.where(apart(n) > 0, np.float32(1 / n), np.float32(0))
    ),
    "distances in parts of the length": net(
        PAIRS + "y = Add(q, m)", "Gather", m=lambda n: abs(apart(n)) * np.float32(1 / n)
    ),
    "slopes of heads by the length": net(
        PAIRS + "h = Unsqueeze(q, axis) y = Add(h, m)", "Gather", axis=AXIS,
        m=lambda n: abs(apart(n)) * (np.float32([1, 2, 5, 11]) / np.float32(n)).reshape(4, 1, 1),
    ),
    "a window of a fifth": net(
        PAIRS + "y = Add(q, m)", "Add", m=lambda n: np.where(abs(apart(n)) > n // 5, np.float32(-9), np.float32(0))
    ),
    "distances of a table": net(
        PAIRS + "b = Gather(d, i) y = Add(q, b)", "Add", d=lambda n: np.arange(2 * n - 1, dtype=np.float32) ** 0.5,
        i=lambda n: apart(n).astype(np.int64) + n - 1,
    ),
    "a grid of the old size": net(
        TURNED + "u = Unsqueeze(t, two) g = Expand(c, s) y = GridSample(u, g)", "Expand", two=i64(2),
        c=np.full((1, 1, 1, 2), 0.3, np.float32), s=lambda n: i64(1, n, 1, 2),
    ),
    "a grid that is a constant": net(
        TURNED + "u = Unsqueeze(t, two) y = GridSample(u, g)", "GridSample", two=i64(2),
        g=lambda n: np.stack([np.linspace(-1, 1, n), np.zeros(n)], -1).astype(np.float32)[None, None],
    ),
    "a diagonal of ones, an eighth away": net(
        lambda n: TURNED + f"m = MatMul(x, t) q = Squeeze(m, first) e = EyeLike<k={n // 8}>(q) y = Add(q, e)",
        "EyeLike", first=i64(0),
    ),
    "all but four in the middle": net("y = CenterCropPad<axes=[1]>(x, s)", "CenterCropPad", s=lambda n: i64(n - 4)),
    "a filter as long as the data": net(
        lambda n: TURNED + f"y = Conv<group=3, pads=[{n - 1}, 0]>(t, w)", "Conv",
        w=lambda n: np.tile(np.float32(0.9) ** np.arange(n, dtype=np.float32), (3, 1, 1)),
    ),
    "a half of the places": net(
        PLACES + "g = Greater(r, k) f = Cast<to=1>(g) u = Unsqueeze(f, a) y = Mul(x, u)", "Greater", **RANGE,
        k=lambda n: np.int64(n // 2 - 1), a=i64(0, 2),
    ),
    "a divisor that a branch gives": net(
        SUM + """m = ReduceMax<keepdims=0>(x) g = Greater(m, z)
        c = If(g)<then_branch = a () => (float p) { p = Identity(k) }, else_branch = b () => (float q) { q = Neg(k) }>
        y = Div(s, c)""", "Identity", axis=AXIS, z=np.float32(0), k=scalar(lambda n: n),
    ),
    "a pool into four behind others": net(
        lambda n: TURNED + "a = MaxPool<kernel_shape=[2], strides=[2]>(t) "
        f"y = AveragePool<kernel_shape=[{n // 8}], strides=[{n // 8}]>(a)", "AveragePool"
    ),
    "the last rows of a table": net(
        "r = Slice(d, b, e, z) y = Add(x, r)", "Add", d=np.sin(np.arange(390.0)).astype("f").reshape(-1, 3), z=i64(0),
        b=lambda n: i64(130 - n), e=i64(130),
    ),
    "a temperature of an eighth": net("s = Mul(x, c) y = Softmax<axis=1>(s)", "Mul", c=scalar(lambda n: n / 8)),
    "a count of a mask": net(
        """a = Mul(x, m) s = ReduceSum<keepdims=0>(a, axis) c = ReduceSum<keepdims=0>(m, axis) d = Div(s, c)
        y = Mul(d, e)""",
        "Div", axis=AXIS, m=lambda n: np.ones((1, n, 1), np.float32), e=np.float32(7),
    ),
    "resized to its own size": net('y = Resize<mode="nearest">(x, , , s)', "Resize", s=i64(1, L, 3)),
    "cut where it ends": net("a = Slice(x, b, e, axis) y = Neg(a)", "Slice", b=i64(0), e=i64(L), axis=AXIS),
    "padding up to a multiple of 8": net("y = Pad(x, p)", "Pad", p=lambda n: i64(0, 0, 0, 0, -n % 8, 0)),
    "pooled into forty": net(
        lambda n: TURNED + f"y = AveragePool<kernel_shape=[{max(n // L, 1)}], strides=[{max(n // L, 1)}]>(t)",
        "AveragePool"
    ),
    "repeated up to forty": net("y = Tile(x, r)", "Tile", r=lambda n: i64(1, max(L // n, 1), 1)),
    "places around the middle": net(
        "y = Add(x, p)", "Add", p=lambda n: np.linspace(-(n - 1) / 2, (n - 1) / 2, n, dtype="f")[None, :, None]
    ),
    "places up to twenty": net("y = Add(x, p)", "Add", p=lambda n: np.float32(np.arange(n) * (20 / n))[None, :, None]),
    "an epsilon of the length": net(
        lambda n: TURNED + f"y = BatchNormalization<epsilon={1 / n:.9f}>(t, o, z, z, o)", "BatchNormalization",
        o=np.ones(3, np.float32), z=np.zeros(3, np.float32),
    ),
    "a window of a tenth, worked out from places": net(
        PAIRS + NEAR + "y = Add(q, f)", "Less", **COLUMNS, k=lambda n: np.int64(n // 10)
    ),
    "places times a step up to twenty": net(
        "f = Cast<to=1>(p) s = Mul(f, c) y = Add(x, s)", "Add", p=lambda n: np.arange(n)[None, :, None],
        c=scalar(lambda n: 20 / n),
    ),
    "places behind an eighth": net(
        "s = Sub(k, p) f = Cast<to=1>(s) y = Add(x, f)", "Add", p=lambda n: np.arange(n)[None, :, None],
        k=lambda n: np.int64(n // 8),
    ),
    "places of a diagonal, by a size": net(
        TURNED + "q = MatMul(x, t) h = Shape<start=1, end=2>(q) r = Mul(p, h) i = Add(r, p) f = Flatten<axis=3>(q) "
        "g = Gather(f, i) y = Neg(g)", "Gather", p=np.arange,
    ),
    "padding for a stride": net(
        lambda n: TURNED + f"y = Conv<strides=[2], pads=[{n % 2}, 1]>(t, w)", "Conv", w=FILTER
    ),
}  # fmt: skip

MASKED = {
    "two": i64(2),
    "zero": np.float32(0),
    "low": np.float32(-9),
    "none": np.int64(0),
    "sq": lambda n: i64(1, n, n),
    "p": lambda n: np.arange(n)[None, :, None],
}
MASK = "o = GreaterOrEqual(p, none) a = And(o, u) e = Expand(a, sq) w = Where(e, zero, low) y = Add(q, w)"
RIGHT = {
    "a window of seven, worked out from places": net(PAIRS + NEAR + "y = Add(q, f)", **COLUMNS, k=np.int64(7)),
    "distances up to three, of a table": net(
        PAIRS + "d = Sub(r, p) c = Clip(d, m, k) i = Add(c, k) b = Gather(t3, i) y = Add(q, b)", **COLUMNS,
        k=np.int64(3), m=np.int64(-3), t3=np.float32([1, 2, -1, 0.5, 3, 0.1, 0.2]),
    ),
    "a mask that an Expand makes square": net(
        PAIRS + "m = ReduceMax<keepdims=0>(x, two) g = Greater(m, zero) i = Add(c, none) f = Flatten<axis=2>(g) "
        "h = Gather(f, i) j = Reshape(h, flat) u = Reshape(j, s) " + MASK,
        **MASKED, c=lambda n: np.arange(n)[None], flat=i64(-1), s=lambda n: i64(1, 1, n),
    ),
    "a mask by GatherND": net(
        PAIRS + "m = ReduceMax<keepdims=0>(x, two) g = Greater(m, zero) u = GatherND(g, i) " + MASK,
        **MASKED, i=lambda n: np.stack([np.zeros(n, int), np.arange(n)], -1)[None, None],
    ),
    "buckets of distances that the file works out": net(
        PAIRS + "d = Abs(i) f = Cast<to=1>(d) v = Div(f, c) b = Cast<to=7>(v) u = Min(b, two) w = Gather(table, u) "
        "y = Add(q, w)",
        i=lambda n: np.subtract.outer(np.arange(n), np.arange(n)), c=np.float32(9), two=np.int64(2),
        table=np.float32([0.3, -1, 0.7]),
    ),
    "cut to the length behind a stride": net(
        TURNED + "a = Conv<strides=[2], pads=[1, 1]>(t, w) b = ConvTranspose<strides=[2], pads=[1, 1]>(a, v) "
        "y = Slice(b, z, e, at)", w=FILTER, v=np.linspace(-1, 1, 48, dtype="f").reshape(4, 3, 4), z=i64(0), e=i64,
        at=i64(2),
    ),
    "a filter that is longer than the coarser data": net(
        TURNED + "a = Conv<pads=[4, 4], group=3>(t, v) b = Conv<strides=[8], group=3>(a, w) "
        "y = Conv<pads=[4, 4], group=3>(b, v)", v=np.linspace(-1, 1, 27, dtype=np.float32).reshape(3, 1, 9),
        w=np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 1, 8),
    ),
    "the coarser of two pools": net(
        TURNED + "a = MaxPool<kernel_shape=[2], strides=[2]>(t) b = MaxPool<kernel_shape=[2], strides=[2]>(a) "
        "c = MaxPool<kernel_shape=[2], strides=[2]>(b) y = Neg(c)"
    ),
    "a causal convolution": net(TURNED + "p = Pad(t, q) y = Conv(p, w)", q=i64(0, 0, 2, 0, 0, 0), w=FILTER),
    "causal convolutions": net(
        TURNED + "a = Conv<pads=[2, 0]>(t, w) y = Conv<pads=[4, 0], dilations=[2]>(a, v)", w=FILTER,
        v=np.linspace(-1, 1, 48, dtype=np.float32).reshape(4, 4, 3),
    ),
    "waves of positions": net(
        PLACES + "f = Cast<to=1>(r) u = Unsqueeze(f, a) m = Mul(u, w) s = Sin(m) y = Add(x, s)", **RANGE, a=i64(1),
        w=np.float32([1, 0.1, 0.01]),
    ),
    "buckets of distances": net(
        PLACES + "f = Cast<to=1>(r) g = Add(f, e) l = Log(g) k = Div(l, c) u = Unsqueeze(k, a) y = Mul(x, u)", **RANGE,
        a=i64(0, 2), e=np.float32(1), c=np.float32(log(16)),
    ),
    "back to full size": net(
        TURNED + """a = Conv<strides=[8]>(t, w) y = Resize<mode="nearest">(a, , s)""",
        w=np.linspace(-1, 1, 96, dtype=np.float32).reshape(4, 3, 8), s=np.float32([1, 1, 8]),
    ),
    **{
        f"{name} {alpha}": net(f"y = {name}<alpha={alpha}>(x)") for name, alpha in (("LeakyRelu", 0.2), ("Elu", 0.3))
    },
    **{
        f"a scale of {number:.4g}": net("a = Mul(x, c) y = Tanh(a)", c=np.float32(number))
        for number in (0.5, 0.1, 1.702, 0.1307, 3**0.5, 3**-0.25, (2 / np.pi) ** 0.5, 10 / log(10), 1 / 255)
    },
    "a hard swish": net(
        "a = Add(x, t) b = Clip(a, z, s) c = Mul(x, b) y = Div(c, s)",
        t=np.float32(3), z=np.float32(0), s=np.float32(6),
    ),
    "a ladder of dilations": net(
        TURNED + "a = Conv<pads=[2, 2], dilations=[2]>(t, w) y = Conv<pads=[8, 8], dilations=[8]>(a, v)",
        w=FILTER, v=np.linspace(-1, 1, 48, dtype=np.float32).reshape(4, 4, 3),
    ),
    "patches": net(TURNED + "y = Conv<strides=[8]>(t, w)", w=np.linspace(-1, 1, 96, dtype=np.float32).reshape(4, 3, 8)),
    "a difference over two steps": net(
        "a = Slice(x, b, e, axis) c = Slice(x, z, m, axis) y = Sub(a, c)",
        b=i64(2), e=i64(2**40), z=i64(0), m=i64(-2), axis=AXIS,
    ),
    "every second": net(
        "y = Slice(x, b, e, axis, s)", b=i64(0), e=i64(2**40), axis=AXIS, s=i64(2)
    ),
    "the bias of one channel": net(
        "m = MatMul(x, w) y = Add(m, b)", w=np.float32([[1], [2], [-1]]), b=np.float32([0.3718281])
    ),
    "places that count": net("y = Add(x, p)", p=lambda n: np.arange(n, dtype=np.float32)[None, :, None]),
    "places behind a stride": net(
        TURNED + "a = Conv<strides=[3]>(t, w) y = Add(a, p)", w=FILTER,
        p=lambda n: np.arange((n - 3) // 3 + 1, dtype=np.float32),
    ),
    "waves of a table": net("m = MatMul(x, w) y = Add(m, p)", **WIDER, p=waves),
    "waves of a table that begins behind its padding": net(
        "m = MatMul(x, w) y = Add(m, p)", **WIDER, p=lambda n: waves(n + 2)[2:]
    ),
    "a mask of what comes later": net(
        PAIRS + "a = Add(q, m) y = Softmax(a)", m=lambda n: np.where(apart(n) < 0, np.float32(-np.inf), np.float32(0))
    ),
    "truth values of what comes later": net(
        PAIRS + "y = Where(m, q, c)", m=lambda n: apart(n) >= 0, c=np.finfo(np.float32).min
    ),
    "distances of heads": net(
        PAIRS + "h = Unsqueeze(q, axis) y = Add(h, m)", axis=AXIS,
        m=lambda n: -abs(apart(n)) * np.float32([0.5, 0.25, 0.125, 0.0625]).reshape(4, 1, 1),
    ),
    "distances of a table with rows to spare": net(
        PAIRS + "b = Gather(d, i) y = Add(q, b)", d=np.arange(517, dtype=np.float32) ** 0.5,
        i=lambda n: apart(n).astype(np.int64) + 257,
    ),
    "rows of a table at positions": net(
        "e = Gather(d, i) k = Gather(u, z) b = Add(e, k) y = Add(x, b)",
        d=np.sin(np.arange(390.0)).astype("f").reshape(-1, 3),
        i=lambda n: np.arange(n)[None], u=np.float32([[1, 2, 4]]), z=lambda n: np.zeros((1, n), np.int64),
    ),
    "the first rows of a table": net(
        "r = Slice(d, b, e, b) u = Unsqueeze(r, b) a = Add(x, u) y = Mul(a, r)",
        d=np.sin(np.arange(390.0)).astype("f").reshape(-1, 3), b=i64(0), e=i64,
    ),
    "positions that two nodes read": net(
        """s = ReduceMax(x, axes) h = Mul(s, c) b = Less(p, h) f = Cast<to=1>(b) a = Mul(x, f)
        t = ReduceSum<keepdims=0>(a, axis) k = ReduceSum<keepdims=0>(f, axis) d = Clip(k, o) y = Div(t, d)""",
        axes=i64(1, 2), axis=AXIS, c=np.float32(100), o=np.float32(1),
        p=lambda n: np.arange(n, dtype=np.float32)[None, :, None],
    ),
    "computed padding for a dilated window": net(
        TURNED + "z = ConstantOfShape<value = int64[1] {0}>(two) p = Concat<axis=0>(z, k) a = Pad(t, p) "
        "y = Conv<dilations=[2]>(a, v)", two=i64(2), k=i64(4, 0, 0, 0), v=FILTER,
    ),
    "a scan along the second dim": net(
        """z, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], body = turn
            (float[1, 3] a, float[1, 3] e) => (float[1, 3] b, float[1, 3] f) { b = Add (a, e)  f = Neg (b) }>(s0, x)""",
        s0=np.zeros((1, 3), np.float32),
    ),
    "a mean": net("y = ReduceMean<keepdims=0>(x, axis)", axis=AXIS),
    "a softmax": net("y = Softmax<axis=1>(x)"),
    "a flat row": net("y = Reshape(x, s)", s=lambda n: i64(1, 3 * n)),
    "the first element": net("y = Gather<axis=1>(x, i)", i=np.int64(0)),
    "the last element, from the end": net("y = Gather<axis=1>(x, i)", i=np.int64(-1)),
    "without the first": net("y = Slice(x, b, e, axis)", b=i64(1), e=i64, axis=AXIS),
    "a convolution": net(
        TURNED + "c = Conv<pads=[1, 1]>(t, w) y = Relu(c)", w=np.linspace(-1, 1, 36, dtype=np.float32).reshape(4, 3, 3)
    ),
    "positions that count": net(
        "q = Add(x, p) y = Neg(q)", p=lambda n: np.zeros((1, n, 3), np.float32)
    ),
    "a gate and a scale of its own": net("a = Mul(x, c) b = Sigmoid(a) y = Mul(x, b)", c=np.float32(1.702)),
    "a mean of what a mask leaves": net(
        """m = Sigmoid(x) q = Mul(x, m) s = ReduceSum<keepdims=0>(q, axis) n = ReduceSum<keepdims=0>(m, axis)
        d = Clip(n, least) a = Div(s, d) y = MatMul(a, w)""",
        axis=AXIS, least=np.float32(1e-9), w=np.eye(3, dtype=np.float32) / 7,
    ),
    "a sum that attention has weighted": net(
        "p = Softmax<axis=1>(x) q = Mul(p, x) s = ReduceSum<keepdims=0>(q, axis) y = MatMul(s, w)",
        axis=AXIS, w=np.eye(3, dtype=np.float32) / 7,
    ),
    "linear attention": net(
        """k = Sigmoid(x) kt = Transpose<perm=[0, 2, 1]>(k) kv = MatMul(kt, x) q = MatMul(k, kv)
        s = ReduceSum(k, axis) st = Transpose<perm=[0, 2, 1]>(s) n = MatMul(k, st) e = Add(n, tiny) a = Div(q, e)
        y = MatMul(a, w)""",
        axis=AXIS, tiny=np.float32(1e-6), w=np.eye(3, dtype=np.float32) / 7,
    ),
    "a norm over the length": net("n = ReduceL2(x, axis) d = Div(x, n) y = Mul(d, c)", axis=AXIS, c=np.float32(7)),
    "groups of channels": net(
        TURNED + "r = Reshape(t, g) i = InstanceNormalization(r, s, b) y = Reshape(i, o)", g=i64(1, 1, -1),
        s=np.float32([2]), b=np.float32([1]), o=lambda n: i64(1, 3, n),
    ),
    "a first state as large as the batch": net(
        """t = Transpose<perm=[1, 0, 2]>(x) all = Shape(t) b = Gather<axis=0>(all, one) d = Concat<axis=0>(k, b, k)
        h = Expand(zero, d) o, y = RNN<hidden_size=1>(t, w, r, , , h)""",
        one=i64(1), k=i64(1), zero=np.float32(0), w=np.float32([[[0.3, -0.7, 0.9]]]), r=np.float32([[[0.4]]]),
    ),
    "up again to what it is joined with": net(
        TURNED + """d = MaxPool<kernel_shape=[2], strides=[2]>(t) r = Resize<mode="linear">(d, , , z)
        c = Concat<axis=1>(t, r) y = Neg(c)""", z=lambda n: i64(1, 3, n),
    ),
    "cut to what it is joined with": net(
        TURNED + """c = Conv<strides=[2], pads=[1, 1]>(t, w) r = Resize<mode="nearest">(c, , z) s = Slice(r, b, e, a)
        y = Concat<axis=1>(s, t)""", w=FILTER, z=np.float32([1, 1, 2]), b=i64(0), e=i64, a=i64(2),
    ),
    "a sum": net("y = ReduceSum<keepdims=0>(x, axis)", axis=AXIS),
    "a maximum": net(TURNED + "y = GlobalMaxPool(t)"),
    "a norm": net(
        "y = LayerNormalization<axis=-1>(x, w)", w=np.float32([1, 2, 3]),
    ),
}  # fmt: skip


def mismatch(made: Path, truth: Net, folder: Path) -> str:
    """Where the dynamic net gives something else than the net built at that length, or stops; "" if nowhere."""
    runner = OnnxRunner.open(made, EXACT)
    for n in OTHERS:
        x = np.random.default_rng(n).standard_normal((1, n, 3)).astype(np.float32)
        try:
            expected = OnnxRunner.open(truth.save(folder / "truth.onnx", n), EXACT).run({"x": x})["y"]
        except OnnxToolError:
            continue  # there is no such net
        try:
            actual = runner.run({"x": x})["y"]
        except InputError as error:
            return f"{n}: {error}"
        if expected.shape != actual.shape or not np.allclose(expected, actual, 1e-4, 1e-5):
            return f"{n}: {actual.shape} for {expected.shape}"
    return ""


@pytest.mark.parametrize("name", RIGHT)
def test_what_has_no_length_in_it_is_right_at_every_length(tmp_path: Path, name: str) -> None:
    source, made = RIGHT[name].save(tmp_path / "m.onnx", L), tmp_path / "out.onnx"
    assert edit(source, made, ["set-shape=x:1,length,3"]).ok
    assert not mismatch(made, RIGHT[name], tmp_path)


PICTURE = "g (float[1, 3, 32, 48] x) => (float y) { %s }"


def test_what_is_the_same_everywhere_is_repeated_along_two_dims(tmp_path: Path) -> None:
    nodes = "g = ReduceMean<axes=[2, 3]>(x) e = Expand(g, size) y = Concat<axis=1>(x, e)"
    source = write(tmp_path / "m.onnx", PICTURE % nodes, {"size": i64(1, 3, 32, 48)}, opset=17)
    assert edit(source, tmp_path / "out.onnx", ["set-shape=x:1,3,height,width"]).ok
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 7)).astype(np.float32)
    expected = np.concatenate([x, np.broadcast_to(x.mean((2, 3), keepdims=True), x.shape)], 1)
    assert np.allclose(OnnxRunner.open(tmp_path / "out.onnx", EXACT).run({"x": x})["y"], expected, atol=1e-6)


def test_the_ratio_of_two_sizes_is_made_of_them(tmp_path: Path) -> None:
    nodes = "g = ReduceMean<axes=[2, 3], keepdims=0>(x) y = Concat<axis=1>(g, aspect)"
    source = write(tmp_path / "m.onnx", PICTURE % nodes, {"aspect": np.float32([[48 / 32]])}, opset=17)
    with pytest.raises(VerdictError, match="48 / 32"):
        edit(source, tmp_path / "out.onnx", ["set-shape=x:1,3,height,width"])


def test_which_part_of_a_dim_that_is_cut_grows_is_an_assumption(tmp_path: Path) -> None:
    """Forty places as five windows of eight."""
    windows = net(
        "r = Reshape(x, s) m = ReduceMax(r, axis) d = Sub(r, m) y = Reshape(d, o)", axis=i64(2),
        s=lambda n: i64(1, n // 8, 8, 3), o=lambda n: i64(1, n, 3),
    )  # fmt: skip
    source, made = windows.save(tmp_path / "m.onnx", L), tmp_path / "out.onnx"
    with pytest.raises(VerdictError, match=r"Reshape 'node_0': .*: 5 of its target grows and 8, 3 do not"):
        edit(source, made, ["set-shape=x:1,length,3"])
    assert not edit(source, made, ["set-shape=x:1,length,3"], allow_unproven=True).ok
    for n in (8, 48, 120):
        x = np.random.default_rng(n).standard_normal((1, n, 3)).astype(np.float32)
        parts = x.reshape(1, n // 8, 8, 3)
        expected = (parts - parts.max(2, keepdims=True)).reshape(x.shape)
        assert np.array_equal(OnnxRunner.open(made, EXACT).run({"x": x})["y"], expected)


def test_places_of_a_short_length_that_the_file_works_out_are_refused(tmp_path: Path) -> None:
    turned = net(
        "r = Range(last, minus, minus) y = Gather<axis=1>(x, r)", last=lambda n: np.int64(n - 1), minus=np.int64(-1)
    )
    with pytest.raises(VerdictError, match="Gather 'node_1'"):
        edit(turned.save(tmp_path / "m.onnx", 12), tmp_path / "out.onnx", ["set-shape=x:1,length,3"])


@pytest.mark.parametrize("name", BAKED)
def test_a_length_baked_in_is_refused_by_node_or_right(tmp_path: Path, name: str) -> None:
    source, made = BAKED[name].save(tmp_path / "m.onnx", L), tmp_path / "out.onnx"
    try:
        edit(source, made, ["set-shape=x:1,length,3"])
    except OnnxToolError as error:
        assert f"{BAKED[name].names} '" in str(error)
        assert not made.exists()
    else:
        assert not mismatch(made, BAKED[name], tmp_path)


def test_the_number_of_the_largest_is_judged_as_an_attribute_too(tmp_path: Path) -> None:
    source = write(tmp_path / "m.onnx", "g (float[1, 40, 3] x) => (float y) { y, i = TopK<axis=1, k=40>(x) }", opset=9)
    with pytest.raises(VerdictError, match="the 40 largest"):
        edit(source, tmp_path / "out.onnx", ["set-shape=x:1,length,3"])


def test_an_output_that_constants_alone_make_is_refused(tmp_path: Path) -> None:
    text = "g (float[1, 40, 3] x) => (float y, int64 n) { y = Neg(x) n = Identity(c) }"
    source = write(tmp_path / "m.onnx", text, {"c": np.array([40])})
    with pytest.raises(VerdictError, match="the output 'n'"):
        edit(source, tmp_path / "out.onnx", ["set-shape=x:1,length,3"])


def test_a_reshape_of_two_dims_of_one_size_is_refused(tmp_path: Path) -> None:
    """[1, 3, n] to [1, n, 3], where n is 3."""
    text = "g (float[1, 6, 6] x) => (float y) { y = Reshape(x, s) }"
    source = write(tmp_path / "m.onnx", text, {"s": i64(1, 6, 6)})
    with pytest.raises(VerdictError, match="in the order of the data's"):
        edit(source, tmp_path / "out.onnx", ["set-shape=x:1,6,length"])


def test_a_formula_is_no_excuse_where_the_length_gives_its_number() -> None:
    for length, number in ((10, log(10)), (10, 1 / log(10)), (4, 1 / 3), (6, 0.2), (180, np.pi / 180)):
        for size in (length, length + 23):
            ordinary = OrdinaryNumbers(frozenset({size}), frozenset(), frozenset())
            assert ordinary.explains(number, 1e-6, scales=False) == (size != length)


def test_a_root_of_the_length_is_no_number_that_somebody_wrote() -> None:
    for length, explained in ((100, False), (30, True)):
        ordinary = OrdinaryNumbers(frozenset({length}), frozenset(), frozenset())
        assert ordinary.explains(0.1, 1e-6, scales=True) == explained
        assert ordinary.explains(0.1, 1e-6, scales=False)


def test_a_decimal_is_one_that_the_length_makes_shorter_or_a_share_of_its_neighbours() -> None:
    """1.4 is 1 + 40 * 0.01; 0.175 is 7 / 40, which a length of 41 makes of all but one."""
    assert Lengths({40: "n"}).shorter(1.4, 1e-6) and Lengths({41: "n"}).shorter(0.175, 1e-6)
    assert Lengths({33: "n"}).shorter(0.003125, 1e-6)  # a tenth, spread over the 32 others
    assert not Lengths({40: "n"}).shorter(0.1307, 1e-6) and not Lengths({41: "n"}).shorter(1.702, 1e-6)

"""Small files as exporters wrote them from 2017 to 2019, in ONNX's text format, and what they compute in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper, parser

Array = np.ndarray


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@dataclass(frozen=True)
class OldFile:
    """A file of an old operator set.

    Attributes:
        graph: its text from the name on.
        answer: its one output, of its input x.
        weights: its constants, which are inputs too as the format wanted.
        imports: "" of a file that does not say its operator set.
    """

    graph: str
    answer: Callable[..., Array]
    weights: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 1
    format: int = 3

    def model(self) -> onnx.ModelProto:
        """The message."""
        made = parser.parse_model(f'<ir_version: {self.format}, opset_import: ["": {self.opset}]> {self.graph}')
        if self.format < 3:
            del made.opset_import[:]
        for name, array in self.weights.items():
            made.graph.initializer.append(numpy_helper.from_array(array, name))
            if self.format < 4:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                made.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        return made

    def x(self, seed: int = 1) -> Array:
        """An input."""
        dims = self.model().graph.input[0].type.tensor_type.shape.dim
        return numbers(*(d.dim_value or 2 for d in dims), seed=seed)

    def expected(self, x: Array) -> Array:
        """What it gives of it."""
        return self.answer(x, **self.weights)


def conv(x: Array, w: Array) -> Array:
    """A convolution with a border of one."""
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


def each(channels: Array) -> Array:
    return channels.reshape(-1, 1, 1)


def normal(x: Array, mean: Array, spread: Array) -> Array:
    return (x - each(mean)) / np.sqrt(each(spread) + 1e-5)


def softmax(x: Array) -> Array:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def lstm(x: Array, w: Array, r: Array) -> Array:
    """Of one direction: hidden values of all steps."""
    hidden = cell = np.zeros((x.shape[1], r.shape[2]))
    steps = []
    for row in x:
        gates = row @ w[0].T + hidden @ r[0].T
        i, o, f = (1 / (1 + np.exp(-part)) for part in np.split(gates, 4, -1)[:3])
        cell = f * cell + i * np.tanh(np.split(gates, 4, -1)[3])
        hidden = o * np.tanh(cell)
        steps.append(hidden)
    return np.stack(steps)


def caffe2(x: Array, w: Array, b: Array, f: Array, c: Array) -> Array:
    pooled = np.maximum(conv(x, w) + each(b), 0).reshape(2, 3, 2, 2, 2, 2).max((3, 5))
    return pooled.reshape(2, -1) @ f.T + c


def padded(x: Array) -> Array:
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=0.5)[:, :, :-1, 1:]
    return np.clip(np.concatenate([wide, wide], 1), -1, 1)


def pictures(x: Array, w: Array) -> Array:
    a, b = np.split(conv(0.5 * x + each(np.array([0.1, 0.2, 0.3])), w), [1], 1)
    return (a * b.sum(1, keepdims=True)).mean((2, 3))


def selu(x: Array, alpha: float = 1.6732) -> Array:
    return 1.0507 * np.where(x > 0, x, alpha * (np.exp(x) - 1))


def enlarged(x: Array) -> Array:
    """Lines between corners, by two in height; as they are in width."""
    below = np.concatenate([x[:, :, 1:], x[:, :, -1:]], 2)
    return np.stack([x, (x + below) / 2], 3).reshape(*x.shape[:2], -1, x.shape[3])


def hardmax(x: Array) -> Array:
    flat = x.reshape(len(x), -1)
    return np.eye(flat.shape[1])[flat.argmax(1)].reshape(x.shape)


CHANNELS = {"s": numbers(3, seed=2), "b": numbers(3, seed=3), "m": numbers(3, seed=4), "v": numbers(3, seed=5) ** 2}

FILES: dict[str, OldFile] = {
    "Caffe2, no operator set": OldFile(
        """g (float[2, 3, 4, 4] x) => (float[2, 5] y) {
            a = Conv <pads = [1, 1, 1, 1], kernel_shape = [3, 3]> (x, w)
            ab = Add <broadcast = 1, axis = 1, consumed_inputs = [0, 0]> (a, b)
            r = Relu <consumed_inputs = [0]> (ab)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            d, mask = Dropout <is_test = 1, ratio = 0.5> (p)
            flat = Reshape <shape = [0, -1], consumed_inputs = [0]> (d)
            y = Gemm <broadcast = 1, transB = 1> (flat, f, c)
        }""",
        caffe2,
        {"w": numbers(3, 3, 3, 3), "b": numbers(3), "f": numbers(5, 12), "c": numbers(5)},
        format=1,
    ),
    "MXNet": OldFile(
        """g (float[2, 3, 4, 4] x) => (float[2, 3] y) {
            n, a, c, d, e = BatchNormalization <is_test = 1, consumed_inputs = [0, 0, 0, 1, 1]> (x, s, b, m, v)
            l = LeakyRelu <alpha = 0.1, consumed_inputs = [0]> (n)
            p = GlobalAveragePool (l)
            shape = Constant <value = int64[2] {2, 3}> ()
            z = Reshape (p, shape)
            y = Softmax (z)
        }""",
        lambda x, s, b, m, v: softmax(
            (lambda n: np.where(n < 0, 0.1 * n, n))(normal(x, m, v) * each(s) + each(b)).mean((2, 3))
        ),
        CHANNELS,
        opset=5,
    ),
    "Chainer": OldFile(
        """g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) {
            n = BatchNormalization <is_test = 1> (x, s, b, m, v)
            k = Mul <broadcast = 1, axis = 1> (n, s)
            p = PRelu (k, b)
            y = Div <broadcast = 1, axis = 2> (p, square)
        }""",
        lambda x, s, b, m, v, square: (
            (lambda k: np.where(k < 0, each(b) * k, k))((normal(x, m, v) * each(s) + each(b)) * each(s)) / square
        ),
        CHANNELS | {"square": numbers(4, 4, seed=6) ** 2 + 1},
        opset=6,
    ),
    "names of types, borders by their old name": OldFile(
        """g (float[1, 2, 4, 4] x) => (float[1, 4, 5, 5] y) {
            c = Cast <to = "DOUBLE"> (x)
            d = Cast <to = "FLOAT"> (c)
            p = Pad <paddings = [0, 0, 1, 1, 0, 0, 1, 1], value = 0.5> (d)
            s = Slice <axes = [2, 3], starts = [0, 1], ends = [-1, 100]> (p)
            k = Concat (s, s)
            y = Clip <min = -1.0, max = 1.0> (k)
        }""",
        padded,
    ),
    "CNTK, recurrent": OldFile(
        """g (float[5, 2, 3] x) => (float[5, 2, 2] y) {
            h, last = LSTM <hidden_size = 4, output_sequence = 1> (x, w, r)
            q = Squeeze <axes = [1]> (h)
            v, i = TopK <k = 2, axis = -1> (q)
            y = Neg <consumed_inputs = [0]> (v)
        }""",
        lambda x, w, r: -np.sort(lstm(x, w, r), -1)[..., :1:-1],
        {"w": numbers(1, 16, 3), "r": numbers(1, 16, 4)},
        opset=5,
    ),
    "Core ML's converter": OldFile(
        """g (float[2, 3, 4, 4] x) => (float[2, 1] y) {
            s = ImageScaler <scale = 0.5, bias = [0.1, 0.2, 0.3]> (x)
            a = Conv <auto_pad = "SAME_UPPER", kernel_shape = [3, 3]> (s, w)
            b, c = Split <axis = 1> (a, lengths)
            e = ReduceSum <axes = [1]> (c)
            m = Mul (b, e)
            y = ReduceMean <axes = [2, 3], keepdims = 0> (m)
        }""",
        lambda x, w, lengths: pictures(x, w),
        {"w": numbers(4, 3, 3, 3), "lengths": np.array([1, 3], np.int64)},
    ),
    "CNTK": OldFile(
        """g (float[2, 3, 4, 4] x) => (float[2, 3, 16] y) {
            a = HardSigmoid <alpha = 0.3, beta = 0.4, consumed_inputs = [0]> (x)
            p = Pow <broadcast = 1> (a, e)
            d = Sub <broadcast = 1, axis = 0> (p, k)
            first = Selu <consumed_inputs = [0]> (d)
            second = Selu <alpha = 1.5> (first)
            flat = Reshape <shape = [2, 3, 16]> (second)
            y = Mul <broadcast = 1, axis = 1> (flat, three)
        }""",
        lambda x, e, k, three: (
            selu(selu(np.clip(0.3 * x + 0.4, 0, 1) ** e - k.reshape(2, 1, 1, 1)), 1.5).reshape(2, 3, 16)
            * three.reshape(3, 1)
        ),
        {"e": np.array([2], np.float32), "k": np.array([0.1, 0.3], np.float32), "three": numbers(3, seed=7)},
        opset=3,
    ),
    "Caffe's own operators": OldFile(
        """g (float[1, 2, 4, 4] x) => (float[1, 2, 5, 6] y) {
            a = Affine <alpha = 2.0, beta = 0.5> (x)
            u = Upsample <width_scale = 2.0, height_scale = 2.0, mode = "nearest"> (a)
            c = Crop <border = [1, 2, 1, 1]> (u)
            p = ParametricSoftplus <alpha = 1.5, beta = 2.0> (c)
            t = ThresholdedRelu <alpha = 0.5> (p)
            y = ScaledTanh <alpha = 2.0, beta = 0.5> (t)
        }""",
        lambda x: (lambda p: 2 * np.tanh(0.5 * np.where(p > 0.5, p, 0)))(
            1.5 * np.log1p(np.exp(2 * (2 * x + 0.5).repeat(2, 2).repeat(2, 3)[:, :, 2:-1, 1:-1]))
        ),
    ),
    "a part of a picture, factors that nobody gave": OldFile(
        """g (float[1, 2, 5, 6] x) => (float[1, 2, 2, 3] y) {
            c = Crop <border = [2, 1, 0, 0], scale = [2, 3]> (x)
            s = Scale (c)
            y = ScaledTanh <beta = 0.5> (s)
        }""",
        lambda x: np.tanh(0.5 * x[:, :, 1:3, 2:5]),
    ),
    "copies along an axis, comparisons": OldFile(
        """g (float[2, 3, 4] x) => (float[2, 6, 4] y) {
            t = Tile (x, tiles, axis)
            above = Greater <broadcast = 1, axis = 0> (t, k)
            one = Cast <to = "FLOAT"> (above)
            y = Mul (t, one)
        }""",
        lambda x, tiles, axis, k: (lambda t: t * (t > k.reshape(2, 1, 1)))(np.concatenate([x, x], 1)),
        {
            "tiles": np.array([2.0], np.float32),
            "axis": np.array([1.0], np.float32),
            "k": np.array([0, 0.3], np.float32),
        },
    ),
    "branches": OldFile(
        """g (float[2, 3, 2] x) => (float[2, 3, 2] y) {
            yes = Constant <value = float {1}> ()
            is = Cast <to = "BOOL"> (yes)
            y = If <
                then_branch = t () => (float[2, 3, 2] a) {
                    c = Constant <value = float {2}> () m = Mul <broadcast = 1> (x, c) h = Hardmax (m) a = Sum (m, h)
                },
                else_branch = e () => (float[2, 3, 2] b) {
                    c = Constant <value = float {3}> () b = Mul <broadcast = 1> (x, c)
                }
            > (is)
        }""",
        lambda x: 2 * x + hardmax(x),
    ),
    "MATLAB": OldFile(
        """g (float[1, 3, 4, 4] x) => (float[1, 3, 8, 4] y) {
            c = Sub (x, m)
            n, r = Dropout (c)
            y = Upsample <mode = "linear", scales = [1.0, 1.0, 2.0, 1.0]> (n)
        }""",
        lambda x, m: enlarged(x - m),
        {"m": numbers(1, 3, 1, 1)},
        opset=7,
    ),
    "PyTorch": OldFile(
        """g (float[2, 3, 4] x) => (float[2, 3, 4] y) {
            h = Hardmax (x)
            y = Sum (x, h)
        }""",
        lambda x: x + hardmax(x),
        opset=8,
    ),
    "PyTorch, factors as an input": OldFile(
        """g (float[1, 1, 4, 3] x) => (float[1, 1, 8, 3] y) { y = Upsample <mode = "linear"> (x, f) }""",
        lambda x, f: enlarged(x),
        {"f": np.array([1, 1, 2, 1], np.float32)},
        opset=9,
        format=4,
    ),
}


def named(name: str, **change: Any) -> onnx.ModelProto:
    """One of them, with another text in the place of some."""
    found = FILES[name]
    graph = found.graph
    for old, new in change.get("instead", {}).items():
        assert old in graph
        graph = graph.replace(old, new)
    return OldFile(graph, found.answer, found.weights, found.opset, found.format).model()

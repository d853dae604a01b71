"""Certificates: what is the same real function is certified, what is not never is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality.certificate.certify import _Pair, certify, only_change
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.ledger import Constants, _distance, content_of
from onnxtool.equality.certificate.models import certify_models, certify_rows
from onnxtool.equality.certificate.sizes import SizeRun, Sizes, turning_sizes
from onnxtool.equality.certificate.values import NotCoveredError, Value
from onnxtool.model import io

RNG = np.random.default_rng(0)
Weights = dict[str, np.ndarray]


def model(
    nodes: str, weights: Weights, x: str = "float[n, 4] x", y: str = "float y", opset: int = 20
) -> onnx.ModelProto:
    """A model from ONNX's text form of its nodes."""
    text = f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]> g ({x}) => ({y}) {{ {nodes} }}'
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return made


def f32(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


W = {"w": f32(4, 4), "b": f32(4), "one": np.float32([1]).reshape(()), "half": np.float32(0.5).reshape(())}
SAME = {
    "a square of a root elsewhere": (
        "p = Abs(x) s = Sqrt(p) t = Transpose(s) q = Mul(t, t) y = Transpose(q)",
        "p = Abs(x) s = Sqrt(p) y = Mul(s, s)",
    ),
    "a square of a part of roots": (
        "p = Abs(x) s = Sqrt(p) c, d = Split<axis = 1, num_outputs = 2>(s) y = Mul(d, d)",
        "p = Abs(x) c, y = Split<axis = 1, num_outputs = 2>(p)",
    ),
    "clipped twice, moved between": (
        "c = Clip(x, zero, half) t = Transpose(c) d = Clip(t, zero, one) y = Transpose(d)",
        "y = Clip(x, zero, half)",
    ),
    "the largest of one": ("y = ReduceMax(x, single)", "y, i = TopK<axis = 1>(x, single)"),
    "the smallest of one": ("y = ReduceMin(x, single)", "y, i = TopK<axis = 1, largest = 0>(x, single)"),
    "the place of the largest": (
        "i = ArgMax<axis = 1, select_last_index = 0>(x) y = Cast<to = 1>(i)",
        "v, i = TopK<axis = -1>(x, single) y = Cast<to = 1>(i)",
    ),
    "one of two numbers by a truth value": (
        "t = Greater(x, half) i = Cast<to = 7>(t) c = Constant<value_floats = [0.25, 1.75]>() y = Gather(c, i)",
        "t = Greater(x, half) f = Cast<to = 1>(t) s = Constant<value_float = 1.5>()"
        " q = Constant<value_float = 0.25>() p = Mul(f, s) y = Add(p, q)",
    ),
    "a truth value's own place": (
        "t = Greater(x, half) i = Cast<to = 7>(t) c = Constant<value_ints = [0, 1]>() g = Gather(c, i)"
        " y = Cast<to = 1>(g)",
        "t = Greater(x, half) y = Cast<to = 1>(t)",
    ),
    "gemm": ("p = MatMul(x, w) y = Add(p, b)", "h = Gemm(x, w, b) y = Identity(h)"),
    "relu twice": ("h = Relu(x) y = Relu(h)", "y = Relu(x)"),
    "sigmoid in parts": ("n = Neg(x) e = Exp(n) s = Add(e, one) y = Reciprocal(s)", "y = Sigmoid(x)"),
    "softmax in parts": (
        "m = ReduceMax<axes = [-1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) y = Div(e, s)",
        "y = Softmax(x)",
    ),
    "layer norm in parts": (
        "m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean<axes = [-1]>(q) e = Add(v, eps)"
        " s = Sqrt(e) y = Div(d, s)",
        "y = LayerNormalization<epsilon = 1e-5>(x, ones)",
    ),
    "gelu in parts": (
        "r = Mul(x, root) e = Erf(r) f = Add(e, one) g = Mul(x, f) y = Mul(g, half)",
        "y = Gelu(x)",
    ),
    "max in any order": ("y = Max(x, b)", "y = Max(b, x)"),
    "comparison turned": ("c = Less(x, b) y = Where(c, x, b)", "c = Greater(b, x) y = Where(c, x, b)"),
    "absolute by a choice": ("c = Greater(x, zero) n = Neg(x) y = Where(c, x, n)", "y = Abs(x)"),
    "absolute by the other choice": ("c = Less(x, zero) n = Neg(x) y = Where(c, n, x)", "y = Abs(x)"),
    "a slope by a choice": (
        "c = GreaterOrEqual(x, zero) n = Mul(x, half) y = Where(c, x, n)",
        "y = LeakyRelu<alpha = 0.5>(x)",
    ),
    "logarithm of softmax": ("l = ReduceLogSumExp(x, last) y = Sub(x, l)", "y = LogSoftmax(x)"),
    "logarithm of softmax in parts": (
        "m = ReduceMax<axes = [-1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) l = Log(s) y = Sub(d, l)",
        "y = LogSoftmax(x)",
    ),
    "softmax by its logarithm": ("l = LogSoftmax(x) y = Exp(l)", "y = Softmax(x)"),
    "a constant choice of roots": (
        "p = Abs(x) r = Sqrt(p) e = Exp(x) s = Sqrt(e) y = Where(some, r, s)",
        "p = Abs(x) e = Exp(x) t = Where(some, p, e) y = Sqrt(t)",
    ),
    "the largest, one dim after the other": (
        "m = ReduceMax(x, single) y = ReduceMax(m, first)",
        "y = ReduceMax(x)",
    ),
    "a number that is none": ("e = Equal(x, x) y = Where(e, x, b)", "n = IsNaN(x) y = Where(n, b, x)"),
    "the larger of two integers by a choice": (
        "i = Cast<to = 7>(x) j = Cast<to = 7>(b) c = Less(i, j) m = Where(c, j, i) y = Cast<to = 1>(m)",
        "i = Cast<to = 7>(x) j = Cast<to = 7>(b) m = Max(i, j) y = Cast<to = 1>(m)",
    ),
    "zero point 128 of uint8": (
        "q = QuantizeLinear(x, half, u128) y = DequantizeLinear(q, half, u128)",
        "q = QuantizeLinear(x, half, i0) y = DequantizeLinear(q, half, i0)",
    ),
    "a Relu that saturation does": (
        "r = Relu(x) q = QuantizeLinear(r, half, u0) y = DequantizeLinear(q, half, u0)",
        "q = QuantizeLinear(x, half, u0) y = DequantizeLinear(q, half, u0)",
    ),
    "an upper bound that saturation does": (
        "r = Clip(x, zero, most) q = QuantizeLinear(r, half, u0) y = DequantizeLinear(q, half, u0)",
        "q = QuantizeLinear(x, half, u0) y = DequantizeLinear(q, half, u0)",
    ),
    "an optional that is there": (
        "o = Optional(x) h = OptionalHasElement(o) y = If<then_branch = t() => (float[n, 4] r) { r = Relu(x) },"
        " else_branch = f() => (float[n, 4] s) { s = Neg(x) }>(h)",
        "y = Relu(x)",
    ),
    "transposes": ("h = Transpose(x) y = Transpose(h)", "y = Identity(x)"),
}
EXTRA: Weights = {
    "zero": np.float32([0]),
    "last": np.array([-1]),
    "single": np.array([1]),
    "eps": np.float32([1e-5]),
    "ones": np.ones(4, np.float32),
    "first": np.array([0]),
    "whole": np.int64(0).reshape(()),
    "most": np.float32(127.5).reshape(()),
    "less": np.float32(126.5).reshape(()),
    "u0": np.uint8(0).reshape(()),
    "u3": np.uint8(3).reshape(()),
    "u128": np.uint8(128).reshape(()),
    "i0": np.int8(0).reshape(()),
    "i1": np.int8(1).reshape(()),
    "root": np.float32([0.5**0.5]),
    "some": np.array([True, False, True, False]),
}
APART = {
    "one of two numbers, another": (
        "t = Greater(x, half) i = Cast<to = 7>(t) c = Constant<value_floats = [0.25, 1.75]>() y = Gather(c, i)",
        "t = Greater(x, half) i = Cast<to = 7>(t) c = Constant<value_floats = [1.75, 0.25]>() y = Gather(c, i)",
    ),
    "a number's own place": (  # 2 is 1, and 3 is 0 there
        "f = Floor(x) i = Cast<to = 7>(f) c = Constant<value_ints = [0, 1]>() n = Constant<value_int = 2>()"
        " m = Mod(i, n) g = Gather(c, m) y = Cast<to = 1>(g)",
        "f = Floor(x) i = Cast<to = 7>(f) y = Cast<to = 1>(i)",
    ),
    "another activation": ("y = Relu(x)", "y = Abs(x)"),
    "softmax of another axis": ("y = Softmax<axis = 0>(x)", "y = Softmax<axis = 1>(x)"),
    "order": ("y = Sub(x, b)", "y = Sub(b, x)"),
    "a square of a root of other elements": (
        "p = Abs(x) s = Sqrt(p) c, d = Split<axis = 1, num_outputs = 2>(s) y = Mul(d, d)",
        "p = Abs(x) y, d = Split<axis = 1, num_outputs = 2>(p)",
    ),
    "the smallest for the largest": ("y = ReduceMax(x, single)", "y, i = TopK<axis = 1, largest = 0>(x, single)"),
    "the place of the smallest": (
        "i = ArgMax<axis = 1>(x) y = Cast<to = 1>(i)",
        "v, i = TopK<axis = 1, largest = 0>(x, single) y = Cast<to = 1>(i)",
    ),
    "first and last of equal ones": (
        "i = ArgMax<axis = 1>(x) y = Cast<to = 1>(i)",
        "i = ArgMax<axis = 1, select_last_index = 1>(x) y = Cast<to = 1>(i)",
    ),
    "less or equal": ("c = Less(x, b) y = Cast<to = 1>(c)", "c = LessOrEqual(x, b) y = Cast<to = 1>(c)"),
    "a jump that counts zero or does not": (
        "c = Greater(x, zero) y = Where(c, x, b)",
        "c = GreaterOrEqual(x, zero) y = Where(c, x, b)",
    ),
    "the sign of a product": (
        "p = Mul(x, b) c = Greater(p, zero) y = Where(c, x, zero)",
        "p = Mul(x, b) c = GreaterOrEqual(p, zero) y = Where(c, x, zero)",
    ),
    "powers of powers": ("e = Exp(x) s = ReduceSum(e, last) y = Log(s)", "y = ReduceSum(x, last)"),
    "a small part": ("h = Mul(x, tiny) r = Relu(x) y = Add(r, h)", "h = Mul(x, tiny) r = Abs(x) y = Add(r, h)"),
    "variance and deviation": ("y = Exp(x)", "h = Mul(x, half) y = Exp(h)"),
    "noise of another temperature": (
        "n = RandomNormalLike<scale = 1.0>(x) y = Add(x, n)",
        "n = RandomNormalLike<scale = 2.0>(x) y = Add(x, n)",
    ),
    "a number that is none": ("e = Equal(x, x) y = Where(e, x, b)", "y = Identity(x)"),
    "a difference of integers that may wrap around": (
        "i = Cast<to = 7>(x) j = Cast<to = 7>(b) d = Sub(i, j) m = Max(d, whole) y = Cast<to = 1>(m)",
        "i = Cast<to = 7>(x) j = Cast<to = 7>(b) d = Sub(i, j) c = Greater(i, j) m = Where(c, d, whole)"
        " y = Cast<to = 1>(m)",
    ),
    "the smallest of the largest": (
        "m = ReduceMax(x, single) y = ReduceMin(m, first)",
        "m = ReduceMin(x, first) y = ReduceMax(m, single)",
    ),
    "softmax less the largest of another dim": (
        "m = ReduceMax<axes = [-1]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, last) y = Div(e, s)",
        "m = ReduceMax<axes = [0]>(x) d = Sub(x, m) e = Exp(d) s = ReduceSum(e, first) y = Div(e, s)",
    ),
    "another zero point": (
        "q = QuantizeLinear(x, half, u128) y = DequantizeLinear(q, half, u128)",
        "q = QuantizeLinear(x, half, i1) y = DequantizeLinear(q, half, i1)",
    ),
    "a Relu above the zero point": (
        "r = Relu(x) q = QuantizeLinear(r, half, u3) y = DequantizeLinear(q, half, u3)",
        "q = QuantizeLinear(x, half, u3) y = DequantizeLinear(q, half, u3)",
    ),
    "an upper bound below saturation": (
        "r = Clip(x, zero, less) q = QuantizeLinear(r, half, u0) y = DequantizeLinear(q, half, u0)",
        "q = QuantizeLinear(x, half, u0) y = DequantizeLinear(q, half, u0)",
    ),
    "relu in noise": (
        "n = RandomNormalLike(x) s = Mul(n, tiny) r = Relu(x) y = Add(r, s)",
        "n = RandomNormalLike(x) s = Mul(n, tiny) r = Abs(x) y = Add(r, s)",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_function_is_certified(name: str) -> None:
    a, b = (model(text, W | EXTRA) for text in SAME[name])
    found = certify(a, b, most=3)
    assert found.verdict == "certified", found.reason


@pytest.mark.parametrize("name", APART)
def test_another_function_is_not(name: str) -> None:
    a, b = (model(text, W | EXTRA | {"tiny": np.float32([1e-9])}) for text in APART[name])
    found = certify(a, b, most=3)
    assert not found.ok and found.reason.startswith("not shown to be the same"), found.reason
    assert certify(a, a, most=3).ok


def test_a_last_bit_of_a_row_that_few_ids_read() -> None:
    table = f32(5000, 3)
    a = model("y = Gather(table, x)", {"table": table}, "int64[n] x")
    other = table.copy()
    other[4321, 2] = np.nextafter(other[4321, 2], np.float32(9))
    b = model("y = Gather(table, x)", {"table": other}, "int64[n] x")
    found = certify(a, b)
    assert found.change == "constant 'table'" and "Gather" in found.first and certify(a, a).ok


def folded(scale: np.ndarray, shift: np.ndarray, bits: int = 0) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    w, b, mean, variance = f32(6, 3, 3, 3), f32(6), f32(6), np.abs(f32(6)) + np.float32(0.1)
    parts = {"w": w, "b": b, "s": scale, "t": shift, "m": mean, "v": variance}
    x = "float[n, 3, h, 7] x"
    a = model("c = Conv(x, w, b) y = BatchNormalization<epsilon = 1e-5>(c, s, t, m, v)", parts, x)
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + np.float64(np.float32(1e-5)))
    new = (w * factor.reshape(-1, 1, 1, 1)).astype(np.float32)
    new.reshape(-1).view(np.int32)[5] ^= bits
    bias = (b * factor + (shift - mean * factor)).astype(np.float32)
    return a, model("y = Conv(x, w, b)", {"w": new, "b": bias}, x)


def test_folded_weights_are_their_expressions() -> None:
    found = certify(*folded(f32(6), f32(6)), [{"x": np.zeros((2, 3, 7, 7), np.float32)}], most=3)
    assert found.verdict == "certified", found.reason
    assert len(found.constants) == 2 and 0 < found.ulps <= 0.5001


def test_parts_that_are_more_than_there_is_are_not_certified() -> None:
    """ONNX's own implementation cuts the last part; the runtime refuses the file."""
    nodes = "a, b = Split<axis = 1>(x, sizes) y = Concat<axis = 1>(b, a)"
    a, b = (model(nodes, {"sizes": np.int64([1, n])}) for n in (3, 4))
    assert certify(a, a).verdict == "certified"
    assert certify(a, b).verdict == "not tested"


def test_a_quotient_by_a_constant_is_a_product_with_its_inverse() -> None:
    third = np.float32(1) / np.float32(3)
    apart = model("y = Div(x, c)", {"c": np.float32(3).reshape(())})
    assert certify(apart, model("y = Mul(x, c)", {"c": third.reshape(())})).verdict == "certified"
    beside = np.nextafter(third, np.float32(1))
    assert certify(apart, model("y = Mul(x, c)", {"c": beside.reshape(())})).verdict == "not tested"


def test_projections_side_by_side() -> None:
    """Three weights of one input joined, one of them with its scale: the order and each of their bits counts."""
    weights = {
        **{f"w{k}": f32(4, 3) for k in range(3)},
        "scale": np.float32(0.3).reshape(()),
        "widths": np.int64([3] * 3),
    }
    apart = model(
        "p = MatMul(x, w0) q = MatMul(x, w1) r = MatMul(x, w2) s = Mul(q, scale) y = Concat<axis = 1>(p, s, r)", weights
    )
    scaled = (weights["w1"] * np.float64(weights["scale"])).astype(np.float32)
    parts = [weights["w0"], scaled, weights["w2"]]

    def joined(parts: list[np.ndarray]) -> onnx.ModelProto:
        return model("p = MatMul(x, w) y = Identity(p)", {"w": np.concatenate(parts, 1)})

    assert certify(apart, joined(parts)).verdict == "certified"
    assert certify(apart, joined([parts[0], parts[2], parts[1]])).verdict == "not tested"
    for k in range(3):
        changed = [p.copy() for p in parts]
        changed[k][1, 2] = np.nextafter(changed[k][1, 2], np.float32(9))
        assert certify(apart, joined(changed)).verdict == "not tested"


def test_what_the_runtime_makes_of_constants() -> None:
    """Its cosine, to the last bit."""
    weights = {"k": np.arange(64, dtype=np.int64).reshape(4, 16), "step": np.float32(0.7390625).reshape(())}
    nodes = "f = Cast<to = 1>(k) a = Mul(f, step) c = Cos(a) y = MatMul(x, c)"
    apart = model(nodes, weights)
    table = Constants(apart).folded(["c"])[0]["c"]
    assert certify(apart, model("y = MatMul(x, c)", {"c": table})).verdict == "certified"
    for at in range(0, 64, 9):
        changed = table.copy()
        changed.reshape(-1)[at] = np.nextafter(changed.reshape(-1)[at], np.float32(9))
        assert certify(apart, model("y = MatMul(x, c)", {"c": changed})).verdict == "not tested"


def test_a_sum_over_constants_is_rounded_on_the_way() -> None:
    """As numpy adds float32, which is neither the exact sum rounded once nor what the runtime makes of it."""
    v, g, x = f32(6, 40, 9), f32(1, 1, 9), "float[n, 6, 4, 40] x"
    nodes = "s = Mul(v, v) t = ReduceSum(s, axes) r = Sqrt(t) q = Div(g, r) w = Mul(v, q) y = MatMul(x, w)"
    apart = model(nodes, {"v": v, "g": g, "axes": np.int64([0, 1])}, x)
    weight = v * (g / np.sqrt(np.sum(v * v, (0, 1), keepdims=True)))
    assert certify(apart, model("y = MatMul(x, w)", {"w": weight}, x)).verdict == "certified"
    weight[2, 7, 4] = np.nextafter(weight[2, 7, 4], np.float32(9))
    assert certify(apart, model("y = MatMul(x, w)", {"w": weight}, x)).verdict == "not tested"


def test_places_in_constants_that_are_resized_are_their_numbers() -> None:
    """Of a mask made larger, a sum is known: the same as that of the larger mask."""
    mask = np.array([[[[0, 2, 0], [1, 0, 0]]]], np.float32)
    nodes = 'm = Resize<mode = "nearest">(mask, , scales) b = Cast<to = 9>(m) i = Cast<to = 7>(b) '
    nodes += "s = ReduceSum<keepdims = 0>(i) t = Cast<to = 1>(s) y = Mul(x, t)"
    apart = model(nodes, {"mask": mask, "scales": np.float32([1, 1, 2, 3])})
    assert certify(apart, model("y = Mul(x, t)", {"t": np.float32(12).reshape(())})).verdict == "certified"
    assert certify(apart, model("y = Mul(x, t)", {"t": np.float32(2).reshape(())})).verdict == "not tested"


def test_an_average_counts_its_padding_at_all_sizes() -> None:
    """Both where elements are computed and where sizes alone are."""
    x = "float[n, 3, h, w] x"
    pooled = "AveragePool<kernel_shape = [3, 3], strides = [2, 2]{}>"
    a = model(f"y = {pooled.format(', pads = [1, 1, 1, 1], count_include_pad = 1')}(x)", {}, x)
    padding = {"pads": np.int64([0, 0, 1, 1, 0, 0, 1, 1])}
    assert certify(a, model(f"p = Pad(x, pads) y = {pooled.format('')}(p)", padding, x)).verdict == "certified"
    other = model(f"y = {pooled.format(', pads = [1, 1, 1, 1]')}(x)", {}, x)
    assert certify(a, other).verdict == "not tested"


def test_a_bit_of_a_folded_weight() -> None:
    found = certify(*folded(f32(6), f32(6), 1), [{"x": np.zeros((2, 3, 7, 7), np.float32)}], most=3)
    assert not found.ok


def test_only_change_names_it() -> None:
    a = model("y = Add(x, b)", W)
    b = onnx.ModelProto.FromString(a.SerializeToString())
    assert only_change(a, b) == ""
    b.graph.node[0].input[:] = ["b", "x"]
    assert "inputs of Add" in only_change(a, b)
    b.graph.initializer[0].CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, (4, 4), np.zeros(16)))
    assert only_change(a, b) == ""


def test_a_mask_too_large_for_memory_is_no_difference_of_shapes() -> None:
    a = model("y = Relu(x)", {}, "float[n] x")
    b = model(
        "k = Shape(x) n = Squeeze(k) r = Range(start, n, step) c = Unsqueeze(r, axis) m = Equal(c, r) d = Shape(m)"
        " s = Gather(d, first) z = Reshape(x, s) y = Relu(z)",
        {"start": np.array(0), "step": np.array(1), "axis": np.array([1]), "first": np.array([0])},
        "float[n] x",
    )
    for pair in ((a, b), (b, a)):
        found = certify(*pair)
        assert found.verdict == "certified", found.reason


def test_masks_made_in_other_ways_are_not_certified_where_they_are_too_large_to_look_at() -> None:
    def masked(comparison: str, window: int) -> onnx.ModelProto:
        return model(
            f"""l = Shape<start = 0, end = 1>(x) n = Squeeze(l) zero = Constant<value_int = 0>()
            step = Constant<value_int = 1>() r = Range(zero, n, step)
            last = Constant<value_ints = [1]>() first = Constant<value_ints = [0]>()
            q = Unsqueeze(r, last) k = Unsqueeze(r, first) d = Sub(q, k) w = Constant<value_int = {window}>()
            m = {comparison} f = Cast<to = 1>(m) y = MatMul(f, x)""",
            {},
        )

    a = masked("Less(d, w)", 4096)
    assert certify(a, masked("Less(d, w)", 4096)).verdict == "certified"
    assert certify(a, masked("Greater(w, d)", 4096)).verdict == "certified"
    other = certify(a, masked("LessOrEqual(d, w)", 4096))  # one place more, from 4,097 rows on
    assert other.verdict == "not tested"
    assert "was not looked at from n = 4" in other.reason
    assert certify(masked("Less(d, w)", 31), masked("LessOrEqual(d, w)", 30)).verdict == "certified"
    assert certify(masked("Less(d, w)", 31), masked("LessOrEqual(d, w)", 31)).verdict != "certified"


def test_what_is_before_an_operator_whose_shape_the_data_decides_is_decided() -> None:
    x, detector = "float[b, 1, n] x", "c = Conv<kernel_shape = [3], strides = [4], pads = [1, {}]>(x, k) y = NonZero(c)"
    weights = {"k": f32(2, 1, 3)}
    a = model(detector.format(1), weights, x, "int64 y")
    other = certify(a, model(detector.format(2), weights, x, "int64 y"))
    assert "not shown to be the same real function" in other.reason
    assert "before NonZero, whose shape the data decides" in other.reason
    assert other.unlike
    assert other.change.startswith("attribute 'pads' of Conv")
    alike = certify(a, model("h = Identity(x) " + detector.format(1).replace("(x", "(h"), weights, x, "int64 y"))
    assert alike.reason == "not decided: NonZero, whose shape the data decides"


def test_what_is_undefined_at_zero_is_not_certified() -> None:
    a, b = (model(text, {}) for text in ("y = Identity(x)", "d = Div(x, x) y = Mul(x, d)"))
    found = certify(a, b)
    assert found.same_function and not found.ok and "zeros" in found.reason


# Where a sum s of integers, of a type as x, goes to become g; a zero of that type is there too.
MOVED = {
    "rows of it": "h = Concat<axis = 0>(s, s) g = Gather<axis = 0>(h, at)",
    "nothing is added": "g = Add(s, naught)",
    "beside others": "q = SequenceConstruct(s, s) h = ConcatFromSequence<axis = 0, new_axis = 1>(q) g = Gather(h, at)",
    "a step after the other": "g = Scan<num_scan_inputs = 1, body = b ({0} e) => ({0} o) {{ o = Identity(e) }}>(s)",
    "in a branch": (
        "m = ReduceMax<keepdims = 0>(x) c = Cast<to = 9>(m) g = If(c) <then_branch = t () => ({0}[n] o)"
        " {{ o = Identity(s) }}, else_branch = e () => ({0}[n] p) {{ p = Add(s, s) }}>"
    ),
}


@pytest.mark.parametrize("moved", MOVED.values(), ids=MOVED)
@pytest.mark.parametrize("kind", ["uint8", "int32"])
def test_integers_that_wrap_around_are_not_certified(kind: str, moved: str) -> None:
    """2,000,000,000 + x in int32, and 200 + x in uint8, wrap around; in int64 they do not, wherever the sum went."""
    number = 200 if kind == "uint8" else 2_000_000_000
    own, wide = ({"k": np.array(number, t), "at": np.array(0), "naught": np.array(0, t)} for t in (kind, "int64"))
    a = model(f"s = Add(x, k) {moved.format(kind)} y = Cast<to = 7>(g)", own, f"{kind}[n] x")
    b = model(f"w = Cast<to = 7>(x) s = Add(w, k) {moved.format('int64')} y = Identity(g)", wide)
    b.graph.input[0].CopyFrom(a.graph.input[0])
    assert not certify(a, b).ok and certify(a, a).ok


def test_a_slice_that_goes_back_from_before_the_first_element_has_that_one() -> None:
    numbers = {n: np.array([k]) for n, k in (("s", -9), ("e", -(2**60)), ("z", 0), ("m", -1), ("t", -8))}
    a = model("y = Slice(x, s, e, z, m)", numbers, "float[n] x")
    b = model("h = Slice(x, z, t, z) y = Slice(h, m, e, z, m)", numbers, "float[n] x")
    assert not certify(a, b).ok and certify(a, a).ok


def test_bounds_that_doubles_do_not_hold() -> None:
    a, b = (model("y = Min(x, k)", {"k": np.array(2**53 + n)}, "int64[n] x") for n in (0, 1))
    assert not certify(a, b).ok


def test_operands_of_the_wrong_type_are_not_certified() -> None:
    """(x - 0) * scale is scale * x, but no runtime takes floats for quantized numbers."""
    weights = {"s": np.float32(0.5).reshape(()), "q": np.arange(4, dtype=np.int8)}
    a, b = (model(f"d = DequantizeLinear({pair}) y = Mul(x, d)", weights) for pair in ("q, s", "s, q"))
    assert certify(a, a).ok and not certify(a, b).ok


def test_exact_values_stand_for_constants_of_the_main_graph_alone() -> None:
    """Names inside a function are its own: a Constant there that is called like a rounded one stays what it is."""
    text = """<ir_version: 10, opset_import: ["" : 20, "own" : 1]> m (float[n] x) => (float[n] y)
    { w = Constant <value = float {3.0}> () z = own.f (x) y = Mul (z, w) }
    <opset_import: ["" : 20], domain: "own"> f (a) => (b) { w = Constant <value = float {5.0}> () b = Mul (a, w) }"""
    field = Field(3)
    x = field.draw("x", (2,))
    feeds = {"x": Value(x, np.dtype(np.float32), False)}
    exact = {"w": field.from_float(np.float32(7.0))}
    found = Interpreter(onnx.parser.parse_model(text), field, exact).run(feeds)["y"].data
    assert np.array_equal(found, field.mul(x, field.from_int(np.array(35))))


def test_an_old_softmax_of_nothing_is_nothing() -> None:
    text = """<ir_version: 8, opset_import: ["" : 12]> g (float[n, 4] x) => (float[m, 4] y) {
        one = Constant <value_ints = [1]> ()  end = Constant <value_ints = [9999]> ()
        zero = Constant <value_ints = [0]> ()
        s = Slice (x, one, end, zero)  y = Softmax <axis = 1> (s) }"""
    found = certify(onnx.parser.parse_model(text), onnx.parser.parse_model(text))
    assert found.ok and any(point.shapes["x"][0] == 1 for point in found.points)


def test_weights_that_are_still_on_the_disk_are_read(tmp_path: Path) -> None:
    """Large files are loaded so, and the proof of `optimize` ended with an error of ours."""
    text = """<ir_version: 9, opset_import: ["" : 18]> g (float[n, 3] x) => (float[n, 3] y)
    <float[3] w = {1.0, 2.0, 3.0}> { a = Mul(x, w) y = Neg(a) }"""
    made = onnx.parser.parse_model(text)
    made.graph.initializer[0].raw_data = np.float32([1, 2, 3]).tobytes()
    made.graph.initializer[0].ClearField("float_data")
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    on_disk = io.load(tmp_path / "m.onnx")
    assert isinstance(on_disk.graph.initializers["w"].const_value, ir.ExternalTensor)
    assert certify_models(on_disk, io.load(tmp_path / "m.onnx")).verdict == "certified"


@pytest.mark.parametrize("turned", [False, True])
def test_the_transpose_of_a_square_constant_is_another_constant(turned: bool) -> None:
    weights = {"w": f32(4, 4), "s": np.float32([[1.7]])}
    a = model("v = Mul(w, s) y = MatMul(x, v)", weights)
    v = np.ascontiguousarray((weights["w"] * weights["s"]).T)
    b = model("y = Gemm<transB = 1>(x, v)" if turned else "y = MatMul(x, v)", {"v": v})
    found = certify(a, b)
    assert found.same_function is turned, found.reason
    assert certify(model("y = MatMul(x, w)", weights), model("y = MatMul(x, w)", {"w": weights["w"].T})).ok is False


@pytest.mark.parametrize("changed", ["", "r", "n"])
def test_rows_of_different_lengths_are_taken_for_an_unknown_function_of_all_that_is_given(changed: str) -> None:
    weights = {"w": f32(1, 6, 3), "r": f32(1, 6, 2), "n": np.zeros((1, 2, 2), np.float32)}
    x = "float[t, 2, 3] x, int32[2] lengths"
    gru = 'y, h = GRU <hidden_size = 2, direction = "{}"> (x, w, r, , lengths{})'
    a = model(gru.format("forward", ", n"), weights, x)
    other = {**weights, **({changed: weights[changed] + 1} if changed else {})}
    b = model(gru.format("forward", ", n" if changed == "n" else ""), other, x)  # a state of zeros is none
    assert certify(a, b).ok is not bool(changed)
    assert not certify(a, model(gru.format("reverse", ""), weights, x)).ok


def test_dims_that_an_exporter_calls_unknown_need_not_be_equal() -> None:
    swap = "s = Shape(x) i = Constant <value_ints = [1, 0]> () t = Gather(s, i) y = Reshape(x, t)"
    models = [model(nodes, {}, "float[h, w] x") for nodes in ("y = Identity(x)", swap)]
    for m in models:
        for dim in m.graph.input[0].type.tensor_type.shape.dim:
            dim.dim_param = "?"
    assert not certify(*models).ok
    assert certify(models[0], models[0]).ok


@pytest.mark.parametrize("bits", [0, 1])
def test_a_fixed_dim_behind_the_shape_is_a_constant(bits: int) -> None:
    """As the width of a head that scales queries, folded into a constant and into the weights of a product."""
    w = f32(4, 4)
    nodes = (
        "p = MatMul(x, w) s = Shape(p) k = Slice(s, last, end) f = Cast<to = 1>(k) q = Sqrt(f) r = Div(unit, q)"
        " t = Sqrt(r) y = Mul(p, t)"
    )
    weights = {"w": w, "last": np.array([-1]), "end": np.array([2**62]), "unit": np.ones(1, np.float32)}
    apart = model(nodes, weights)
    scale = np.sqrt(np.float32(1) / np.sqrt(np.float32([4])))
    if bits:
        scale = np.nextafter(scale, np.float32(9))
    verdict = "not tested" if bits else "certified"
    assert certify(apart, model("p = MatMul(x, w) y = Mul(p, t)", {"w": w, "t": scale})).verdict == verdict
    assert certify(apart, model("y = MatMul(x, w)", {"w": w * scale})).verdict == verdict
    assert (
        certify(apart, model("y = MatMul(x, w)", {"w": np.concatenate([w[:2] * scale, w[2:]])})).verdict != "certified"
    )


def test_a_dim_that_is_free_is_no_constant() -> None:
    nodes = "s = Shape<start = 0, end = 1>(x) f = Cast<to = 1>(s) y = Mul(x, f)"
    for n in (2, 3, 8):
        baked = model("y = Mul(x, f)", {"f": np.float32([n])})
        assert certify(model(nodes, {}), baked, [{"x": np.zeros((n, 4), np.float32)}]).verdict != "certified"


SIZED = {
    "a table by another period": (
        "s = Shape<start = 0, end = 1>(x) i = Mod(s, a) g = Gather(t, i) y = Mul(x, g)",
        {"t": np.where(np.arange(48) == 41, 2, 1).astype(np.float32)},
        np.array([48]),
        np.array([40]),
    ),
    "more bits of a size": (
        "s = Shape<start = 0, end = 1>(x) u = Cast<to = 13>(s) h = BitwiseAnd(u, a) f = Cast<to = 1>(h) y = Mul(x, f)",
        {},
        np.array([4095], np.uint64),
        np.array([255], np.uint64),
    ),
    "a limit among floats": (
        "s = Shape<start = 0, end = 1>(x) f = Cast<to = 1>(s) q = Div(f, a) h = Floor(q) y = Mul(x, h)",
        {},
        np.float32([300]),
        np.float32([301]),
    ),
}


@pytest.mark.parametrize("name", SIZED)
def test_what_sizes_alone_make_is_compared_where_the_two_make_something_else(name: str) -> None:
    nodes, weights, first, second = SIZED[name]
    a = model(nodes, {**weights, "a": first})
    assert certify(a, model(nodes, {**weights, "a": first})).verdict == "certified"
    assert certify(a, model(nodes, {**weights, "a": second})).verdict != "certified"


def test_a_loop_too_long_to_follow_is_no_difference_of_shapes() -> None:
    zero = {"zero": np.zeros(4, np.float32), "first": np.array([0])}
    body = "(float[4] t, float[4] v) => (float[4] w, float[4] z) { w = Add(t, v) z = Identity(w) }"
    scan = f"y, s = Scan<num_scan_inputs = 1, body = b {body}>(zero, x)"
    summed = model("y = ReduceSum<keepdims = 0>(x, first)", zero, y="float[4] y")
    assert certify(summed, model(scan, zero, y="float[4] y")).verdict == "certified"


def test_a_window_on_the_second_dim_is_compared_beyond_its_width() -> None:
    """Sizes of the first dim that were tried to 100,000 and more do not make those of the second too large to try."""

    def windowed(width: int) -> onnx.ModelProto:
        return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
            g (float[n, l, 4] x) => (float[n, l, 4] y) {{
              zero = Constant <value = int64 {{0}}> ()
              one = Constant <value = int64 {{1}}> ()
              axis = Constant <value_ints = [1]> ()
              first = Constant <value_ints = [0]> ()
              size = Shape <start = 1, end = 2> (x)
              length = Squeeze (size)
              i = Range (zero, length, one)
              rows = Unsqueeze (i, axis)
              columns = Unsqueeze (i, first)
              d = Sub (rows, columns)
              far = Abs (d)
              width = Constant <value = int64 {{{width}}}> ()
              three = Constant <value = int64 {{3}}> ()
              times = Mul (far, three)
              near = LessOrEqual (times, width)
              batch = Shape <start = 0, end = 1> (x)
              all = Concat <axis = 0> (batch, size, size)
              each = Expand (near, all)
              mask = Cast <to = 1> (each)
              y = MatMul (mask, x)
            }}""")

    run = SizeRun(windowed(903), windowed(903))
    for sizes in ({"n": n, "l": 3} for n in (2, 3, 100, 3_000, 40_000, 100_000)):
        assert run.of(sizes).outputs is not None
    assert not run.too_large({"n": 2, "l": 34})
    assert run.too_large({"n": 100_000, "l": 340})
    assert certify(windowed(903), windowed(903), seconds=3).ok
    # That is 301 and 302 positions, which no number names.
    assert not certify(windowed(903), windowed(906), seconds=3).ok


@pytest.mark.parametrize(
    ("a", "b", "y"),
    [
        ("y = SequenceConstruct(x, x)", "y = SequenceConstruct(x, x, x)", "seq(float[n, 4]) y"),
        ("y = Identity(x)", "y = Cast<to = 11>(x)", "float y"),
        ("y = Sub(x, x)", "y = Identity(zeros)", "float y"),  # of NaN and infinity only one makes zeros
    ],
    ids=["a longer sequence", "a wider type", "a constant"],
)
def test_outputs_of_the_same_numbers_may_be_something_else(a: str, b: str, y: str) -> None:
    first, second = (model(text, {"zeros": np.zeros((2, 4), np.float32)}, "float[2, 4] x", y) for text in (a, b))
    assert certify(first, first).ok and certify(second, second).ok
    assert not certify(first, second).ok and not certify(second, first).ok


THREE = "p = Exp(x) q = Sin(x) s = SequenceConstruct(x, p, q) "


@pytest.mark.parametrize(
    ("nodes", "same", "other"),
    [
        (THREE + "y = SequenceAt(s, two)", "y = Sin(x)", "y = Exp(x)"),
        (THREE + "y = SequenceAt(s, last)", "y = Sin(x)", "y = Exp(x)"),
        (THREE + "t = Identity(s) y = SequenceAt(t, two)", "y = Sin(x)", "y = Exp(x)"),
        (THREE + "t = SequenceErase(s, one) y = SequenceAt(t, one)", "y = Sin(x)", "y = Exp(x)"),
        (THREE + "t = SequenceErase(s) y = SequenceAt(t, last)", "y = Exp(x)", "y = Sin(x)"),
        (THREE + "z = Abs(x) t = SequenceInsert(s, z, one) y = SequenceAt(t, two)", "y = Exp(x)", "y = Sin(x)"),
        (THREE + "z = Abs(x) t = SequenceInsert(s, z) y = SequenceAt(t, last)", "y = Abs(x)", "y = Sin(x)"),
        (
            THREE + "y = ConcatFromSequence<axis = 1>(s)",
            "p = Exp(x) q = Sin(x) y = Concat<axis = 1>(x, p, q)",
            "p = Exp(x) q = Sin(x) y = Concat<axis = 1>(x, q, p)",
        ),
        (
            "s = SplitToSequence<axis = 1>(x, three) y = SequenceAt(s, last)",
            "a, y = Split<axis = 1>(x, lengths)",
            "z = Exp(x) a, y = Split<axis = 1>(z, lengths)",
        ),
        (
            "s = SplitToSequence<axis = 1>(x, lengths) y = SequenceAt(s, zero)",
            "y, a = Split<axis = 1>(x, lengths)",
            "a = Identity(x) z = Neg(a) y, b = Split<axis = 1>(z, lengths)",
        ),
        (
            "s = SplitToSequence<axis = 1, keepdims = 0>(x) y = SequenceAt(s, two)",
            "y = Gather<axis = 1>(x, two)",
            "y = Gather<axis = 1>(x, one)",
        ),
        (
            "s = SplitToSequence<axis = 1>(x) n = SequenceLength(s) y = Gather<axis = 1>(x, two)",
            "y = Gather<axis = 1>(x, two)",
            "y = Gather<axis = 1>(x, one)",
        ),
    ],
)
def test_elements_of_sequences_are_told_apart(nodes: str, same: str, other: str) -> None:
    numbers = {n: np.array(v) for n, v in {"zero": 0, "one": 1, "two": 2, "three": 3, "last": -1}.items()}
    weights = {**numbers, "lengths": np.array([3, 1])}
    a, b, c = (model(text, weights, "float[n, 4] x", "float y") for text in (nodes, same, other))
    assert certify(a, b).ok and certify(b, a).ok
    found = certify(a, c)
    assert not found.ok and "not decided" not in found.reason


def test_a_single_point_certifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second evaluation found no memory: two functions agree at one point by chance more easily than at two."""
    hold = _Pair.hold

    def once(pair: _Pair, sizes: Sizes) -> None:
        if pair.points:
            raise MemoryError
        hold(pair, sizes)

    monkeypatch.setattr(_Pair, "hold", once)
    found = certify(*[model("y = Relu(x)", {})] * 2)
    assert found.verdict == "not tested" and "MemoryError" in found.reason


@pytest.mark.parametrize("reason", ["there was no time to compare at", "an operator that is not covered there"])
def test_a_size_that_decides_something_has_to_be_compared(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    nodes, weights, number, _ = SIZED["a table by another period"]
    pair = [model(nodes, {**weights, "a": number})] * 2
    assert certify(*pair).ok
    if "time" in reason:
        monkeypatch.setattr(_Pair, "affordable", lambda *_: False)
    hold = _Pair.hold

    def fails(pair: _Pair, sizes: Sizes) -> None:
        if sizes["n"] > 40:
            raise NotCoveredError(reason)
        hold(pair, sizes)

    monkeypatch.setattr(_Pair, "hold", fails)
    found = certify(*pair)
    assert not found.ok and reason in found.reason


_LOWER = 'case_change_action = "LOWER", locale = "C", is_case_sensitive = 1'


def test_texts_are_elements_like_others() -> None:
    inputs, output = "string[n] x, string[n] z", "float[n] y"

    def words(joined: str, keys: str = '["a", "b"]', default: int = 3) -> onnx.ModelProto:
        mapped = f"ai.onnx.ml.LabelEncoder<keys_strings = {keys}, values_int64s = [1, 2], default_int64 = {default}>(k)"
        made = model(f"{joined} i = {mapped} f = Cast<to = 1>(i) y = Mul(f, f)", {}, inputs, output)
        made.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
        return made

    plain = words("k = StringConcat(x, z)")
    assert certify(plain, words("c = Identity(x) k = StringConcat(c, z)")).ok
    for other in (
        words("k = StringConcat(z, x)"),
        words("k = StringConcat(x, z)", '["a", "c"]'),
        words("k = StringConcat(x, z)", default=4),
        words(f"c = StringNormalizer<{_LOWER}>(x) k = StringConcat(c, z)"),
    ):
        assert "has no partner" in certify(plain, other).reason
    lowered = words(f"c = StringNormalizer<{_LOWER}>(x) k = StringConcat(c, z)")
    assert certify(lowered, words(f"d = Identity(x) c = StringNormalizer<{_LOWER}>(d) k = StringConcat(c, z)")).ok
    without = words(f'c = StringNormalizer<{_LOWER}, stopwords = ["a"]>(x) k = StringConcat(c, z)')
    assert "stopwords" in certify(without, without).reason


def test_what_no_certificate_is_made_of() -> None:
    relu = model("y = Relu(x)", {})
    assert certify(relu, model("y = Add(x, z)", {}, "float[n, 4] x, float[n, 4] z")).reason == "they have other inputs"
    sparse = model("y = Add(x, s)", {})
    sparse.graph.sparse_initializer.add().values.name = "s"
    assert certify(sparse, sparse).reason == "not decided: sparse initializer 's'"


@pytest.mark.parametrize("inside", [False, True])
def test_an_older_opset_may_read_an_operator_otherwise(inside: bool) -> None:
    """Softmax over all dims from axis 1 on, before opset 13; in a function, whatever the model itself imports."""
    own = "y = Softmax<axis = 1>(x)"
    body = '<opset_import: ["" : {}], domain: "d"> f (x) => (y) {{' + own + "}}"
    head = '<ir_version: 9, opset_import: ["" : {}, "d" : 1]> g (float[n, 3, 4] x) => (float[n, 3, 4] y) {{ {} }} '
    old, new = (
        onnx.parser.parse_model(
            head.format(17, "y = d.f(x)") + body.format(version) if inside else head.format(version, own)
        )
        for version in (12, 13)
    )
    assert certify(old, old).ok and certify(new, new).ok and not certify(old, new).ok


def test_attributes_of_a_function_reach_the_graphs_of_its_nodes() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]> g (float[n] x, bool c) => (float[n] y)
    {{ a = d.f <slope = 0.1> (x, c) y = d.f <slope = {}> (a, c) }}
    <opset_import: ["" : 20], domain: "d"> f <slope> (x, c) => (y) {{ y = If (c) <
    then_branch = t () => (float[n] r) {{ r = LeakyRelu <alpha = @slope> (x) }},
    else_branch = e () => (float[n] q) {{ q = Exp (x) }}> }}"""
    same, other = (onnx.parser.parse_model(text.format(slope)) for slope in (0.1, 0.7))
    assert certify(same, same).ok and not certify(same, other).ok


def test_of_functions_of_one_name_the_one_that_is_meant_counts() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]> g (float[n] x) => (float[n] y) { y = d.f(x) }
    <opset_import: ["" : 20], domain: "d"> f (x) => (y) { y = Exp(x) }
    <opset_import: ["" : 20], domain: "d"> f (x) => (y) { y = Neg(x) }"""
    models = [onnx.parser.parse_model(text) for _ in range(2)]
    for found, meant in zip(models, ("one", "other"), strict=True):
        found.functions[0].overload, found.functions[1].overload = "one", "other"
        found.graph.node[0].overload = meant
    assert not certify(*models).ok and all(certify(m, m).ok for m in models)


def test_an_old_pad_fills_with_its_own_number() -> None:
    old = '<ir_version: 5, opset_import: ["" : 10]> g (float[n] x) => (float[m] y) {{ y = Pad<pads = [1, 1]{}>(x) }}'
    half, other, none = (onnx.parser.parse_model(old.format(v)) for v in (", value = 0.5", ", value = 0.7", ""))
    new = model("y = Pad(x, pads, half)", {**W, "pads": np.array([1, 1])}, "float[n] x", "float[m] y")
    assert certify(half, new).ok
    assert not any(found.same_function for found in (certify(half, other), certify(half, none)))


def test_a_pole_with_another_sign_is_not_certified() -> None:
    nodes = "n = Neg(x) a = Max(n, zero) y = Reciprocal(a)", "a = Min(x, zero) r = Reciprocal(a) y = Neg(r)"
    a, b = (model(text, {"zero": np.float32(0)}) for text in nodes)
    assert certify(a, b).same_function and not certify(a, b).ok


def test_weights_beyond_what_memory_holds_are_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    relu = model("y = Relu(x)", {})
    monkeypatch.setattr("onnxtool.equality.certificate.certify._LARGE", 1)
    assert "MiB of weights" in certify(relu, relu).reason
    monkeypatch.undo()
    monkeypatch.setattr("onnxtool.equality.certificate.models.MOST_WEIGHTS", -1)
    held = ir.from_proto(relu)
    assert "MiB of weights" in certify_models(held, held).reason
    found = certify_rows(held, held, {"x": 0}, 1)
    assert not found.decided and "MiB of weights" in found.reason


def test_an_error_of_the_certificates_own_ends_nothing_but_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise IndexError("no such row")

    monkeypatch.setattr(_Pair, "hold", fails)
    found = certify(*[model("y = Relu(x)", {})] * 2)
    assert found.reason == "not decided: an error inside onnxtool's certificate, IndexError: no such row"


def test_an_operand_that_is_left_out_is_no_error() -> None:
    text = '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (bool y) { y = OptionalHasElement(x) }'
    made = onnx.parser.parse_model(text)
    made.graph.node[0].input[0] = ""
    assert certify(made, made).ok


def test_tensors_without_elements_are_no_error_where_time_is_over() -> None:
    text = (
        '<ir_version: 9, opset_import: ["" : 18]> g (float[n, 2] x) => (float[n, 2] y) { y = Concat<axis=0>(x, none) }'
    )
    made = onnx.parser.parse_model(text)
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((0, 2), np.float32), "none"))
    decided, _, unlike, _ = turning_sizes(made, made, {"n": 2}, 0.0, np.inf)
    assert not decided and unlike is None


def test_no_model_can_be_made_for_the_points_of_a_certificate() -> None:
    relu = model("y = Relu(x)", {})
    salts = [point.salt for found in (certify(relu, relu), certify(relu, relu)) for point in found.points]
    assert len(set(salts)) == len(salts) > 2


def test_the_distance_of_a_constant_is_that_of_its_worst_number() -> None:
    exact_values = 1 + 2.0**-23 * np.array([0.0, 0.25, 0.5, -0.125])
    rounded = exact_values.astype(np.float32).astype(np.float64)
    assert _distance(rounded, exact_values, rounded, np.dtype(np.float32)) == pytest.approx(0.5)
    beside = rounded + np.array([2.0**-23, 0, 0, 0])  # one number is a step off
    assert _distance(beside, exact_values, rounded, np.dtype(np.float32)) is None


def test_the_same_bytes_of_another_type_are_another_constant() -> None:
    for one, other in ((np.int64([1]), np.int32([1, 0])), (np.float64([2.0]), np.float64([2.0]).view(np.float32))):
        assert one.tobytes() == other.tobytes() and content_of(one) != content_of(other)


def test_what_b_does_not_take_where_a_does_is_not_certified() -> None:
    """Alike at one row; at more, B's shapes do not fit each other."""
    x = "bool[n, m] x, bool[n, 1, m, m] z"
    a = model("u = Unsqueeze(x, inner) y = And(z, u)", {"inner": np.array([1, 2])}, x, "bool y")
    b = model("y = And(z, x)", {}, x, "bool y")
    for most in (2, 6):
        found = certify(a, b, most=most)
        assert not found.ok and "B cannot be evaluated at n = 2, m = " in found.reason


def test_types_that_an_operator_does_not_take_are_not_certified() -> None:
    a = model("i = Cast<to = 7>(c) y = GatherElements(x, i)", {}, "float[n, 4] x, bool[n, 4] c")
    b = model("y = GatherElements(x, c)", {}, "float[n, 4] x, bool[n, 4] c")
    assert certify(a, a).ok
    assert certify(a, b).reason.startswith("B is not valid: ") and "tensor(bool)" in certify(a, b).reason


@pytest.mark.parametrize(("kind", "operand"), [("Sub", 3.0), ("Mul", 2.0), ("Add", 2.0**-30), ("Mul", 1 / 3)])
def test_arithmetic_of_constants_is_known_where_it_rounds_nothing(kind: str, operand: float) -> None:
    """As of masks of windows: whether the areas of two places differ by nothing."""
    whole, other, found = np.arange(40, dtype=np.float32), np.float32(operand), np.float32(0)
    made = {"Sub": np.subtract, "Mul": np.multiply, "Add": np.add}[kind](whole, other)
    weights = {"whole": whole, "other": other, "zero": np.float32(0), "far": np.float32(-100), "there": made[9]}
    a = model(
        f"d = {kind}(whole, other) e = Equal(d, there) m = Where(e, zero, far) y = Add(x, m)", weights, "float[n, 40] x"
    )
    b = model("y = Add(x, m)", {"m": np.where(made == made[9], found, np.float32(-100))}, "float[n, 40] x")
    assert certify(a, b).ok is (operand > 1)


def test_an_axis_beyond_the_rank_is_not_valid() -> None:
    """Which the interpreter flattens to one row as it does with the last axis; the runtime does not load it."""
    a, b = (model(f"y = Flatten<axis = {axis}>(x)", {}) for axis in (2, 3))
    assert certify(a, a).ok and certify(a, b).reason.startswith("B is not valid: ")


def test_memory_that_ends_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = model("h = Relu(x) y = Add(h, b)", W), model("h = Relu(x) y = Add(b, h)", W)
    assert certify(a, b).ok
    whole = _Pair.hold

    def hold(pair: _Pair, sizes: Sizes) -> None:
        if len(pair.points) > 2:
            raise MemoryError
        whole(pair, sizes)

    monkeypatch.setattr(_Pair, "hold", hold)
    found = certify(a, b)
    assert found.verdict == "not tested" and found.reason == "not decided: MemoryError"


DEFAULT = np.float32([1, 2, 3, 4])


def with_default(nodes: str, value: np.ndarray = DEFAULT, inputs: str = "float[n, 4] x, float[4] g") -> onnx.ModelProto:
    """`g` has a default, `k` is the same number and a constant."""
    return model(nodes, {"g": value, "k": DEFAULT}, inputs)


@pytest.mark.parametrize(
    ("b", "certified"),
    [
        (with_default("y = Mul(g, x)"), True),
        (with_default("y = Mul(x, k)"), False),  # what is given for g has no effect
        (with_default("y = Mul(x, g)", DEFAULT + 1), False),
        (with_default("y = Mul(x, g)", inputs="float[n, 4] x"), True),  # a caller is told that there is no g
    ],
)
def test_an_input_that_has_a_default_in_both_counts_as_given(b: onnx.ModelProto, certified: bool) -> None:
    assert certify(with_default("y = Mul(x, g)"), b).ok is certified


def test_before_ir_version_4_an_initializer_among_the_inputs_is_a_constant() -> None:
    a, b = with_default("y = Mul(x, g)"), with_default("y = Mul(x, k)")
    a.ir_version = b.ir_version = 3
    for one in (a, b):
        one.graph.input.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [4]))
    assert certify(a, b).ok


BUCKETS = """
    s = Shape<start = 1, end = 2>(x) n = Squeeze(s) p = Range(zero64, n, one64) r = Unsqueeze(p, first)
    q = Unsqueeze(p, last) d = Sub(r, q) rel = Abs(d) near = Less(rel, eight64) f = Cast<to = 1>(rel)
    t = Div({ratio}) l = Log(t) m = Div(l, span) k = Mul(m, eight) i = Cast<to = 7>(k) far = Add(i, eight64)
    most = Min(far, fifteen) bucket = Where(near, rel, most) g = Gather(table, bucket) y = Add(x, g)"""


@pytest.mark.parametrize("seconds", [0.01, 3.0])
def test_sizes_at_which_relative_positions_take_other_buckets_are_compared(seconds: float) -> None:
    """As of T5: up to 12 positions nothing depends on the logarithm; larger sizes cost more than the time there is."""
    whole = {"zero64": 0, "one64": 1, "eight64": 8, "fifteen": 15, "first": [0], "last": [1]}
    floats = {"eight": np.float32(8), "span": np.float32(np.log(16)), "table": f32(32)}
    weights = {n: np.array(v) for n, v in (whole | floats).items()}
    a, b = (model(BUCKETS.format(ratio=r), weights, "float[n, m, m] x") for r in ("f, eight", "eight, f"))
    assert certify(a, a, seconds=seconds, patience=10).ok
    found = certify(a, b, seconds=seconds, patience=10)
    assert not found.ok and "Div" in found.reason


@pytest.mark.parametrize("compared", ["t = Mul(h, three) q = Equal(t, w)", "p = Mul(h, w) q = Equal(p, area)"])
def test_two_dims_that_are_compared_are_looked_at_however_little_time_there_is(compared: str) -> None:
    """Pictures three times as wide as high, or of 221 pixels: no size of one dim alone shows them."""
    head = '<ir_version: 10, opset_import: ["" : 20]> g (float[n, h, w] x) => (float[n, h, w] y) '
    constants = "<int64[1] three = {3}, int64[1] area = {221}> "
    sizes = f"h = Shape<start = 1, end = 2>(x) w = Shape<start = 2, end = 3>(x) {compared} m = Neg(x) "
    a = onnx.parser.parse_model(head + "{ y = Identity(x) }")
    b = onnx.parser.parse_model(head + constants + "{ " + sizes + "y = Where(q, m, x) }")
    assert not any(certify(a, b, seconds=seconds).ok for seconds in (0.1, 0.5))


def test_no_size_is_looked_at_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = "s = Shape(x) c = CumSum(s, first) f = Cast<to = 1>(c) g = ReduceSum(f) y = Mul(x, g)"
    plain = model(sums, {"first": np.array(0)}, "float[n, 4] x")
    run, seen = SizeRun.of, list[tuple[object, ...]]()

    def counted(self: SizeRun, sizes: Sizes) -> object:
        seen.append((id(self), *sizes.items()))
        return run(self, sizes)

    monkeypatch.setattr(SizeRun, "of", counted)
    turning_sizes(plain, plain, {"n": 3}, np.inf, np.inf)
    assert len(seen) > 60
    assert len(seen) - len(set(seen)) <= 4  # before it is known which tensors grow


@pytest.mark.parametrize(("columns", "verdict"), [(100, "certified"), (200, "not tested")])
def test_truth_values_are_counted_in_a_type_that_holds_their_number(columns: int, verdict: str) -> None:
    """200 of them are 127 in int8, for ONNX Runtime keeps the sum to the bounds of the type."""
    x = f"float[n, {columns}] x"
    text = "t = Greater(x, half) i = Cast<to = {}>(t) s = ReduceSum<keepdims = 0>(i, last) y = Cast<to = 1>(s)"
    weights = {"half": np.float32(0.5).reshape(()), "last": np.int64([-1])}
    a, b = (model(text.format(kind), weights, x) for kind in (TensorProto.INT8, TensorProto.FLOAT))
    assert certify(a, b, most=3).verdict == verdict

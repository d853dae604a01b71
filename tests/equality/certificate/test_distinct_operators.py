"""No operator passes for another one: what each makes of the same inputs in the field is its own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxtool.equality.certificate import operators
from onnxtool.equality.certificate.certify import certify
from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.values import NotCoveredError, Value

operators.register()
FIELD = Field(5)
UNARY = """
Abs Neg Ceil Floor Round Sign Relu Exp Log Sqrt Reciprocal Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh
Atanh Sigmoid Softplus Softsign HardSwish Mish Gelu Elu Selu LeakyRelu HardSigmoid ThresholdedRelu Identity Softmax
LogSoftmax Hardmax Swish IsNaN IsInf LpNormalization GlobalMaxPool GlobalAveragePool GlobalLpPool ReduceSum ReduceMean
ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare ArgMax ArgMin
"""
BITWISE = "BitwiseAnd BitwiseOr BitwiseXor"
BINARY = {
    "f4": "Add Sub Mul Div Pow Mod Min Max PRelu Equal Less Greater LessOrEqual GreaterOrEqual Mean MatMul",
    "i4": "Add Sub Mul Div Pow Mod Min Max Equal Less Greater LessOrEqual GreaterOrEqual " + BITWISE,
    "?": "And Or Xor Equal",
}
ATTRIBUTES: dict[str, dict[str, object]] = {"Mod": {"fmod": 1}}


def evaluated(kind: str, inputs: dict[str, tuple[str, tuple[int, ...]]], **attributes: object) -> bytes:
    """The elements that one operator makes of drawn inputs, with their shape."""
    node = helper.make_node(kind, list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    feeds = {
        n: Value(FIELD.draw(n, shape) % (2 if dtype == "?" else FIELD.p), np.dtype(dtype), False)
        for n, (dtype, shape) in inputs.items()
    }
    found = Interpreter(model, FIELD).run(feeds)["y"]
    return repr(found.data.shape).encode() + np.ascontiguousarray(found.data).tobytes()


def assert_distinct(found: dict[str, bytes]) -> None:
    names = sorted(found, key=lambda n: found[n])
    assert [pair for pair in pairwise(names) if found[pair[0]] == found[pair[1]]] == []
    assert len(found) > 3


def test_operators_of_one_input_are_distinct() -> None:
    assert_distinct({kind: evaluated(kind, {"x": ("f4", (2, 3, 4, 4))}) for kind in UNARY.split()})


@pytest.mark.parametrize("dtype", BINARY)
def test_operators_of_two_inputs_are_distinct(dtype: str) -> None:
    shapes = {"a": (dtype, (4, 4)), "b": (dtype, (4, 4))}
    found = {}
    for kind in BINARY[dtype].split():
        own = ATTRIBUTES.get(kind, {}) if dtype == "f4" else {}
        found[kind] = evaluated(kind, shapes, **own)
        if kind not in ("Add", "Mul", "Max", "Min", "Mean", "And", "Or", "Xor", "Equal"):
            found[f"{kind} turned"] = evaluated(kind, dict(reversed(shapes.items())), **own)
    # a < b and b > a are the same
    for one, other in (("Less", "Greater"), ("LessOrEqual", "GreaterOrEqual")):
        if one in found:
            assert found[one] == found.pop(f"{other} turned")
            assert found[other] == found.pop(f"{one} turned")
    for kind in BITWISE.split():
        found.pop(f"{kind} turned", None)
    assert_distinct(found)


def of_weight(node: str, opset: int = 20, kind: str = "float") -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g ({kind}[1, 2, 6, 6] x) => (float y) {{ {node} }}'
    )
    values = {"w": np.ones((2, 2, 3, 3), np.float32), "s": np.float32([1, 1, 2, 2])}
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in values.items() if f" {n}" in node)
    return model


@pytest.mark.parametrize(
    ("node", "usual"),
    [
        ("y = Conv<spectral = 3>(x, w)", "y = Conv(x, w)"),
        ("y = Relu<slope = 0.5>(x)", "y = Relu(x)"),
        ("y = Add<axis = 1>(x, x)", "y = Add(x, x)"),
    ],
)
def test_an_attribute_that_nobody_looked_at_is_not_passed_over(node: str, usual: str) -> None:
    assert certify(of_weight(node), of_weight(usual)).verdict == "not tested"


def test_an_input_that_nobody_looked_at_certifies_nothing() -> None:
    node = helper.make_node("Exp", ["x", "more"], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    x = Value(FIELD.draw("x", (2,)), np.dtype("f4"), False)
    with pytest.raises(NotCoveredError, match="2 inputs"):
        Interpreter(model, FIELD).run({"x": x, "more": x})


@pytest.mark.parametrize("old", [("Upsample", 9, "x, s"), ("Resize", 10, "x, s")])
def test_resizing_of_old_opsets_counts_from_the_edge(old: tuple[str, int, str]) -> None:
    kind, opset, inputs = old
    before = of_weight(f'y = {kind}<mode = "linear">({inputs})', opset)
    for place, verdict in (("asymmetric", "certified"), ("half_pixel", "not tested"), ("align_corners", "not tested")):
        node = f'y = Resize<mode = "linear", coordinate_transformation_mode = "{place}">(x, , s)'
        assert certify(before, of_weight(node, 13)).verdict == verdict


def test_the_same_words_of_another_version_may_mean_something_else() -> None:
    regions = "y = RoiAlign(x, r, b)"
    inputs = "float[1, 2, 8, 8] x, float[n, 4] r, int64[n] b"

    def at(opset: int) -> onnx.ModelProto:
        return onnx.parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : {opset}]> g ({inputs}) => (float y) {{ {regions} }}'
        )

    assert certify(at(16), at(22)).verdict == "certified"  # it takes more types
    assert certify(at(15), at(16)).verdict == "not tested"  # it counts from the middle of pixels


def test_formats_of_the_same_width_hold_different_numbers() -> None:
    plain = of_weight("y = Cast<to = 1>(x)", kind="float16")
    assert certify(plain, of_weight("a = Cast<to = 16>(x) y = Cast<to = 1>(a)", kind="float16")).verdict != "certified"
    through = of_weight("a = Cast<to = 11>(x) b = Cast<to = 10>(a) y = Cast<to = 1>(b)", kind="float16")
    assert certify(plain, through).verdict == "certified"


X4, IMAGE = "float[2, 4] x", "float[1, 4, 6, 5] x"
PAIRS = "float[4, 4, 2] x"
CONSTANTS = {
    "axis": np.array(1),
    "axes": np.array([1]),
    "none": np.zeros(0, np.int64),
    "one": np.float32([1]),
    "three": np.array([3]),
    "n0": np.array(0),
    "n4": np.array(4),
    "n5": np.array(5),
    "back": np.array([1, 0]),
    "blocks": np.float32([[0.5, 0.25], [1, 2]]),
    "turned": np.array([1, 0, 2, 3]),
    "four": np.array([4]),
    "zero": np.array([0]),
    "hot": np.float32([0, 1]),
    "step": np.float32(0.5),
    "low": np.uint8(3),
    "signed": np.int8(0),
    "ends": np.float32([1, 2, 3, 4]),
    "sizes": np.array([1, 4, 12, 7]),
    "w": np.arange(16, dtype=np.float32).reshape(4, 4) - 5,
    "kernel": np.arange(72, dtype=np.float32).reshape(4, 2, 3, 3) - 9,
    "gates": np.arange(24, dtype=np.float32).reshape(1, 6, 4) - 9,
    "again": np.arange(12, dtype=np.float32).reshape(1, 6, 2) - 4,
    "bias": np.arange(12, dtype=np.float32).reshape(1, 12) - 4,
    "cube": np.float32(3),
    "squared": np.int32(2),
    "single": np.float32([[[1]]]),
    "much": np.uint8(200),
    "all": np.int32([3, 3]),
    "fewer": np.int32([3, 2]),
    "lstm": np.arange(32, dtype=np.float32).reshape(1, 8, 4) - 9,
    "cell": np.arange(16, dtype=np.float32).reshape(1, 8, 2) - 4,
    "peephole": np.arange(6, dtype=np.float32).reshape(1, 6),
    "attended": np.ones((4, 12), np.float32),
    "added": np.ones(12, np.float32),
    "angles": np.ones((2, 2), np.float32),
    "ages": np.int32([5]),
    "naught": np.int32(0),
    "minus": np.float32(-1),
    "eights": np.arange(16, dtype=np.int8).reshape(4, 4),
    "none8": np.uint8(0),
    "packed": np.arange(8, dtype=np.uint8).reshape(1, 1, 8),
}
SERIES = "float[3, 2, 4] x"
GRU = "y, h = GRU<hidden_size = 2{}>(x, gates, again, bias)"
# What stands for x: nodes and then other nodes, of which an attribute or an operand is another one.
OTHERS = {
    "Gelu": (X4, "y = Gelu(x)", 'y = Gelu<approximate = "tanh">(x)'),
    "BitShift": ("uint32[4] x", 'y = BitShift<direction = "LEFT">(x, x)', 'y = BitShift<direction = "RIGHT">(x, x)'),
    "Mod": ("int32[4] x, int32[4] z", "y = Mod(x, z)", "y = Mod<fmod = 1>(x, z)"),
    "IsInf": (X4, "y = IsInf(x)", "y = IsInf<detect_negative = 0>(x)"),
    "IsInf of one sign": (X4, "y = IsInf<detect_positive = 0>(x)", "y = IsInf<detect_negative = 0>(x)"),
    "CumSum": (X4, "y = CumSum(x, axis)", "y = CumSum<exclusive = 1>(x, axis)"),
    "CumSum from the end": (X4, "y = CumSum(x, axis)", "y = CumSum<reverse = 1>(x, axis)"),
    "a whole quotient": ("int32[4] x, int32[4] z", "q = Div(x, z) y = Mul(q, z)", "y = Identity(x)"),
    "no axes": (X4, "y = ReduceSum(x, none)", "y = ReduceSum<noop_with_empty_axes = 1>(x, none)"),
    "TopK": (X4, "y, i = TopK(x, three)", "y, i = TopK<largest = 0>(x, three)"),
    "a place of TopK": (X4, "v, y = TopK(x, three)", "v, y = TopK<largest = 0>(x, three)"),
    "ArgMin": (X4, "y = ArgMin<axis = 1>(x)", "y = ArgMax<axis = 1>(x)"),
    "the last place": (X4, "y = ArgMax<axis = 1>(x)", "y = ArgMax<axis = 1, select_last_index = 1>(x)"),
    "a zero point": (X4, "y = QuantizeLinear(x, step)", "y = QuantizeLinear(x, step, low)"),
    "a scale of each block": (
        X4,
        "y = QuantizeLinear<axis = 1, block_size = 2>(x, blocks)",
        "s = Gather<axis = 1>(blocks, back) y = QuantizeLinear<axis = 1, block_size = 2>(x, s)",
    ),
    "a quantized type": (X4, "y = QuantizeLinear(x, step)", "y = QuantizeLinear(x, step, signed)"),
    "a zero point taken off": ("uint8[4] x", "y = DequantizeLinear(x, step)", "y = DequantizeLinear(x, step, low)"),
    "a spectrum": (PAIRS, "y = DFT(x)", "y = DFT<inverse = 1>(x)"),
    "half a spectrum": (PAIRS, "y = DFT<onesided = 1>(x, n4)", "y = DFT<onesided = 1>(x, n5)"),
    "a spectrum along another axis": (PAIRS, "y = DFT(x, , n0)", "y = DFT(x)"),
    "a spectrum of other parts": (PAIRS, "y = DFT(x)", "t = Gather<axis = -1>(x, back) y = DFT(t)"),
    "a spectrum of other places": (PAIRS, "y = DFT(x)", "t = Gather<axis = 1>(x, turned) y = DFT(t)"),
    "the largest in no order": (
        X4,
        "y, i = TopK<sorted = 0>(x, three)",
        "v, i = TopK<sorted = 0>(x, four) y = Slice(v, zero, three, axes)",
    ),
    "LRN": (IMAGE, "y = LRN<size = 3>(x)", "y = LRN<size = 3, beta = 0.5>(x)"),
    "a norm": (X4, "y = LpNormalization(x)", "y = LpNormalization<p = 1>(x)"),
    "a pooled norm": (IMAGE, "y = GlobalLpPool(x)", "y = GlobalLpPool<p = 3>(x)"),
    "padding that counts": (
        IMAGE,
        "y = AveragePool<kernel_shape = [2, 2], pads = [1, 1, 1, 1]>(x)",
        "y = AveragePool<kernel_shape = [2, 2], pads = [1, 1, 1, 1], count_include_pad = 1>(x)",
    ),
    "a slope": (X4, "y = LeakyRelu(x)", "y = LeakyRelu<alpha = 0.02>(x)"),
    "Elu": (X4, "y = Elu(x)", "y = Elu<alpha = 0.5>(x)"),
    "Celu": (X4, "y = Elu<alpha = 0.5>(x)", "y = Celu<alpha = 0.5>(x)"),
    "Selu": (X4, "y = Selu(x)", "y = Selu<gamma = 1.0>(x)"),
    "Swish": (X4, "y = com.microsoft.QuickGelu(x)", "y = com.microsoft.QuickGelu<alpha = 1.0>(x)"),
    "a norm over more dims": (
        "float[2, 3, 4] x",
        "y = LayerNormalization(x, one)",
        "y = LayerNormalization<axis = 1>(x, one)",
    ),
    "an epsilon": (X4, "y = LayerNormalization(x, one)", "y = LayerNormalization<epsilon = 0.1>(x, one)"),
    "an epsilon of a batch": (
        X4,
        "y = BatchNormalization(x, ends, ends, ends, ends)",
        "y = BatchNormalization<epsilon = 0.1>(x, ends, ends, ends, ends)",
    ),
    "groups": (
        IMAGE,
        "y = InstanceNormalization(x, ends, ends)",
        "y = InstanceNormalization<epsilon = 0.1>(x, ends, ends)",
    ),
    "a bias scaled": (X4, "y = Gemm(x, w, ends)", "y = Gemm<beta = 0.5>(x, w, ends)"),
    "a product scaled": (X4, "y = Gemm(x, w)", "y = Gemm<alpha = 0.5>(x, w)"),
    "a fused product scaled": (
        X4,
        "y = com.microsoft.FusedMatMul(x, w)",
        "y = com.microsoft.FusedMatMul<alpha = 0.5>(x, w)",
    ),
    "one of the last": (  # -1 is 2 of 3, and 3 of 4
        "int64[2] x",
        "y = OneHot(x, three, hot)",
        "h = OneHot(x, four, hot) y = Slice(h, zero, three, axes)",
    ),
    "other elements of a table": (
        "float[2, 4] x, int64[2, 1] i",
        "y = GatherElements<axis = 1>(x, i)",
        "z = Add(x, one) y = GatherElements<axis = 1>(z, i)",
    ),
    "a cut of float8": (X4, "y = Cast<to = 17>(x)", "y = Cast<to = 17, saturate = 0>(x)"),
    "a reset before or after": (SERIES, GRU.format(""), GRU.format(", linear_before_reset = 1")),
    "a clip": (SERIES, GRU.format(""), GRU.format(", clip = 2.0")),
    "another activation": (SERIES, GRU.format(""), GRU.format(', activations = ["Sigmoid", "Relu"]')),
    "the other direction": (SERIES, GRU.format(""), GRU.format(', direction = "reverse"')),
    "which pixel comes last": (
        IMAGE,
        'y = Conv<group = 2, auto_pad = "SAME_UPPER", strides = [2, 2]>(x, kernel)',
        'y = Conv<group = 2, auto_pad = "SAME_LOWER", strides = [2, 2]>(x, kernel)',
    ),
    "which pixel is cut": (
        IMAGE,
        'y = ConvTranspose<auto_pad = "SAME_UPPER", strides = [2, 2]>(x, kernel)',
        'y = ConvTranspose<auto_pad = "SAME_LOWER", strides = [2, 2]>(x, kernel)',
    ),
}
SCAN = (
    "w, y = Scan<num_scan_inputs = 1{}, body = b (float[4] t, float[4] v) => (float[4] u, float[4] z)"
    " {{ u = Add(t, v) z = Exp(u) }}>(ends, x)"
)
# Canonical forms that would hold for one more kind of operands.
OTHERS |= {
    "two roots": (X4, "p = Abs(x) q = Exp(x) a = Sqrt(p) b = Sqrt(q) y = Mul(a, b)", "y = Abs(x)"),
    "a third power of a root": (X4, "p = Abs(x) s = Sqrt(p) y = Pow(s, cube)", "y = Abs(x)"),
    "one more dim": (X4, "y = Max(x, single)", "y = Max(x, one)"),
    "an unsigned number made a signed one": (
        "uint32[4] x",
        "h = Cast<to = 6>(x) y = Cast<to = 11>(h)",
        "y = Cast<to = 11>(x)",
    ),
    "a whole number cut": (
        "int32[4] x",
        "f = Cast<to = 11>(x) b = Cast<to = 3>(f) y = Cast<to = 11>(b)",
        "y = Cast<to = 11>(x)",
    ),
    "a whole number rounded": ("int32[4] x", "f = Cast<to = 1>(x) y = Cast<to = 6>(f)", "y = Identity(x)"),
    "a larger number in half precision": (
        "bfloat16[4] x",
        "a = Cast<to = 10>(x) y = Cast<to = 1>(a)",
        "y = Cast<to = 1>(x)",
    ),
    "a smaller number in eight bits": (
        "float8e4m3fnuz[4] x",
        "a = Cast<to = 17>(x) y = Cast<to = 1>(a)",
        "y = Cast<to = 1>(x)",
    ),
    "a narrower type on the way": (
        "float16[4] x",
        "a = Cast<to = 1>(x) b = Cast<to = 17>(a) y = Cast<to = 1>(b)",
        "y = Cast<to = 1>(x)",
    ),
    "a comparison of what wraps around": (
        "uint8[4] x, uint8[4] z",
        "a = Add(x, much) y = Greater(a, z)",
        "b = Sub(z, much) y = Greater(x, b)",
    ),
    "series of other lengths": (
        SERIES,
        "y, h = GRU<hidden_size = 2>(x, gates, again, bias, all)",
        "y, h = GRU<hidden_size = 2>(x, gates, again, bias, fewer)",
    ),
    "peepholes": (
        SERIES,
        "y = LSTM<hidden_size = 2>(x, lstm, cell)",
        "y = LSTM<hidden_size = 2>(x, lstm, cell, , , , , peephole)",
    ),
    "a scan from the end": (X4, SCAN.format(""), SCAN.format(", scan_input_directions = [1]")),
    "a scan turned round": (X4, SCAN.format(""), SCAN.format(", scan_output_directions = [1]")),
}
# Integers, whose results are rounded to integers or cut to their type.
OTHERS |= {
    "a sum of long integers": (
        "int32[4] x, int32[4] z",
        "s = Add(x, z) y = Cast<to = 11>(s)",
        "a = Cast<to = 11>(x) b = Cast<to = 11>(z) y = Add(a, b)",
    ),
    "a comparison of long integers": (
        "int32[4] x, int32[4] z",
        "s = Add(x, z) y = Less(s, ages)",
        "s = Sub(ages, z) y = Less(x, s)",
    ),
    "the largest of long integers": (
        "int32[4] x, int32[4] z",
        "a = Add(x, ages) b = Add(z, ages) y = Max(a, b)",
        "a = Max(x, z) y = Add(a, ages)",
    ),
    "a sum of integers that saturates": (
        "int32[1, 4] x, int32[1, 4] z",
        "a = Concat<axis = 0>(x, z) y = ReduceSum<keepdims = 1>(a, zero)",
        "y = Add(x, z)",
    ),
    "a square of integers": ("int32[4] x", "y = Pow(x, squared)", "y = Mul(x, x)"),
    "a root of squares of integers": (
        "int32[2, 4] x",
        "r = ReduceL2(x, axes) y = Cast<to = 11>(r)",
        "d = Cast<to = 11>(x) y = ReduceL2(d, axes)",
    ),
    "a reciprocal of integers": (
        "int32[4] x",
        "r = Pow(x, minus) y = Cast<to = 11>(r)",
        "d = Cast<to = 11>(x) y = Reciprocal(d)",
    ),
    "pixels that are integers": (
        "uint8[1, 4, 6, 5] x",
        'r = Resize<mode = "linear">(x, , , sizes) y = Cast<to = 1>(r)',
        'f = Cast<to = 1>(x) y = Resize<mode = "linear">(f, , , sizes)',
    ),
    "bits of another width": (
        "uint8[4] x",
        "b = BitwiseNot(x) y = Cast<to = 6>(b)",
        "w = Cast<to = 6>(x) y = BitwiseNot(w)",
    ),
    "bits shifted out": (
        "uint8[4] x",
        'b = BitShift<direction = "LEFT">(x, low) y = Cast<to = 12>(b)',
        'w = Cast<to = 12>(x) l = Cast<to = 12>(low) y = BitShift<direction = "LEFT">(w, l)',
    ),
    "an integer type that saturates elsewhere": (
        "uint8[4, 4] x",
        "q = QLinearMatMul(x, step, low, eights, step, signed, step, signed) y = Cast<to = 6>(q)",
        "q = QLinearMatMul(x, step, low, eights, step, signed, step, none8) y = Cast<to = 6>(q)",
    ),
}
# The same function in another form.
ALIKE = {
    "an integer through a wider type": ("int8[4] x", "w = Cast<to = 6>(x) y = Cast<to = 1>(w)", "y = Cast<to = 1>(x)"),
    "a long integer rounded": ("int32[4] x", "w = Cast<to = 7>(x) y = Cast<to = 1>(w)", "y = Cast<to = 1>(x)"),
    "bits in a wider type": (
        "uint8[4] x, uint8[4] z",
        "b = BitwiseAnd(x, z) y = Cast<to = 6>(b)",
        "v = Cast<to = 6>(x) w = Cast<to = 6>(z) y = BitwiseAnd(v, w)",
    ),
    "nothing added to what is compared": (
        "int32[4] x, int32[4] z",
        "s = Sub(x, naught) y = Less(s, z)",
        "y = Less(x, z)",
    ),
    "half of a spectrum": (
        "float[4, 4, 1] x",
        "y = DFT<onesided = 1>(x)",
        "f = DFT(x) y = Slice(f, zero, three, axes)",
    ),
    "the smallest": (X4, "y, i = TopK<largest = 0>(x, three)", "n = Neg(x) v, i = TopK(n, three) y = Neg(v)"),
    "the place of the smallest": (X4, "y = ArgMin<axis = 1>(x)", "n = Neg(x) y = ArgMax<axis = 1>(n)"),
    "a pooled sum": (
        "float[1, 2, 6] x",
        "y = LpPool<kernel_shape = [2], p = 1>(x)",
        "a = Abs(x) m = AveragePool<kernel_shape = [2]>(a) y = Add(m, m)",
    ),
}
# Forms without a formula, each beside the operator's usual form: an uninterpreted function, and another one.
UNUSUAL = {
    "places of a pool": (
        IMAGE,
        "v, y = MaxPool<kernel_shape = [2, 2]>(x)",
        "v, y = MaxPool<kernel_shape = [2, 2], storage_order = 1>(x)",
    ),
    "a ratio that is kept": (
        IMAGE,
        'y = Resize<keep_aspect_ratio_policy = "not_larger">(x, , , sizes)',
        'y = Resize<keep_aspect_ratio_policy = "not_smaller">(x, , , sizes)',
    ),
    "training": (
        X4,
        "y, m, v = BatchNormalization<training_mode = 1>(x, ends, ends, ends, ends)",
        "y = BatchNormalization(x, ends, ends, ends, ends)",
    ),
    "a mean of integers": ("int32[2, 4] x", "y = ReduceMean(x, axes)", "y = ReduceMax(x, axes)"),
    "transposed batches": (
        PAIRS,
        "y = com.microsoft.FusedMatMul<transBatchA = 1, transB = 1>(x, x)",
        "y = com.microsoft.FusedMatMul<transBatchB = 1, transB = 1>(x, x)",
    ),
    "a mask of keys": (
        SERIES,
        "y = com.microsoft.MultiHeadAttention<num_heads = 2>(x, x, x, , fewer)",
        "y = com.microsoft.MultiHeadAttention<num_heads = 2>(x, x, x, , all)",
    ),
    "a mask of packed keys": (
        SERIES,
        "y = com.microsoft.Attention<num_heads = 2>(x, attended, added, fewer)",
        "y = com.microsoft.Attention<num_heads = 2>(x, attended, added, all)",
    ),
    "a part of each head turned": (
        "float[3, 1, 4] x",
        "y = com.microsoft.RotaryEmbedding<num_heads = 1, rotary_embedding_dim = 4>(x, zero, angles, angles)",
        "y = com.microsoft.RotaryEmbedding<num_heads = 1, rotary_embedding_dim = 2>(x, zero, angles, angles)",
    ),
    "weights in blocks": (
        "float[3, 16] x",
        "y = com.microsoft.MatMulNBits<K = 16, N = 1, bits = 4, block_size = 16>(x, packed, one)",
        "t = Neg(one) y = com.microsoft.MatMulNBits<K = 16, N = 1, bits = 4, block_size = 16>(x, packed, t)",
    ),
    "regions counted otherwise": (
        "float[1, 2, 4, 4] x, float[1, 4] r",
        "y = RoiAlign(x, r, zero)",
        'y = RoiAlign<coordinate_transformation_mode = "output_half_pixel">(x, r, zero)',
    ),
}
# What is not covered: nothing tells what it gives, or of which shape.
UNCOVERED = {
    "blocks": (X4, "y = QuantizeLinear<block_size = 2, axis = 1>(x, hot)"),
    "three factors": (X4, 'y = Einsum<equation = "...j,...j,...j->...j">(x, x, x)'),
    "a crop": (IMAGE, 'y = Resize<coordinate_transformation_mode = "tf_crop_and_resize">(x, , ends)'),
    "another hidden size": (SERIES, "y, h = GRU<hidden_size = 3>(x, gates, again)"),
    "branches of other shapes": (
        "bool c, float[4] x",
        "y = If(c)<then_branch = t () => (float[4] a) { a = Exp(x) },"
        " else_branch = e () => (float[1] b) { b = Identity(one) }>",
    ),
    "a loop that may not run": (
        X4,
        "z = Constant<value_int = 0>() y = Loop(z, )<body = b (int64 i, bool c) => (bool d, float[2, 4] o)"
        " { d = Identity(c) o = Exp(x) }>",
    ),
    "positions beyond the table": (SERIES, "y = com.microsoft.RotaryEmbedding(x, axis, angles, angles)"),
    "dropped numbers": (X4, "t = Constant<value = bool {1}>() y = Dropout(x, , t)"),
    "dropped bits": (X4, "t = Constant<value = bool {1}>() y, m = com.microsoft.BitmaskDropout(x, , t)"),
    "distances, whose shape the runtime does not say": (X4, "y = com.microsoft.CDist(x, w)"),
}


def of_nodes(nodes: str, inputs: str) -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]> g ({inputs}) => (float y) {{ {nodes} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items())
    return model


def of_all(nodes: str, inputs: str) -> tuple[tuple[int, ...], bytes]:
    """What nodes make of drawn inputs."""
    model = of_nodes(nodes, inputs)
    feeds = {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        shape = tuple(d.dim_value for d in kind.shape.dim)
        feeds[info.name] = Value(FIELD.draw(info.name, shape), helper.tensor_dtype_to_np_dtype(kind.elem_type), False)
    found = Interpreter(model, FIELD).run(feeds)["y"]
    return found.data.shape, np.ascontiguousarray(FIELD.from_int(found.data)).tobytes()


@pytest.mark.parametrize("name", [*OTHERS, *UNUSUAL])
def test_another_attribute_or_operand_is_another_function(name: str) -> None:
    inputs, nodes, others = {**OTHERS, **UNUSUAL}[name]
    assert of_all(nodes, inputs) == of_all(nodes, inputs) != of_all(others, inputs)


@pytest.mark.parametrize("name", ALIKE)
def test_another_form_is_the_same_function(name: str) -> None:
    inputs, nodes, others = ALIKE[name]
    assert of_all(nodes, inputs) == of_all(others, inputs)


def test_a_pool_is_the_same_with_its_places_and_without() -> None:
    both = of_all("y, i = MaxPool<kernel_shape = [2, 2]>(x)", IMAGE)
    assert both == of_all("y = MaxPool<kernel_shape = [2, 2]>(x)", IMAGE)
    assert both != of_all("y, i = MaxPool<kernel_shape = [2, 1]>(x)", IMAGE)


def test_a_mean_and_a_deviation_are_their_formulas() -> None:
    mean = "m = ReduceMean(x, axes) "
    deviation = mean + "c = Sub(x, m) s = Mul(c, c) v = ReduceMean(s, axes) e = Add(v, EPSILON) r = Sqrt(e) "
    assert of_all("n, y, d = LayerNormalization<epsilon = 0.5>(x, one)", X4) == of_all(mean + "y = Identity(m)", X4)
    found = of_all("n, m, y = LayerNormalization<epsilon = 0.5>(x, one)", X4)
    assert found == of_all(deviation.replace("EPSILON", "step") + "y = Reciprocal(r)", X4)
    assert found != of_all(deviation.replace("EPSILON", "one") + "y = Reciprocal(r)", X4)


@pytest.mark.parametrize("name", UNCOVERED)
def test_what_is_not_covered_is_said(name: str) -> None:
    inputs, nodes = UNCOVERED[name]
    with pytest.raises(NotCoveredError):
        of_all(nodes, inputs)


def test_a_default_written_out_is_as_good_as_left_out() -> None:
    nodes = "y, m, v = BatchNormalization<training_mode = 1{}>(x, ends, ends, ends, ends)"
    left_out = of_all(nodes.format(""), X4)
    assert of_all(nodes.format(", momentum = 0.9"), X4) == left_out != of_all(nodes.format(", momentum = 0.8"), X4)

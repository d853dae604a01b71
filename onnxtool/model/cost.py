"""Multiply-accumulates and other arithmetic of a node, from the shapes of what it reads and writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx

Shape = tuple[int, ...] | None
_Counter = Callable[[onnx.NodeProto, Sequence[Shape], Sequence[Shape]], int | None]


def macs(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """Multiply-accumulates of one node.

    Args:
        node: of any operator.
        inputs: shapes of its inputs, None where unknown or absent.
        outputs: shapes of its outputs.

    Returns:
        None when the operator is not one of `COUNTED`, or when a shape that matters is unknown.
    """
    counter = COUNTED.get(node.op_type)
    return None if counter is None else counter(node, inputs, outputs)


def elementwise(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """Floating-point operations of an operator without products of matrices: a few for each element.

    The usual counts: one for a sum, a product or a maximum, one for each element that a reduction or a pooling window
    takes in, five for softmax and most activations, eight for a normalization. None for operators that only move data,
    and where a shape is unknown.
    """
    if node.op_type in _REDUCING:
        source = _at(inputs, 0)
        return None if source is None else math.prod(source)
    result = _at(outputs, 0)
    if result is None or (node.op_type not in _PER_ELEMENT and node.op_type not in _POOLING):
        return None
    if node.op_type in _POOLING:
        return math.prod(result) * math.prod(next((a.ints for a in node.attribute if a.name == "kernel_shape"), ()))
    return math.prod(result) * _PER_ELEMENT[node.op_type]


def _convolution(kernel: int) -> _Counter:
    """Conv: every output element takes one kernel of (C_in / group) * k1 * k2 ... products."""

    def count(_node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
        weight, result = _at(inputs, kernel), _at(outputs, 0)
        if weight is None or result is None:
            return None
        return math.prod(result) * math.prod(weight[1:])

    return count


def _transposed(_node: onnx.NodeProto, inputs: Sequence[Shape], _outputs: Sequence[Shape]) -> int | None:
    """ConvTranspose: every input element is spread over one kernel of (C_out / group) * k1 * k2 ..."""
    source, weight = _at(inputs, 0), _at(inputs, 1)
    return None if source is None or weight is None else math.prod(source) * math.prod(weight[1:])


def _gemm(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    left, result = _at(inputs, 0), _at(outputs, 0)
    if left is None or result is None or len(left) != 2:
        return None
    return math.prod(result) * (left[0] if _flag(node, "transA") else left[1])


def _matmul(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    left, result = _at(inputs, 0), _at(outputs, 0)
    if not left or result is None:
        return None
    inner = left[-2] if _flag(node, "transA") and len(left) > 1 else left[-1]
    return math.prod(result) * inner


def _blocks(node: onnx.NodeProto, _inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """MatMulNBits: the packed weight has no plain shape, the attribute K is the inner dim."""
    result = _at(outputs, 0)
    inner = next((a.i for a in node.attribute if a.name == "K"), 0)
    return None if result is None or not inner else math.prod(result) * int(inner)


def _attention(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """Scores and their product with the values; com.microsoft.Attention also makes query, key and value by a weight.

    Causal attention is counted in full. Keys that come from a cache are counted when the grown cache is an output.
    """
    first, second = _at(inputs, 0), _at(inputs, 1)
    if node.op_type == "QAttention" or (node.op_type == "Attention" and node.domain == "com.microsoft"):
        if first is None or second is None or len(first) != 3 or len(second) != 2:
            return None
        batch, length, hidden = first
        return batch * length * hidden * second[1] + 2 * batch * length * length * (second[1] // 3)
    if first is None or second is None or len(first) not in (3, 4) or len(second) not in (3, 4):
        return None
    cache = _at(outputs, 1)
    keys = cache[-2] if cache is not None and len(cache) == 4 else second[-2]
    return 2 * math.prod(first) * keys


def _einsum(node: onnx.NodeProto, inputs: Sequence[Shape], _outputs: Sequence[Shape]) -> int | None:
    """Einsum of two operands: a product for each combination of all letters."""
    equation = next((a.s for a in node.attribute if a.name == "equation"), b"").decode().replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    if len(terms) != 2 or "." in equation:
        return None
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, (_at(inputs, 0), _at(inputs, 1)), strict=True):
        if shape is None or len(shape) != len(term):
            return None
        sizes |= {letter: max(dim, sizes.get(letter, 1)) for letter, dim in zip(term, shape, strict=True)}
    return math.prod(sizes.values())


def _recurrent(_node: onnx.NodeProto, inputs: Sequence[Shape], _outputs: Sequence[Shape]) -> int | None:
    """LSTM, GRU, RNN: input and recurrent products of every step, direction and sequence.

    X is [steps, batch, inputs], W [directions, gates * hidden, inputs], R [directions, gates * hidden, hidden].
    """
    x, weight, recurrence = _at(inputs, 0), _at(inputs, 1), _at(inputs, 2)
    if x is None or weight is None or recurrence is None or len(x) != 3:
        return None
    return x[0] * x[1] * (math.prod(weight) + math.prod(recurrence))


def _at(shapes: Sequence[Shape], index: int) -> Shape:
    return shapes[index] if index < len(shapes) else None


def _flag(node: onnx.NodeProto, name: str) -> bool:
    return any(a.name == name and a.i for a in node.attribute)


COUNTED: Mapping[str, _Counter] = {
    "Conv": _convolution(1),
    "FusedConv": _convolution(1),
    "NhwcConv": _convolution(1),
    "NhwcFusedConv": _convolution(1),
    "DeformConv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed,
    "Gemm": _gemm,
    "FusedGemm": _gemm,
    "QGemm": _gemm,
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "DynamicQuantizeMatMul": _matmul,
    "MatMulIntegerToFloat": _matmul,
    "TransposeMatMul": _matmul,
    "FusedMatMulActivation": _matmul,
    "MatMulInteger16": _matmul,
    "GemmFastGelu": _matmul,
    "MatMulNBits": _blocks,
    "Einsum": _einsum,
    "Attention": _attention,
    "QAttention": _attention,
    "MultiHeadAttention": _attention,
    "DecoderMaskedMultiHeadAttention": _attention,
    "GroupQueryAttention": _attention,
    "DynamicQuantizeLSTM": _recurrent,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}


_PER_ELEMENT: Mapping[str, int] = {
    **dict.fromkeys(
        {
            "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sqrt", "Reciprocal", "Exp", "Log", "Pow", "Max", "Min", "Relu",
            "LeakyRelu", "PRelu", "Clip", "Floor", "Ceil", "Round", "BiasAdd", "QLinearAdd", "QLinearMul",
            "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear",
        },
        1,
    ),
    **dict.fromkeys(
        {
            "Sigmoid", "Tanh", "Erf", "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "HardSwish", "HardSigmoid", "Swish",
            "Mish", "Softplus", "Elu", "Selu", "Softmax", "LogSoftmax", "BiasSoftmax", "QLinearSigmoid",
            "QLinearSoftmax", "RotaryEmbedding",
        },
        5,
    ),
    **dict.fromkeys(
        {
            "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
            "SkipSimplifiedLayerNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm",
            "EmbedLayerNormalization",
        },
        8,
    ),
    "BatchNormalization": 2,
}  # fmt: skip
_REDUCING = {
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSumExp", "ArgMax", "ArgMin", "CumSum", "GlobalAveragePool", "GlobalMaxPool",
    "QLinearGlobalAveragePool", "QLinearReduceMean",
}  # fmt: skip
_POOLING = {"AveragePool", "MaxPool", "LpPool", "QLinearAveragePool", "NhwcMaxPool"}

"""Multiply-accumulates of a node, from the shapes of what it reads and writes."""

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
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}

"""Multiply-accumulates and other arithmetic of a node, from the shapes of what it reads and writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx

from onnxtool.model.operators.operator import Operator
from onnxtool.model.operators.table import lookup

Shape = tuple[int, ...] | None
_LAYOUTS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
_Counter = Callable[[onnx.NodeProto, Sequence[Shape], Sequence[Shape]], int | None]


def macs(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """Multiply-accumulates of one node.

    Args:
        node: of any operator.
        inputs: shapes of its inputs, None where unknown or absent.
        outputs: shapes of its outputs.

    Returns:
        None when its operator has no product rule, or when a shape that matters is unknown.
    """
    counter = _PRODUCTS.get(_row(node.op_type, node.domain).cost)
    return None if counter is None else counter(node, inputs, outputs)


def has_products(operator: str) -> bool:
    """Whether `macs` counts an operator, called "Conv" or "com.microsoft.FusedConv"."""
    domain, _, name = operator.rpartition(".")
    return _row(name, domain).cost in _PRODUCTS


def elementwise(node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """Floating-point operations of an operator without products of matrices: a few for each element.

    The usual counts: one for a sum, a product or a maximum, one for each element that a reduction or a pooling window
    takes in, five for softmax and most activations, eight for a normalization. None for operators that only move data,
    and where a shape is unknown.
    """
    row, source, result = _row(node.op_type, node.domain), _at(inputs, 0), _at(outputs, 0)
    if row.cost == "inputs":
        return None if source is None else math.prod(source)
    if result is None:
        return None
    if row.cost == "window":
        return math.prod(result) * math.prod(next((a.ints for a in node.attribute if a.name == "kernel_shape"), ()))
    return math.prod(result) * row.flops if row.flops else None


def _row(name: str, domain: str) -> Operator:
    """The operator's row; the runtime's own layouts of a standard operator cost what it costs."""
    return lookup(name, "" if domain in _LAYOUTS else domain)


def _convolution(kernel: int) -> _Counter:
    """Conv: every output element takes one kernel of (C_in / group) * k1 * k2 ... products."""

    def count(_node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
        weight, result = _at(inputs, kernel), _at(outputs, 0)
        return None if weight is None or result is None else math.prod(result) * math.prod(weight[1:])

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


def _attention(_node: onnx.NodeProto, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """Scores and their product with the values.

    Causal attention is counted in full. Keys that come from a cache are counted when the grown cache is an output.
    """
    first, second = _at(inputs, 0), _at(inputs, 1)
    if first is None or second is None or len(first) not in (3, 4) or len(second) not in (3, 4):
        return None
    cache = _at(outputs, 1)
    keys = cache[-2] if cache is not None and len(cache) == 4 else second[-2]
    return 2 * math.prod(first) * keys


def _packed_attention(_node: onnx.NodeProto, inputs: Sequence[Shape], _outputs: Sequence[Shape]) -> int | None:
    """com.microsoft.Attention, which also makes query, key and value by a weight."""
    first, second = _at(inputs, 0), _at(inputs, 1)
    if first is None or second is None or len(first) != 3 or len(second) != 2:
        return None
    batch, length, hidden = first
    return batch * length * hidden * second[1] + 2 * batch * length * length * (second[1] // 3)


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


# By the names that the rows of operators have in `Operator.cost`.
_PRODUCTS: Mapping[str, _Counter] = {
    "convolution": _convolution(1),
    "quantized_convolution": _convolution(3),
    "transposed_convolution": _transposed,
    "gemm": _gemm,
    "matmul": _matmul,
    "blocks": _blocks,
    "einsum": _einsum,
    "attention": _attention,
    "packed_attention": _packed_attention,
    "recurrent": _recurrent,
}

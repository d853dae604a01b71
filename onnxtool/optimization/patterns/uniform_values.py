"""Values of which all elements are the same number."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op
from onnxtool.optimization.pass_context import PassContext

_UNIFORM = "onnxtool.uniform"
_MOST_COMPARED = 1 << 22
_KEEPERS = (
    "ConstantOfShape", "Where", "Expand", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Tile"
)  # fmt: skip


def uniform_value(value: ir.Value | None, context: PassContext) -> float | None:
    """The number that all elements of a value are, whatever its shape; None when they differ or are not known."""
    if value is None:
        return None
    if context.is_constant(value):
        return _uniform_constant(value, context)
    node = value.producer()
    if node is None or not is_op(node, *_KEEPERS):
        return None
    if node.op_type == "ConstantOfShape":
        fill = attribute(node, "value")
        return 0.0 if fill is None else float(fill.numpy().reshape(-1)[0])
    if node.op_type != "Where":
        return uniform_value(node.inputs[0], context)
    condition = uniform_value(node.inputs[0], context)
    if condition is not None:
        return uniform_value(node.inputs[1 if condition else 2], context)
    yes = uniform_value(node.inputs[1], context)
    return yes if yes is not None and yes == uniform_value(node.inputs[2], context) else None


def _uniform_constant(value: ir.Value, context: PassContext) -> float | None:
    cached = value.meta.get(_UNIFORM)
    if cached is None:
        array = context.array(value, limit=_MOST_COMPARED)
        number = None
        if array is not None and array.size and array.dtype.kind in "biuf":
            first = array.reshape(-1)[0]
            number = float(first) if bool((array == first).all()) else None
        cached = value.meta[_UNIFORM] = (number,)
    found: float | None = cached[0]
    return found

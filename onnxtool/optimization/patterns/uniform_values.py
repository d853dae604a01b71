"""Values of which all elements are the same number."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op
from onnxtool.model.operators.table import operator_of
from onnxtool.optimization.pass_context import PassContext

_UNIFORM = "onnxtool.uniform"
_MOST_COMPARED = 1 << 22


def uniform_value(value: ir.Value | None, context: PassContext, deepest: int = 8) -> float | None:
    """The number that all elements of a value are, whatever its shape; None when they differ or are not known.

    Args:
        value: what is asked about.
        context: for constants.
        deepest: how many Where nodes on top of each other are looked through.
    """
    while value is not None and not context.is_constant(value):
        node = value.producer()
        row = operator_of(node)
        if node is None or not row.moves or row.carried != (0,):
            break
        value = node.inputs[0]
    if value is None:
        return None
    if context.is_constant(value):
        return _uniform_constant(value, context)
    node = value.producer()
    if node is None or not is_op(node, "ConstantOfShape", "Where"):
        return None
    if node.op_type == "ConstantOfShape":
        fill = attribute(node, "value")
        return 0.0 if fill is None else float(fill.numpy().reshape(-1)[0])
    if deepest == 0:
        return None
    condition = uniform_value(node.inputs[0], context, deepest - 1)
    if condition is not None:
        return uniform_value(node.inputs[1 if condition else 2], context, deepest - 1)
    yes = uniform_value(node.inputs[1], context, deepest - 1)
    return yes if yes is not None and yes == uniform_value(node.inputs[2], context, deepest - 1) else None


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

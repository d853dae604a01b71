"""Indices that a framework prepares although the operator takes them as they are."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import producer
from onnxtool.model.operators.layout_rules import axis_of
from onnxtool.model.operators.value_facts import sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.patterns.operands import pairs


class DropIndexWrap(NodeRewrite):
    """Gather(x, Where(i < 0, i + n, i)) -> Gather(x, i): Gather counts from the end by itself."""

    # Keras writes it for each embedding; tf2onnx makes nine nodes of it. Level extended: an index from -2n to -n - 1 is
    # out of range to begin with; it was wrapped twice and is an error now.
    name = "drop-index-wrap"
    level = Level.EXTENDED
    operators = ("Gather",)
    opset = 11

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """As Where(i < 0, i + n, i), or as (i < 0) * (i + n) + (not i < 0) * i."""
        data, indices = sizes_of(node.inputs[0]), node.inputs[1]
        if not data or indices is None:
            return 0
        size = data[axis_of(node, len(data), 0)]
        plain = _chosen(indices, size, context) or _summed(indices, size, context)
        if plain is not None and plain.dtype == indices.dtype:
            node.replace_input_with(1, plain)
            return 1
        return 0


def _chosen(value: ir.Value, size: object, context: PassContext) -> ir.Value | None:
    where = producer(value, "Where")
    if where is None or where.inputs[2] is None:
        return None
    plain = where.inputs[2]
    fits = _is_negative(where.inputs[0], plain, context) and _is_shifted(where.inputs[1], plain, size, context)
    return plain if fits else None


def _summed(value: ir.Value, size: object, context: PassContext) -> ir.Value | None:
    total = producer(value, "Add")
    for wrapped, kept in pairs(total) if total is not None else ():
        left, right = producer(wrapped, "Mul"), producer(kept, "Mul")
        for test, shifted in pairs(left) if left is not None else ():
            for untouched, plain in pairs(right) if right is not None else ():
                condition, other = _uncast(test), producer(_uncast(untouched), "Not")
                if other is None or other.inputs[0] is not condition or condition is None:
                    continue
                if _is_negative(condition, plain, context) and _is_shifted(shifted, plain, size, context):
                    return plain
    return None


def _uncast(value: ir.Value | None) -> ir.Value | None:
    cast = producer(value, "Cast")
    return cast.inputs[0] if cast is not None else value


def _is_negative(value: ir.Value | None, plain: ir.Value, context: PassContext) -> bool:
    """Value is plain < 0; the cast to float that older operator sets need keeps the sign."""
    less = producer(value, "Less")
    if less is None or (less.inputs[0] is not plain and _uncast(less.inputs[0]) is not plain):
        return False
    zero = context.array(less.inputs[1], limit=1)
    return zero is not None and zero.size == 1 and zero.item() == 0


def _is_shifted(value: ir.Value | None, plain: ir.Value, size: object, context: PassContext) -> bool:
    """Value is plain + size."""
    total = producer(value, "Add")
    for first, second in pairs(total) if total is not None else ():
        array = context.array(second, limit=1)
        if first is plain and array is not None and array.size == 1 and array.item() == size:
            return True
    return False

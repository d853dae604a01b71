"""Shape arithmetic: what is computed from dims or to wrap an index is folded, shared or read off directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import bodies_of, is_op, producer
from onnxtool.model.operators.broadcasting import broadcast
from onnxtool.model.operators.layout_rules import axis_of
from onnxtool.model.operators.symbolic_dims import Expr
from onnxtool.model.operators.table import operator_of
from onnxtool.model.operators.value_facts import Size, elements_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.patterns.operands import pairs


class FoldShapes:
    """f(Shape(x)) -> a constant, where it is the same for every size of the dynamic dims."""

    name = "fold-shapes"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Replace small integer tensors of which every element is known as a number."""
        count = 0
        for node in context.nodes(model):
            for value in node.outputs:
                if not value.uses() or value.is_graph_output() or context.is_constant(value) or value.dtype is None:
                    continue
                items = elements_of(value)
                if items is None or not all(isinstance(e, int) for e in items.elements):
                    continue
                array = np.array(items.elements, value.dtype.numpy())
                constant = context.initializer(array.reshape(()) if items.scalar else array, f"{value.name}_known")
                value.replace_all_uses_with(constant)
                count += 1
        return count


class ShareSizes:
    """f(Shape(x)) = g(Shape(y)) -> one of them; dims of one input that follow each other -> one Shape."""

    name = "share-sizes"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Compare small integer tensors by the expressions of their elements."""
        return _share(model.graph, {}, _Dims(model), context)


class _Dims:
    """Where the dims of values can be read with one Shape node; grows as the main graph is walked."""

    def __init__(self, model: ir.Model) -> None:
        self._sources: list[ir.Value] = []
        for value in model.graph.inputs:
            self.add(value)

    def add(self, value: ir.Value | None) -> None:
        if value is not None and not any(s is value for s in self._sources) and sizes_of(value) is not None:
            self._sources.append(value)

    def find(self, elements: tuple[Size | None, ...]) -> tuple[ir.Value, int, int] | None:
        """A value of which these are consecutive dims, with start and end."""
        length = len(elements)
        for value in self._sources:
            sizes = sizes_of(value) or ()
            for start in range(len(sizes) - length + 1):
                if sizes[start : start + length] == elements:
                    return value, start, start + length
        return None


def _share(graph: ir.Graph, outer: dict[Any, ir.Value], dims: _Dims, context: PassContext) -> int:
    seen = dict(outer)
    count = 0
    for node in graph:
        count += sum(_share(body, seen, dims, context) for body in bodies_of(node))
        if is_op(node, "Shape") and graph is context.model.graph:
            dims.add(node.inputs[0])
        for value in node.outputs:
            items = elements_of(value)
            if items is None or not items.complete or not any(isinstance(e, Expr) for e in items.elements):
                continue
            key = (items, value.dtype)
            first = seen.setdefault(key, value)
            if first is not value:
                value.replace_all_uses_with(first)
                count += 1
            elif value.uses() and not value.is_graph_output():
                count += _read_directly(node, value, dims, context)
    return count


def _read_directly(node: ir.Node, value: ir.Value, dims: _Dims, context: PassContext) -> int:
    """Turn a chain (Shape, Gather, Unsqueeze, Concat) into one Shape with start and end."""
    items = elements_of(value)
    if items is None or items.scalar or is_op(node, "Shape") or value.dtype != ir.DataType.INT64:
        return 0
    if context.opset < 15 or len(node.outputs) != 1:
        return 0
    found = dims.find(items.elements)
    if found is None:
        return 0
    source, start, end = found
    context.replace_op(node, "Shape", [source], [ir.AttrInt64("start", start), ir.AttrInt64("end", end)])
    return 1


class EliminateExpand:
    """f(Expand(x, s), y) -> f(x, y), where f broadcasts to the same shape by itself."""

    name = "eliminate-expand"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Check each use: the result's shape must not depend on the Expand."""
        count = 0
        for node in context.nodes(model, "Expand"):
            source, output = node.inputs[0], node.outputs[0]
            if source is None:
                continue
            for user, index in output.uses():
                # The runtime computes powers of one number in another way.
                if operator_of(user).shape != "broadcast" or is_op(user, "Pow") or len(user.inputs) < 2:
                    continue
                operands = [source if i == index else v for i, v in enumerate(user.inputs)]
                if any(v is output for v in operands):
                    continue
                wanted = sizes_of(user.outputs[0])
                if wanted is not None and broadcast(*(sizes_of(v) for v in operands)) == wanted:
                    user.replace_input_with(index, source)
                    count += 1
        return count


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

"""Chains of one kind of operator: transposes, casts, slices, concatenations."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, producer, sole_use
from onnxtool.model.operators.layout_rules import axes_of, slice_bounds
from onnxtool.model.operators.value_facts import rank_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext

# Type -> types that hold each of its values exactly.
_WIDER = {
    "BOOL": {"UINT8", "INT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FLOAT16", "FLOAT", "DOUBLE"},
    "UINT8": {"INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64", "FLOAT16", "FLOAT", "DOUBLE"},
    "INT8": {"INT16", "INT32", "INT64", "FLOAT16", "FLOAT", "DOUBLE"},
    "INT16": {"INT32", "INT64", "FLOAT", "DOUBLE"},
    "UINT16": {"INT32", "UINT32", "INT64", "UINT64", "FLOAT", "DOUBLE"},
    "INT32": {"INT64", "DOUBLE"},
    "UINT32": {"INT64", "UINT64", "DOUBLE"},
    "FLOAT16": {"FLOAT", "DOUBLE"},
    "BFLOAT16": {"FLOAT", "DOUBLE"},
    "FLOAT": {"DOUBLE"},
}


class CollapseTransposes(NodeRewrite):
    """Transpose(Transpose(x, p), q) -> Transpose(x, p[q]), or x."""

    name = "collapse-transposes"
    level = Level.BASIC
    operators = ("Transpose",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Compose permutations."""
        before = producer(node.inputs[0], "Transpose")
        if before is None or before.inputs[0] is None:
            return 0
        first, second = permutation(before), permutation(node)
        if first is None or second is None or len(first) != len(second):
            return 0
        perm = [first[p] for p in second]
        if perm[-1:] != [len(perm) - 1] and _turns_an_operand(node, second):
            return 0
        if perm == list(range(len(perm))) and context.bypass(node, before.inputs[0]):
            return 1
        context.replace_op(node, "Transpose", [before.inputs[0]], [ir.AttrInt64s("perm", perm)])
        return 1


def _turns_an_operand(node: ir.Node, perm: list[int]) -> bool:
    """A transpose of the last two dims in front of MatMul: the runtime makes it part of the product when it loads.

    Merged with the transpose before it, it would have to be carried out, at 1.1 times the latency of a transformer,
    unless the two together move whole rows.
    """
    last = len(perm) - 1
    if last < 2 or perm != [*range(last - 1), last, last - 1]:
        return False
    return all(is_op(use.node, "MatMul", "Mul") for use in node.outputs[0].uses())


def permutation(node: ir.Node) -> list[int] | None:
    """The perm of a Transpose; without one, dims are reversed."""
    perm = attribute(node, "perm")
    if perm is not None:
        return [int(p) for p in perm]
    rank = rank_of(node.inputs[0])
    return None if rank is None else list(range(rank))[::-1]


class CollapseCasts(NodeRewrite):
    """Cast(Cast(x, wider), t) -> Cast(x, t), or x where it has type t."""

    name = "collapse-casts"
    level = Level.BASIC
    operators = ("Cast",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Skip the middle type where it holds every value of the first exactly."""
        before = producer(node.inputs[0], "Cast")
        source = before.inputs[0] if before is not None else None
        if before is None or source is None or source.dtype is None:
            return 0
        middle = ir.DataType(attribute(before, "to"))
        if middle.name not in _WIDER.get(source.dtype.name, ()):
            return 0
        if ir.DataType(attribute(node, "to")) == source.dtype:
            return context.bypass(node, source)
        node.replace_input_with(0, source)
        return 1


class CollapseSlices:
    """Slice(Slice(x, axis 0), axis 1) -> one Slice; Squeeze(Slice(x, i, i + 1)) -> Gather(x, i)."""

    name = "collapse-slices"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Only slices with constant bounds."""
        if context.opset < 10:
            return 0
        count = 0
        for node in context.nodes(model, "Slice"):
            if node.graph is not None:
                count += _merge_slices(node, context)
        for node in context.nodes(model, "Squeeze"):
            count += _gather_one(node, context)
        return count


def _bounds(node: ir.Node) -> list[list[int]] | None:
    """Starts, ends, axes, steps of a Slice with constant bounds; axes counted from the front."""
    bounds, rank = slice_bounds(node), rank_of(node.inputs[0])
    if bounds is None or rank is None or not all(isinstance(n, int) for n in bounds.starts + bounds.ends):
        return None
    return [list(bounds.starts), list(bounds.ends), [a % rank for a in bounds.axes], list(bounds.steps)]  # type: ignore[arg-type]


def _merge_slices(node: ir.Node, context: PassContext) -> int:
    before = producer(node.inputs[0], "Slice")
    if before is None or sole_use(before.outputs[0]) is not node:
        return 0
    first, second = _bounds(before), _bounds(node)
    if first is None or second is None or set(first[2]) & set(second[2]):
        return 0
    kind = np.int64 if node.inputs[1] is not None and node.inputs[1].dtype == ir.DataType.INT64 else np.int32
    if before.inputs[1] is None or node.inputs[1] is None or before.inputs[1].dtype != node.inputs[1].dtype:
        kind = np.int64
    limit = np.iinfo(kind).max
    names = ("starts", "ends", "axes", "steps")
    base = node.outputs[0].name
    constants = [
        context.initializer(np.array([min(n, limit) for n in a + b], kind), f"{base}_{name}")
        for name, a, b in zip(names, first, second, strict=True)
    ]
    context.replace_op(node, "Slice", [before.inputs[0], *constants])
    return 1


def _gather_one(node: ir.Node, context: PassContext) -> int:
    """Squeeze(Slice(x, i, i + 1, axis), axis) -> Gather(x, i, axis)."""
    before = producer(node.inputs[0], "Slice")
    if before is None or sole_use(before.outputs[0]) is not node or len(before.inputs) < 3:
        return 0
    bounds, axes, source = _bounds(before), axes_of(node), before.inputs[0]
    if bounds is None or axes is None or len(axes) != 1 or any(len(b) != 1 for b in bounds):
        return 0
    sizes = sizes_of(source)
    (start,), _, (axis,), _ = bounds
    dim = sizes[axis] if sizes is not None else None
    if sizes is None or not isinstance(dim, int) or axes[0] % len(sizes) != axis:
        return 0
    if sizes_of(before.outputs[0]) != (*sizes[:axis], 1, *sizes[axis + 1 :]) or not -dim <= start < dim:
        return 0
    index = context.initializer(np.array(start % dim, np.int64), f"{node.outputs[0].name}_index")
    context.replace_op(node, "Gather", [source, index], [ir.AttrInt64("axis", axis)])
    return 1


class FlattenConcats(NodeRewrite):
    """Concat(Concat(a, b), c) -> Concat(a, b, c) along one axis, where nobody else reads the inner one."""

    name = "flatten-concats"
    level = Level.BASIC
    operators = ("Concat",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Splice the inner inputs in."""
        rank = rank_of(node.outputs[0])
        inputs: list[ir.Value | None] = []
        for value in node.inputs:
            inner = producer(value, "Concat")
            if inner is not None and value is not None and sole_use(value) is node and _same_axis(inner, node, rank):
                inputs.extend(inner.inputs)
            else:
                inputs.append(value)
        if len(inputs) != len(node.inputs):
            context.replace_op(node, "Concat", inputs, dict(node.attributes))
            return 1
        return 0


def _same_axis(a: ir.Node, b: ir.Node, rank: int | None) -> bool:
    left, right = int(attribute(a, "axis", 1)), int(attribute(b, "axis", 1))
    return left == right or (rank is not None and left % rank == right % rank)

"""Chains of one kind of operator: transposes, casts, slices, clips, concatenations."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, producer, sole_use
from onnxtool.model.operators.layout_rules import axes_of, slice_bounds
from onnxtool.model.operators.value_facts import rank_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.patterns.operands import scalar

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


class CollapseClips(NodeRewrite):
    """Clip(Clip(x, a, b), c, d) -> Clip(x, max(a, c), min(b, d)), and Relu(Relu(x)) -> Relu(x)."""

    # onnxscript's rules take the inner Relu for granted when the outer Clip starts below zero.
    name = "collapse-clips"
    level = Level.BASIC
    operators = ("Clip", "Relu")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """The outer range, cut to what the inner one lets through."""
        inner = producer(node.inputs[0], "Clip", "Relu")
        if inner is None or sole_use(inner.outputs[0]) is not node:
            return 0
        dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
        first, second = clip_bounds(inner, context), clip_bounds(node, context)
        if first is None or second is None or dtype is None or dtype not in _CLIPPED:
            return 0
        low, high = (min(max(b, second[0]), second[1]) for b in first)
        if _changes_sign_of_zero(first, second, (low, high)):
            return 0
        self._replace(node, inner.inputs[0], low, high, dtype, context)
        return 1

    def _replace(
        self, node: ir.Node, source: ir.Value | None, low: float, high: float, dtype: ir.DataType, context: PassContext
    ) -> None:
        if (low, high) == (0.0, math.inf):
            context.replace_op(node, "Relu", [source])
        elif context.opset < 11:
            bounds = [("min", low), ("max", high)]
            context.replace_op(node, "Clip", [source], [ir.AttrFloat32(n, b) for n, b in bounds if math.isfinite(b)])
        else:
            inputs: list[ir.Value | None] = [source]
            for name, bound in (("min", low), ("max", high)):
                array = np.array(bound, dtype.numpy())
                made = context.initializer(array, f"{node.outputs[0].name}_{name}")
                inputs.append(made if math.isfinite(bound) else None)
            while inputs[-1] is None:
                inputs.pop()
            context.replace_op(node, "Clip", inputs)


def _changes_sign_of_zero(first: tuple[float, float], second: tuple[float, float], both: tuple[float, float]) -> bool:
    """Whether -0 comes out as another zero: the inner range turned it into a number that the outer one made +0."""
    if any(b == 0 and math.copysign(1.0, b) < 0 for b in (*first, *second)):
        return True
    return not first[0] <= 0 <= first[1] and both[0] <= 0 <= both[1]


def clip_bounds(node: ir.Node, context: PassContext) -> tuple[float, float] | None:
    """Constant bounds of a Clip, or of a Relu; None when they are computed or cross over."""
    if is_op(node, "Relu"):
        return (0.0, math.inf)
    if context.opset < 11:
        low, high = float(attribute(node, "min", -math.inf)), float(attribute(node, "max", math.inf))
    else:
        found = []
        for index, default in ((1, -math.inf), (2, math.inf)):
            given = node.inputs[index] if len(node.inputs) > index else None
            number = default if given is None else scalar(given, context)
            if number is None:
                return None
            found.append(number)
        low, high = found
    return (low, high) if low <= high else None


_CLIPPED = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)

"""Reshapes and transposes around attention, and projections of one input side by side."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import on_disk, producer
from onnxtool.model.operators.symbolic_dims import multiply
from onnxtool.model.operators.value_facts import Size, Sizes, rank_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.operator_chains import permutation
from onnxtool.optimization.passes.fusion.normalization import constant_step


class CollapseBatchedTransposes(NodeRewrite):
    """Reshape(Transpose(Reshape(x))) -> Transpose(x): leading dims merged only for the turn."""

    # torch's exporter writes the transposed keys of scaled_dot_product_attention this way, with computed shapes.
    name = "collapse-batched-transposes"
    level = Level.BASIC
    operators = ("Reshape",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """The second Reshape must give back exactly the dims that the first one merged, in their new order."""
        turn = producer(node.inputs[0], "Transpose")
        merge = producer(turn.inputs[0], "Reshape") if turn is not None else None
        if turn is None or merge is None or merge.inputs[0] is None:
            return 0
        source, merged, wanted = sizes_of(merge.inputs[0]), sizes_of(merge.outputs[0]), sizes_of(node.outputs[0])
        perm = permutation(turn)
        if source is None or merged is None or wanted is None or perm is None:
            return 0
        groups = _groups(source, merged)
        if groups is None or len(perm) != len(groups):
            return 0
        order = [axis for p in perm for axis in groups[p]]
        if tuple(source[axis] for axis in order) == wanted and sorted(order) == list(range(len(source))):
            context.replace_op(node, "Transpose", [merge.inputs[0]], [ir.AttrInt64s("perm", order)])
            return 1
        return 0


def _groups(source: Sizes, merged: Sizes) -> list[list[int]] | None:
    """Which consecutive source dims each merged dim holds."""
    groups: list[list[int]] = []
    at = 0
    for size in merged:
        group: list[int] = []
        running: Size = 1
        while running != size or not group:
            if at == len(source):
                return None
            running = multiply(running, source[at])
            group.append(at)
            at += 1
        groups.append(group)
    while at < len(source) and source[at] == 1 and groups:
        groups[-1].append(at)
        at += 1
    return groups if at == len(source) else None


class MergeProjections:
    """MatMul(x, W1) + b1, MatMul(x, W2) + b2 -> Split(MatMul(x, [W1 W2]) + [b1 b2])."""

    name = "merge-projections"
    level = Level.EXTENDED

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Groups of three or more, such as query, key and value."""
        if context.opset < 13:
            return 0
        count = 0
        groups: dict[ir.Value, list[ir.Node]] = {}
        for node in context.nodes(model, "MatMul"):
            if node.inputs[0] is not None and rank_of(node.inputs[1]) == 2 and context.is_constant(node.inputs[1]):
                groups.setdefault(node.inputs[0], []).append(node)
        for source, nodes in groups.items():
            if len(nodes) >= 3 and len({id(n.graph) for n in nodes}) == 1 and (rank_of(source) or 0) >= 2:
                count += _merge(source, nodes, context)
        return count


def _merge(source: ir.Value, nodes: list[ir.Node], context: PassContext) -> int:
    graph, rank = nodes[0].graph, rank_of(source)
    arrays = [a for n in nodes if (a := _own_weight(n, context)) is not None]
    if graph is None or rank is None or len(arrays) != len(nodes) or len({a.dtype for a in arrays}) != 1:
        return 0
    ends = [_biased(n, a.shape[1], context) for n, a in zip(nodes, arrays, strict=True)]
    first = nodes[0]
    base = source.name or "projection"
    weight = context.initializer(np.concatenate(arrays, axis=1), f"{base}_weights")
    last = context.insert(first, "MatMul", [source, weight], base=f"{base}_projected")
    last.dtype = source.dtype or ir.DataType.FLOAT
    if any(b is not None for _, b in ends):
        rows = [np.zeros(a.shape[1], a.dtype) if b is None else b for (_, b), a in zip(ends, arrays, strict=True)]
        bias = context.initializer(np.concatenate(rows), f"{base}_biases")
        last = context.insert(first, "Add", [last, bias], base=f"{base}_biased")
        last.dtype = source.dtype or ir.DataType.FLOAT
    sizes = context.initializer(np.array([a.shape[1] for a in arrays], np.int64), f"{base}_widths")
    outputs = [ir.Value(name=context.unique(f"{base}_part"), type=source.type) for _ in arrays]
    split = ir.Node("", "Split", [last, sizes], [ir.AttrInt64("axis", rank - 1)], outputs=outputs, name=outputs[0].name)
    graph.insert_before(first, split)
    for (end, _), part in zip(ends, outputs, strict=True):
        if not context.bypass(end, part):  # pragma: no cover  (the part is a fresh node output)
            raise AssertionError("a fresh value can always take over")
    return 1


def _own_weight(node: ir.Node, context: PassContext) -> np.ndarray | None:
    """The weight, when no other node reads it and it is not so large that it should stay on disk."""
    value = node.inputs[1]
    if value is None or len(value.uses()) != 1 or on_disk(value):
        return None
    return context.array(value)


def _biased(node: ir.Node, width: int, context: PassContext) -> tuple[ir.Node, np.ndarray | None]:
    """The Add of a constant row that follows, and the row; else the node itself."""
    after, other = constant_step(node, "Add", width, context)
    row = context.array(other, limit=width)
    return (node, None) if row is None else (after, row)

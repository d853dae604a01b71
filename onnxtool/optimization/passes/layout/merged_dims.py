"""Dims that exporters merge, or add with size 1, around transposes and matrix products."""

# tf2onnx (of Keras' einsum, tensordot and attention) and the older exporters write products of more than two dims as
# products of matrices or of one batch dim, with computed shapes around them. No library's pass takes that back.

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, on_disk, producer, sole_use
from onnxtool.model.operators.symbolic_dims import product
from onnxtool.model.operators.value_facts import Size, Sizes, rank_of, set_sizes, sizes_of, static_shape
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.dead_code import TidyRewrite
from onnxtool.optimization.passes.cleanup.operator_chains import permutation
from onnxtool.optimization.passes.layout.reshapes import (
    RESHAPES,
    become_reshape,
    can_read,
    let_read,
    reshape_target,
    sources,
)
from onnxtool.optimization.patterns.operands import pairs


class DropUnitDims(TidyRewrite):
    """Squeeze(Transpose(Unsqueeze(x))) -> Transpose(x): dims of size 1 that were only added for it."""

    name = "drop-unit-dims"
    level = Level.BASIC
    operators = ("Transpose",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """A Transpose between reshapes; what reads its dims then reads them off the smaller tensor."""
        perm, wide = permutation(node), sizes_of(node.inputs[0])
        readers = [u.node for u in node.outputs[0].uses()]
        if perm is None or wide is None or 1 not in wide or node.outputs[0].is_graph_output():
            return 0
        kept = [i for i, size in enumerate(wide) if size != 1]
        narrow = tuple(wide[i] for i in kept)
        turned = [kept.index(p) for p in perm if p in kept]
        result = tuple(narrow[p] for p in turned)
        before = producer(node.inputs[0], *RESHAPES)
        if before is None or not readers or not all(can_read(r, node.outputs[0], result) for r in readers):
            return 0
        for source in reversed(list(sources(before))):
            target = [0] if sizes_of(source) == narrow else reshape_target(sizes_of(source), narrow)
            if target is not None:
                break
        else:
            return 0
        base = node.outputs[0].name or "turned"
        if sizes_of(source) != narrow:
            source = _reshaped(source, target, narrow, base, node, context)
        if turned != list(range(len(turned))):
            made = context.insert(node, "Transpose", [source], [ir.AttrInt64s("perm", turned)], base=base)
            source = _made(made, result, node.outputs[0])
        let_read(readers, node.outputs[0], source, result, context)
        return 1


class SplitMergedBatches(TidyRewrite):
    """Reshape(MatMul(Reshape(a), Reshape(b))) -> MatMul(a, b): batch dims merged only for the product."""

    name = "split-merged-batches"
    level = Level.BASIC
    operators = ("MatMul",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Both operands have been merged from the same dims, and only reshapes read the product."""
        output = node.outputs[0]
        readers = [u.node for u in output.uses()]
        sides = [_unmerged(v) for v in node.inputs]
        if sides[0] is None or sides[1] is None or not readers or output.is_graph_output():
            return 0
        first, second = sides[0][2], sides[1][2]
        lead = first[:-2]
        result = (*lead, first[-2], second[-1])
        if second[:-2] != lead or first[-1] != second[-2]:
            return 0
        if not all(is_op(r, *RESHAPES) and can_read(r, output, result) for r in readers):
            return 0
        operands = [_turned(value, turn, sizes, node, context) for value, turn, sizes in (sides[0], sides[1])]
        made = _made(context.insert(node, "MatMul", operands, base=output.name or "product"), result, output)
        let_read(readers, output, made, result, context)
        return 1


def _unmerged(value: ir.Value | None) -> tuple[ir.Value, bool, Sizes] | None:
    """What [batches, rows, columns] was merged from, whether the last two are to be exchanged, and then the dims."""
    turn = producer(value, "Transpose")
    swapped = turn is not None and permutation(turn) == [0, 2, 1]
    merge = producer(turn.inputs[0] if swapped and turn is not None else value, *RESHAPES)
    after = sizes_of(merge.outputs[0]) if merge is not None else None
    if merge is None or after is None or len(after) != 3:
        return None
    for source in sources(merge):
        before = sizes_of(source)
        if before is not None and len(before) >= 4 and before[-2:] == after[-2:]:
            return source, swapped, (*before[:-2], before[-1], before[-2]) if swapped else before
    return None


def _turned(value: ir.Value, swap: bool, sizes: Sizes, before: ir.Node, context: PassContext) -> ir.Value:
    if not swap:
        return value
    rank = len(sizes)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    made = context.insert(before, "Transpose", [value], [ir.AttrInt64s("perm", perm)], base=f"{value.name}_turned")
    return _made(made, sizes, value)


class UnflattenProducts(TidyRewrite):
    """Reshape(MatMul(Reshape(x), W)) -> MatMul(x, W): rows flattened only for the product."""

    # Level extended: Gemm and MatMul may add up in another order.
    name = "unflatten-products"
    level = Level.EXTENDED
    operators = ("MatMul", "Gemm")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """MatMul, and Gemm without a third operand."""
        output, weight = node.outputs[0], node.inputs[1]
        readers = [u.node for u in output.uses()]
        flatten = producer(node.inputs[0], *RESHAPES)
        if flatten is None or weight is None or not readers or output.is_graph_output() or not _plain(node, context):
            return 0
        rows, columns = sizes_of(flatten.outputs[0]), sizes_of(output)
        if rows is None or columns is None or len(rows) != 2:
            return 0
        source, deep = flatten.inputs[0], _with_columns(sizes_of(flatten.inputs[0]), rows[-1])
        if source is None or deep is None:
            return 0
        target = reshape_target(sizes_of(source), deep)
        result = (*deep[:-1], columns[-1])
        if target is None or not all(is_op(r, *RESHAPES) and can_read(r, output, result) for r in readers):
            return 0
        if sizes_of(source) != deep:
            source = _reshaped(source, target, deep, f"{source.name}_rows", node, context)
        if attribute(node, "transB", 0):
            array = context.array(weight)
            assert array is not None  # _plain
            weight = context.initializer(np.ascontiguousarray(array.T), f"{weight.name}_turned")
        made = _made(context.insert(node, "MatMul", [source, weight], base=output.name or "product"), result, output)
        let_read(readers, output, made, result, context)
        return 1


def _with_columns(source: Sizes | None, columns: Size) -> Sizes | None:
    """Three or more dims with the last ones joined so that they make up the columns."""
    for start in range(2, len(source or ())):
        if source is not None and product(source[start:]) == columns:
            return (*source[:start], columns)
    return None


def _plain(node: ir.Node, context: PassContext) -> bool:
    """Whether a node is a product by a constant matrix, and nothing besides."""
    weight = node.inputs[1]
    if weight is None or rank_of(weight) != 2 or not context.is_constant(weight):
        return False
    if is_op(node, "MatMul"):
        return True
    third = len(node.inputs) > 2 and node.inputs[2] is not None
    if third or attribute(node, "transA", 0) or attribute(node, "alpha", 1.0) != 1.0:
        return False
    # A weight that others read too would be stored twice.
    return not attribute(node, "transB", 0) or (len(weight.uses()) == 1 and not on_disk(weight))


def _reshaped(
    source: ir.Value, target: list[int], sizes: Sizes, base: str, before: ir.Node, context: PassContext
) -> ir.Value:
    shape = context.initializer(np.array(target, np.int64), f"{base}_shape")
    made = context.insert(before, "Reshape", [source, shape], base=f"{base}_reshaped")
    return _made(made, sizes, source)


def _made(value: ir.Value, sizes: Sizes, like: ir.Value) -> ir.Value:
    """A new value with its dims, and the type of another."""
    value.type = like.type
    set_sizes(value, sizes)
    return value


class MoveBiasBeforeReshape(TidyRewrite):
    """Reshape(x) + b -> Reshape(x + b), where the Reshape splits the last dim."""

    # So it is the bias of the product again, and can be merged with those of other projections.
    name = "move-bias-before-reshape"
    level = Level.BASIC
    operators = ("Add",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """The constant must have all elements of the dims into which the last one is split."""
        deep = sizes_of(node.outputs[0])
        for value, bias in pairs(node):
            split = producer(value, *RESHAPES)
            if split is None or deep is None or sizes_of(value) != deep or sole_use(value) is not node:
                continue
            source = next((s for s in sources(split) if producer(s, "MatMul") is not None), None)
            flat, row = sizes_of(source), _row(bias, deep, context)
            target = reshape_target(flat, deep)
            if (
                source is None
                or flat is None
                or row is None
                or target is None
                or (*deep[: len(flat) - 1], row.size) != flat
            ):
                continue
            base = node.outputs[0].name or "biased"
            moved = _made(
                context.insert(node, "Add", [source, context.initializer(row, f"{base}_row")], base=f"{base}_flat"),
                flat,
                value,
            )
            become_reshape(node, moved, target, context)
            return 1
        return 0


def _row(bias: ir.Value, deep: Sizes, context: PassContext) -> np.ndarray | None:
    """A constant with just the last two or more of some dims, as a row."""
    shape = static_shape(bias)
    while shape is not None and shape[:1] == (1,):
        shape = shape[1:]
    if shape is None or len(shape) < 2 or shape != deep[len(deep) - len(shape) :]:
        return None
    array = context.array(bias)
    return None if array is None else array.reshape(-1)

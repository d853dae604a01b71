"""The runtime's attention operator with the projection of query, key and value built in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, on_disk, producer, sole_use
from onnxtool.model.operators.value_facts import sizes_of, static_shape
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import MICROSOFT, PassContext
from onnxtool.optimization.patterns.operands import pairs


@dataclass(frozen=True)
class _Projection:
    """source . weight + bias gives query, key and value side by side."""

    source: ir.Value
    weight: ir.Value
    bias: ir.Value | None


class FusePackedAttention(NodeRewrite):
    """MultiHeadAttention(Split(MatMul(x, W) + b)) -> the runtime's Attention(x, W, b)."""

    name = "fuse-packed-attention"
    level = Level.ALL
    operators = ("MultiHeadAttention",)
    domain = MICROSOFT

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Start from MultiHeadAttention; query, key and value must be equally wide."""
        split = _split(node)
        found = _projection(split, context) if split is not None else None
        if found is None or split is None:
            return 0
        bias = found.bias
        if bias is None:
            zeros = np.zeros((static_shape(found.weight) or (0,))[-1], np.float32)
            bias = context.initializer(zeros, f"{node.outputs[0].name}_bias")
        mask = node.inputs[5] if len(node.inputs) > 5 else None
        inputs = [found.source, found.weight, bias, *([None, None, mask] if mask is not None else [])]
        settings = [ir.AttrInt64("num_heads", attribute(node, "num_heads"))]
        settings.append(ir.AttrFloat32("scale", attribute(node, "scale", 0.0)))
        context.replace_op(node, "Attention", inputs, settings, MICROSOFT)
        return 1


def _split(node: ir.Node) -> ir.Node | None:
    """The Split whose three outputs are query, key and value, and are read by nothing else."""
    if any(v is not None for i, v in enumerate(node.inputs) if i > 2 and i != 5):
        return None
    split = producer(node.inputs[0], "Split")
    if split is None or len(split.outputs) != 3 or list(node.inputs[:3]) != list(split.outputs):
        return None
    sizes = [sizes_of(v) for v in split.outputs]
    if any(sole_use(v) is not node for v in split.outputs) or sizes[0] is None or len(sizes[0]) != 3:
        return None
    whole = sizes_of(split.inputs[0])
    last = attribute(split, "axis", 0) in (-1, 2)
    equal = sizes[0] == sizes[1] == sizes[2] and whole is not None and whole[:2] == sizes[0][:2]
    return split if last and equal and _alone(split) else None


def _alone(node: ir.Node) -> bool:
    """Whether nothing else reads the first input."""
    return node.inputs[0] is not None and sole_use(node.inputs[0]) is node


def _projection(split: ir.Node, context: PassContext) -> _Projection | None:
    value = split.inputs[0]
    return _from_gemm(value, context) or _from_matmul(value, context)


def _from_matmul(value: ir.Value | None, context: PassContext) -> _Projection | None:
    """MatMul, with or without the Add of a row."""
    add = producer(value, "Add")
    options: list[tuple[ir.Value | None, ir.Value | None]] = [(value, None)]
    if add is not None:
        options = [(data, row) for data, row in pairs(add) if context.is_constant(row)]
    for data, row in options:
        product = producer(data, "MatMul")
        if product is None or (row is not None and (data is None or sole_use(data) is None)):
            continue
        return _checked(product.inputs[0], product.inputs[1], row, context)
    return None


def _from_gemm(value: ir.Value | None, context: PassContext) -> _Projection | None:
    """Reshape to rows, Gemm, Reshape back, as exports of GPT-2 have it."""
    back = producer(value, "Reshape")
    gemm = producer(back.inputs[0], "Gemm") if back is not None else None
    rows = producer(gemm.inputs[0], "Reshape") if gemm is not None else None
    if gemm is None or rows is None or sole_use(gemm.outputs[0]) is not back:
        return None
    if any(attribute(gemm, name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return None
    if attribute(gemm, "transA", 0) or attribute(gemm, "transB", 0):
        return None
    source, flat, wide = sizes_of(rows.inputs[0]), sizes_of(rows.outputs[0]), sizes_of(value)
    if source is None or flat is None or wide is None or len(source) != 3 or len(flat) != 2:
        return None
    if flat[1] != source[2] or wide[:2] != source[:2]:
        return None
    row = gemm.inputs[2] if len(gemm.inputs) > 2 else None
    return _checked(rows.inputs[0], gemm.inputs[1], row, context)


def _checked(
    source: ir.Value | None, weight: ir.Value | None, row: ir.Value | None, context: PassContext
) -> _Projection | None:
    sizes, width = sizes_of(source), sizes_of(weight)
    if source is None or weight is None or sizes is None or len(sizes) != 3 or source.dtype != ir.DataType.FLOAT:
        return None
    if width is None or len(width) != 2 or not context.is_constant(weight) or on_disk(weight):
        return None
    if row is not None and (not context.is_constant(row) or sizes_of(row) != width[1:]):
        return None
    return _Projection(source, weight, row)

"""Mul, Add, Sub and Div by constants, folded into the weights of the operator before them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import is_op, on_disk, producer, sole_use
from onnxtool.model.operators.value_facts import rank_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.fusion.activations import gelu_of
from onnxtool.optimization.passes.fusion.batchnorm import Affine, absorb_after, batchnorm_affine
from onnxtool.optimization.passes.fusion.normalization import rms_norm

ARITHMETIC = ("Mul", "Add", "Sub", "Div")


class FuseConvAffine(NodeRewrite):
    """Conv(x, W, b) * s + t -> Conv(x, W * s, b * s + t) for each channel; ConvTranspose and Gemm likewise."""

    # onnxscript's rule takes any constant of the right size, and so fuses one that broadcasts over the last axis.
    name = "fuse-conv-affine"
    level = Level.EXTENDED
    operators = ARITHMETIC

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Fold the constant into weights and bias."""
        for data in node.inputs:
            linear = producer(data, "Conv", "ConvTranspose", "Gemm")
            if linear is None or data is None or sole_use(data) is not node:
                continue
            rank = rank_of(data)
            affine = None if rank is None else constant_affine(node, data, context, axis=1 - rank)
            if affine is not None and absorb_after(linear, node, affine, context):
                return 1
        return 0


class FuseBatchNormAffine(NodeRewrite):
    """BatchNormalization(x) * s + t, or another one behind it -> one BatchNormalization(x)."""

    name = "fuse-batchnorm-affine"
    level = Level.EXTENDED
    operators = (*ARITHMETIC, "BatchNormalization")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Fold the second map into scale and bias of the first."""
        for data in node.inputs[:2]:
            first = producer(data, "BatchNormalization")
            if first is None or data is None or sole_use(data) is not node or batchnorm_affine(first, context) is None:
                continue
            rank = rank_of(data)
            if is_op(node, "BatchNormalization"):
                second = batchnorm_affine(node, context) if node.inputs[0] is data else None
            else:
                second = None if rank is None else constant_affine(node, data, context, axis=1 - rank)
            if second is not None and _absorb_into_batchnorm(first, node, second, context):
                return 1
        return 0


def _absorb_into_batchnorm(first: ir.Node, node: ir.Node, second: Affine, context: PassContext) -> bool:
    scale, bias = context.array(first.inputs[1]), context.unrounded(first.inputs[2])
    if scale is None or bias is None or any(v.size not in (1, scale.size) for v in (second.scale, second.shift)):
        return False
    with np.errstate(all="ignore"):
        new_scale = (np.asarray(scale, np.float64) * second.scale).astype(scale.dtype)
        exact_bias = bias * second.scale + second.shift
        new_bias = exact_bias.astype(scale.dtype)
    if not (np.isfinite(new_scale).all() and np.isfinite(new_bias).all()):
        return False
    base = node.outputs[0].name or "batchnorm"
    inputs = list(first.inputs)
    inputs[1] = context.constant(new_scale, f"{base}_scale", before=node)
    inputs[2] = context.rounded(new_bias, exact_bias, f"{base}_bias", before=node)
    context.replace_op(node, "BatchNormalization", inputs, first.attributes)
    node.resize_outputs(1)
    return True


class FuseMatMulScale:
    """MatMul(x, W) * s, (MatMul(x, W) + b) * s, MatMul(x * s, W) -> MatMul with scaled W (and b)."""

    name = "fuse-matmul-scale"
    level = Level.EXTENDED

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Fold Mul and Div into the weight, and into the bias where there is one."""
        count = 0
        for node in context.nodes(model, "Mul", "Div"):
            if node.graph is None:
                continue
            for data in node.inputs:
                if data is not None and _scale_after(node, data, context):
                    count += 1
                    break
        for node in context.nodes(model, "MatMul"):
            count += _scale_before(node, context)
        return count


def _scale_after(node: ir.Node, data: ir.Value, context: PassContext) -> bool:
    """Mul(Add(MatMul(x, W), b), s) -> Add(MatMul(x, W * s), b * s); the same without the Add."""
    affine = constant_affine(node, data, context, axis=-1)
    if affine is None or sole_use(data) is not node:
        return False
    add = producer(data, "Add")
    product = producer(data, "MatMul")
    bias: np.ndarray | None = None
    if add is not None:
        for index, value in enumerate(add.inputs):
            bias = context.array(add.inputs[1 - index])
            product = producer(value, "MatMul")
            if product is not None and bias is not None and value is not None and sole_use(value) is add:
                break
        else:
            return False
        if bias is None or bias.ndim > 1 or bias.dtype.kind != "f":
            return False
    change = None if product is None else scaled_weight(product, 1, affine.scale.reshape(1, -1), context)
    if product is None or change is None:
        return False
    change()
    if add is None or bias is None:
        context.replace_op(node, "MatMul", list(product.inputs))
        return True
    new_bias = np.asarray(bias * affine.scale, np.float64).astype(bias.dtype)
    name = f"{add.outputs[0].name}_bias"
    context.replace_op(node, "Add", [product.outputs[0], context.constant(new_bias, name, before=node)])
    return True


def _scales_rms_norm(scaling: ir.Node, context: PassContext) -> bool:
    quotients = [producer(v, "Div", "Mul") for v in scaling.inputs]
    return any((norm := rms_norm(q, context)) is not None and norm.last is scaling for q in quotients if q is not None)


def _scale_before(node: ir.Node, context: PassContext) -> int:
    """MatMul(Mul(x, s), W) -> MatMul(x, W * s) for one number or one for each column of x."""
    data, scaling = node.inputs[0], producer(node.inputs[0], "Mul", "Div")
    if scaling is None or data is None or sole_use(data) is not node or not context.is_constant(node.inputs[1]):
        return 0
    if gelu_of(scaling, context) is not None or _scales_rms_norm(scaling, context):
        return 0  # the runtime makes one operator of their parts, and it needs all of them
    for source in scaling.inputs:
        if source is None:
            continue
        affine = constant_affine(scaling, source, context, axis=-1)
        if affine is None or sizes_of(source) != sizes_of(data):
            continue
        change = scaled_weight(node, 1, affine.scale.reshape(-1, 1), context)
        if change is not None:
            change()
            context.replace_op(node, "MatMul", [source, node.inputs[1]])
            return 1
    return 0


def scaled_weight(node: ir.Node, index: int, factor: np.ndarray, context: PassContext) -> Callable[[], None] | None:
    """What makes a constant operand `factor` times as large: one number, or an array of the same rank that broadcasts.

    None where the operand is not known or better left on disk, where a number overflows, or the file would grow.
    """
    value = node.inputs[index]
    array = None if value is None or on_disk(value) else context.array(value)
    if value is None or array is None or array.dtype.kind != "f" or factor.ndim not in (0, array.ndim):
        return None
    if any(n not in (1, size) for n, size in zip(factor.shape, array.shape, strict=False)):
        return None
    with np.errstate(over="ignore"):  # what overflows is left as it is
        scaled = np.asarray(array * factor).astype(array.dtype)
    freed = context.stored_bytes(array) if len(value.uses()) == 1 else 0
    if not np.isfinite(scaled).all() or not context.may_grow(freed, context.stored_bytes(scaled)):
        return None
    made = f"{value.name}_scaled"
    return lambda: node.replace_input_with(index, context.constant(scaled, made, before=node))


def constant_affine(node: ir.Node, data: ir.Value, context: PassContext, axis: int) -> Affine | None:
    """What an arithmetic node does to `data`, when its other operand is constant.

    Args:
        node: Mul, Add, Sub or Div.
        data: its computed operand, of known rank.
        context: knows constants and shapes.
        axis: the dim along which the constant may run, counted from the back (negative).

    Returns:
        Scale and shift with one number, or one for each index of `axis`; None when the constant broadcasts along
        other dims, or would widen the result.
    """
    left = node.inputs[0] is data
    if node.inputs[0] is node.inputs[1]:
        return None
    array = _along(node.inputs[1] if left else node.inputs[0], data, context, axis)
    if array is None:
        return None
    one, none = np.ones(1), np.zeros(1)
    values = np.asarray(array, np.float64)
    if node.op_type == "Mul":
        return Affine(values, none)
    if node.op_type == "Add":
        return Affine(one, values)
    if node.op_type == "Sub":
        return Affine(one, -values) if left else Affine(-one, values)
    if node.op_type == "Div" and left and (values != 0).all():
        return Affine(1.0 / values, none)
    return None


def _along(other: ir.Value | None, data: ir.Value, context: PassContext, axis: int) -> np.ndarray | None:
    array, sizes = context.array(other), sizes_of(data)
    if array is None or sizes is None or array.ndim > len(sizes) or array.dtype.kind != "f":
        return None
    if array.size == 1:
        return array.reshape(-1)
    if array.ndim < -axis or array.shape[axis] != array.size or sizes[axis] != array.size:
        return None
    return array.reshape(-1)


_IMAGE = 4  # dims


class FuseScaleShift:
    """x * s + t for each channel of images -> BatchNormalization(x)."""

    # tf2onnx writes each normalization in front of an activation as Mul and Add. At load the runtime brings images into
    # blocks of channels, and a BatchNormalization too, but no Mul by a constant: ResNet50V2 takes 0.94 of the latency.
    name = "fuse-scale-shift"
    level = Level.EXTENDED

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Two arithmetic nodes of which nothing reads the first but the second."""
        if context.opset < 9:
            return 0
        neutral: dict[int, tuple[ir.Value, ir.Value]] = {}
        return sum(_fuse(node, neutral, context) for node in context.nodes(model, *ARITHMETIC))


def _fuse(node: ir.Node, neutral: dict[int, tuple[ir.Value, ir.Value]], context: PassContext) -> int:
    for between in node.inputs:
        first = between.producer() if between is not None else None
        if first is None or between is None or not is_op(first, *ARITHMETIC) or sole_use(between) is not node:
            continue
        for data in first.inputs:
            sizes = sizes_of(data)
            if data is None or sizes is None or len(sizes) != _IMAGE or data.dtype != ir.DataType.FLOAT:
                continue
            channels = sizes[1]
            inner = constant_affine(first, data, context, axis=1 - _IMAGE)
            outer = constant_affine(node, between, context, axis=1 - _IMAGE) if inner is not None else None
            if inner is None or outer is None or not isinstance(channels, int) or channels < 2:
                continue
            scale, shift = inner.scale * outer.scale, inner.shift * outer.scale + outer.shift
            if max(scale.size, shift.size) != channels or not _matters(scale, shift):
                continue
            if channels not in neutral:
                if not context.may_grow(0, 2 * 4 * channels):
                    continue
                zero, one = np.zeros(channels, np.float32), np.ones(channels, np.float32)
                base = f"channels_{channels}"
                neutral[channels] = context.initializer(zero, f"{base}_zero"), context.initializer(one, f"{base}_one")
            rows = [np.broadcast_to(a, channels).astype(np.float32) for a in (scale, shift)]
            if not all(np.isfinite(row).all() for row in rows):
                continue
            base = node.outputs[0].name or "scaled"
            weights = [context.initializer(row, f"{base}_{n}") for row, n in zip(rows, ("scale", "shift"), strict=True)]
            context.replace_op(
                node,
                "BatchNormalization",
                [data, *weights, *neutral[channels]],
                [ir.AttrFloat32("epsilon", 0.0)],
            )
            return 1
    return 0


def _matters(scale: np.ndarray, shift: np.ndarray) -> bool:
    """Both a scale and a shift are there; one of them alone is better off as it is."""
    return bool((scale != 1).any() and (shift != 0).any())

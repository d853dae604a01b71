"""Affine steps around convolutions and matrix products, folded into the weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext


@dataclass(frozen=True)
class Affine:
    """y = x * scale + shift for each channel, in float64."""

    scale: np.ndarray
    shift: np.ndarray


class FuseConvBatchNorm(NodeRewrite):
    """BatchNormalization(Conv(x, W, b)) -> Conv(x, W * s, b * s + t); ConvTranspose, Gemm, MatMul likewise."""

    # onnxscript's rule wants all BatchNormalization inputs to be initializers with one user, and rounds in float32.
    name = "fuse-conv-batchnorm"
    level = Level.EXTENDED
    operators = ("BatchNormalization",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Fold inference BatchNormalization into the operator before it."""
        affine = batchnorm_affine(node, context)
        linear = producer(node.inputs[0], "Conv", "ConvTranspose", "Gemm")
        if affine is not None and linear is not None and sole_use(linear.outputs[0]) is node:
            return absorb_after(linear, node, affine, context)
        return 0


def batchnorm_affine(node: ir.Node, context: PassContext) -> Affine | None:
    """The per-channel affine map of an inference BatchNormalization; None in training or with computed statistics."""
    if attribute(node, "training_mode", 0) or not attribute(node, "spatial", 1):
        return None
    if any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
        return None
    if context.opset < 14 and len([o for o in node.outputs if o.name]) > 1:
        return None  # before opset 14 further outputs mean training
    arrays = [context.array(v) for v in node.inputs[1:5]]
    if len(arrays) < 4 or any(a is None or a.ndim != 1 or a.dtype.kind != "f" for a in arrays):
        return None
    scale, bias, mean, variance = (np.asarray(a, np.float64) for a in arrays)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
        shift = bias - mean * factor
    if not (np.isfinite(factor).all() and np.isfinite(shift).all()):
        return None
    return Affine(factor, shift)


def absorb_after(linear: ir.Node, node: ir.Node, affine: Affine, context: PassContext) -> int:
    """Make `node`, an affine map of `linear`'s output, do `linear`'s work with scaled weights.

    Args:
        linear: Conv, ConvTranspose or Gemm whose only user is `node`.
        node: what applies the map; turned into the new operator in place.
        affine: one scale and one shift for each output channel (or one for all).
        context: knows the constants, and names the new ones.
    """
    weight_value = linear.inputs[1]
    weight = context.array(weight_value)
    if weight is None or weight_value is None or weight.dtype.kind != "f":
        return 0
    bias_value = linear.inputs[2] if len(linear.inputs) > 2 else None
    bias = context.unrounded(bias_value)
    if bias_value is not None and bias is None:
        return 0
    channels = output_channels(linear, weight)
    if channels is None or any(v.size not in (1, channels) for v in (affine.scale, affine.shift)):
        return 0
    if linear.op_type == "Gemm" and (attribute(linear, "beta", 1.0) != 1.0 or (bias is not None and bias.ndim > 1)):
        return 0
    scale, shift = (np.broadcast_to(v, channels) for v in (affine.scale, affine.shift))
    old_bias = np.zeros(channels) if bias is None else np.broadcast_to(bias, channels)
    with np.errstate(all="ignore"):
        new_weight = _scaled(linear, weight, scale)
        exact_bias = old_bias * scale + shift
        new_bias = exact_bias.astype(weight.dtype)
    if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
        return 0
    freed = context.stored_bytes(weight) if len(weight_value.uses()) == 1 else 0
    unchanged = bool((scale == 1.0).all())
    if not unchanged and not context.may_grow(freed, context.stored_bytes(new_weight)):
        return 0
    base = weight_value.name or "weight"
    bias_name = (bias_value.name if bias_value is not None else None) or f"{base}_bias"
    inputs: list[ir.Value | None] = [linear.inputs[0]]
    inputs.append(weight_value if unchanged else context.constant(new_weight, f"{base}_folded", before=node))
    if bias_value is not None or bool(new_bias.any()):
        inputs.append(context.rounded(new_bias, exact_bias, f"{bias_name}_folded", before=node))
    context.replace_op(node, linear.op_type, inputs, linear.attributes, linear.domain)
    node.resize_outputs(1)
    return 1


def output_channels(linear: ir.Node, weight: np.ndarray) -> int | None:
    """Number of output channels of a Conv, ConvTranspose or Gemm."""
    if linear.op_type == "Conv":
        return int(weight.shape[0])
    if linear.op_type == "ConvTranspose":
        return int(weight.shape[1] * attribute(linear, "group", 1))
    if weight.ndim != 2:
        return None
    return int(weight.shape[0] if attribute(linear, "transB", 0) else weight.shape[1])


def _scaled(linear: ir.Node, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    if linear.op_type == "Conv" or (linear.op_type == "Gemm" and attribute(linear, "transB", 0)):
        factor = scale.reshape(-1, *[1] * (weight.ndim - 1))
    elif linear.op_type == "Gemm":
        factor = scale.reshape(1, -1)
    else:  # ConvTranspose: [in, out/group, ...], where group g takes the in-channels of slice g
        group = attribute(linear, "group", 1)
        wide = np.repeat(scale.reshape(group, -1), weight.shape[0] // group, axis=0)
        factor = wide.reshape(weight.shape[0], weight.shape[1], *[1] * (weight.ndim - 2))
    if uniform(weight) and bool((scale == scale[0]).all()):
        one = np.asarray(np.asarray(weight.reshape(-1)[:1], np.float64) * scale[:1]).astype(weight.dtype)
        return np.broadcast_to(one.reshape((1,) * weight.ndim), weight.shape)
    if linear.op_type == "Conv" and weight.size > 1 and not any(weight.strides[1:]):
        # One number for each channel, repeated: stays so.
        rows = np.asarray(weight[:, :1].reshape(len(weight), -1)[:, :1], np.float64).reshape(-1) * scale
        return np.broadcast_to(rows.astype(weight.dtype).reshape(factor.shape), weight.shape)
    if weight.dtype == np.float32:
        # float32 times a float64 factor, rounded once; the factor alone would be rounded before otherwise.
        return np.asarray(weight * factor, np.float32)
    return np.asarray(np.asarray(weight, np.float64) * factor, weight.dtype)


def uniform(array: np.ndarray) -> bool:
    """True for the zero-stride arrays that a ConstantOfShape stands for."""
    return array.size > 1 and not any(array.strides)

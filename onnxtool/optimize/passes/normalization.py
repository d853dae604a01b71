"""Normalizations that exporters take apart, recovered as the opset's own operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.optimize.context import PassContext
from onnxtool.optimize.facts import integers, sizes_of
from onnxtool.optimize.levels import Level
from onnxtool.optimize.nodes import attribute, producer, rank_of, sole_use
from onnxtool.optimize.patterns import near, scalar

_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


@dataclass(frozen=True)
class _Found:
    """x normalized over its last dim: by its deviation, or (root mean square) by itself."""

    source: ir.Value
    epsilon: float


class FuseLayerNorm:
    """Mean, deviation, variance, root and quotient become LayerNormalization (opset 17 and newer)."""

    name = "fuse-layernorm"
    level = Level.EXTENDED

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Start from the quotient; scale and bias that follow are taken along."""
        if context.opset < 17:
            return 0
        count = 0
        for node in context.nodes(model, "Div", "Mul"):
            if node.graph is None:
                continue
            found = _deviation_over_root(node, context)
            if found is not None:
                count += _build(node, found, "LayerNormalization", context)
        return count


class FuseRMSNorm:
    """x over the root of its mean square becomes RMSNormalization (opset 23 and newer)."""

    name = "fuse-rmsnorm"
    level = Level.EXTENDED

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Start from the quotient; the scale that follows is taken along."""
        if context.opset < 23:
            return 0
        count = 0
        for node in context.nodes(model, "Div", "Mul"):
            if node.graph is None:
                continue
            for data, root in _quotients(node):
                epsilon = _root_mean_square(root, data, context)
                if epsilon is not None and _build(node, _Found(data, epsilon), "RMSNormalization", context):
                    count += 1
                    break
        return count


def _quotients(node: ir.Node) -> list[tuple[ir.Value, ir.Value]]:
    """(numerator, denominator) of a Div, or of a Mul by Reciprocal or by Div(1, ...)."""
    found = []
    if node.op_type == "Div" and node.inputs[0] is not None and node.inputs[1] is not None:
        found.append((node.inputs[0], node.inputs[1]))
    if node.op_type == "Mul":
        for first, second in ((0, 1), (1, 0)):
            inverse = producer(node.inputs[second], "Reciprocal")
            data = node.inputs[first]
            if inverse is not None and inverse.inputs[0] is not None and data is not None:
                found.append((data, inverse.inputs[0]))
    return found


def _root_mean_square(value: ir.Value, data: ir.Value, context: PassContext) -> float | None:
    """Epsilon, when value = Sqrt(ReduceMean(data ** 2, -1) + epsilon)."""
    root = producer(value, "Sqrt")
    add = producer(root.inputs[0], "Add") if root is not None else None
    if add is None:
        return None
    for first, second in ((0, 1), (1, 0)):
        epsilon, mean = scalar(add.inputs[second], context), producer(add.inputs[first], "ReduceMean")
        if epsilon is not None and mean is not None and _over_last(mean) and _is_square(mean.inputs[0], data, context):
            return epsilon
    return None


def _is_square(value: ir.Value | None, data: ir.Value, context: PassContext) -> bool:
    power = producer(value, "Pow")
    if power is not None:
        return power.inputs[0] is data and near(scalar(power.inputs[1], context), 2.0)
    times = producer(value, "Mul")
    return times is not None and times.inputs[0] is data and times.inputs[1] is data


def _over_last(mean: ir.Node) -> bool:
    axes = attribute(mean, "axes") or (integers(mean.inputs[1]) if len(mean.inputs) > 1 else None)
    rank = rank_of(mean.inputs[0])
    if axes is None or len(axes) != 1 or rank is None or not attribute(mean, "keepdims", 1):
        return False
    return int(axes[0]) in (-1, rank - 1)


def _deviation_over_root(node: ir.Node, context: PassContext) -> _Found | None:
    for deviation, root in _quotients(node):
        subtraction = producer(deviation, "Sub")
        if subtraction is None or subtraction.inputs[0] is None:
            continue
        source, mean = subtraction.inputs[0], producer(subtraction.inputs[1], "ReduceMean")
        if mean is None or mean.inputs[0] is not source or not _over_last(mean):
            continue
        epsilon = _root_mean_square(root, deviation, context)
        if epsilon is None:
            # TorchScript computes the deviation twice: once for the variance, once for the quotient. Common
            # subexpressions have made them one by now, unless the model asks for both.
            continue
        return _Found(source, epsilon)
    return None


def _build(node: ir.Node, found: _Found, op_type: str, context: PassContext) -> int:
    sizes = sizes_of(found.source)
    if not sizes or not isinstance(sizes[-1], int) or found.source.dtype not in _TYPES:
        return 0
    width = sizes[-1]
    last, scale = _constant_step(node, "Mul", width, context)
    bias = None
    if op_type == "LayerNormalization":
        last, bias = _constant_step(last, "Add", width, context)
    if scale is None:
        kind = found.source.dtype.numpy()
        scale = context.initializer(np.ones(width, kind), f"{node.outputs[0].name}_scale")
    inputs = [found.source, scale, *([bias] if bias is not None else [])]
    settings = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", found.epsilon)]
    context.morph(last, op_type, inputs, settings)
    return 1


def _constant_step(node: ir.Node, op_type: str, width: int, context: PassContext) -> tuple[ir.Node, ir.Value | None]:
    """The node after `node` and its constant, when it is `op_type` with a row of `width` numbers."""
    after = sole_use(node.outputs[0])
    if after is None or after.op_type != op_type or after.domain != "" or len(after.inputs) != 2:
        return node, None
    other = after.inputs[1] if after.inputs[0] is node.outputs[0] else after.inputs[0]
    if other is None or not context.is_constant(other) or sizes_of(other) != (width,):
        return node, None
    return after, other

"""Normalizations that exporters take apart, recovered as the opset's own operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.model.operators.layout_rules import axes_of
from onnxtool.model.operators.value_facts import rank_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.patterns.operands import near, pairs, scalar

_MEANS = ("ReduceMean", "GlobalAveragePool")
_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


@dataclass(frozen=True)
class Norm:
    """x normalized over its last dim, by its deviation or (root mean square) by itself.

    Attributes:
        source: x.
        epsilon: what is added to the variance, or to the mean square.
        last: the node that gives the result.
        scale: a constant row; None where there is none.
        bias: likewise.
    """

    source: ir.Value
    epsilon: float
    last: ir.Node
    scale: ir.Value | None
    bias: ir.Value | None = None

    def scale_or_ones(self, context: PassContext) -> ir.Value:
        """The scale, as the operators ask for one."""
        if self.scale is not None:
            return self.scale
        sizes, dtype = sizes_of(self.source), self.source.dtype
        assert sizes is not None and dtype is not None
        return context.initializer(np.ones(int(sizes[-1]), dtype.numpy()), f"{self.last.outputs[0].name}_scale")  # type: ignore[arg-type]


class FuseLayerNorm(NodeRewrite):
    """(x - mean(x)) / sqrt(var(x) + e) * s + b -> LayerNormalization(x, s, b) (opset 17 and newer)."""

    name = "fuse-layernorm"
    level = Level.EXTENDED
    operators = ("Div", "Mul", "Add")
    opset = 17

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Start from the quotient, or from the sum of Keras's form; scale and bias are taken along."""
        found = _keras_norm(node, context) if node.op_type == "Add" else _layer_norm(node, context)
        return _replace(found, "LayerNormalization", context)


class FuseRMSNorm(NodeRewrite):
    """x / sqrt(mean(x * x) + e) * s -> RMSNormalization(x, s) (opset 23 and newer)."""

    name = "fuse-rmsnorm"
    level = Level.EXTENDED
    operators = ("Div", "Mul")
    opset = 23

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Start from the quotient; the scale that follows is taken along."""
        return _replace(rms_norm(node, context), "RMSNormalization", context)


def _replace(found: Norm | None, op_type: str, context: PassContext) -> int:
    if found is None:
        return 0
    inputs = [found.source, found.scale_or_ones(context), *([found.bias] if found.bias is not None else [])]
    settings = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", found.epsilon)]
    context.replace_op(found.last, op_type, inputs, settings)
    return 1


def _layer_norm(node: ir.Node, context: PassContext) -> Norm | None:
    """Layer normalization whose quotient is `node`."""
    for deviation, root in _quotients(node, context):
        subtraction = producer(deviation, "Sub")
        if subtraction is None or subtraction.inputs[0] is None:
            continue
        source, mean = subtraction.inputs[0], producer(subtraction.inputs[1], *_MEANS)
        if mean is None or mean.inputs[0] is not source or not _over_last(mean):
            continue
        # TorchScript computes the deviation twice: once for the variance, once for the quotient. Common
        # subexpressions have made them one by now, unless the model asks for both.
        epsilon = _root_mean_square(root, deviation, context)
        width = _width(source)
        if epsilon is not None and width is not None:
            last, scale = constant_step(node, "Mul", width, context)
            last, bias = constant_step(last, "Add", width, context)
            return Norm(source, epsilon, last, scale, bias)
    return None


def _keras_norm(node: ir.Node, context: PassContext) -> Norm | None:
    """X * k + (bias - mean * k) with k = scale / root, as tf2onnx writes Keras's layer; `node` is the sum."""
    for scaled, shifted in pairs(node):
        inner, bias = _plus_row(shifted, context)
        first, second = producer(scaled, "Mul"), producer(inner, "Mul")
        if first is None or second is None:
            continue
        for source, factor in pairs(first):
            mean = next((producer(m, "Neg") for m, k in pairs(second) if k is factor), None)
            width, known = _width(source), _scaled_root(factor, context)
            if mean is None or width is None or known is None or sizes_of(known[1]) not in (None, (width,)):
                continue
            epsilon = _variance_of(source, mean.inputs[0], known[0], context)
            if epsilon is not None and (bias is None or sizes_of(bias) == (width,)):
                return Norm(source, epsilon, node, known[1], bias)
    return None


def _scaled_root(factor: ir.Value, context: PassContext) -> tuple[ir.Value, ir.Value | None] | None:
    """The root and the scale of scale / root."""
    product = producer(factor, "Mul")
    options = [(factor, None)] if product is None else [(f, _row(r, context)) for f, r in pairs(product)]
    for value, row in options:
        inverse = producer(value, "Reciprocal")
        if inverse is not None and inverse.inputs[0] is not None and (product is None or row is not None):
            return inverse.inputs[0], row
    return None


def _plus_row(value: ir.Value, context: PassContext) -> tuple[ir.Value, ir.Value | None]:
    add = producer(value, "Add")
    for data, other in pairs(add) if add is not None else ():
        row = _row(other, context)
        if row is not None:
            return data, row
    return value, None


def _row(value: ir.Value, context: PassContext) -> ir.Value | None:
    """A constant row, without leading dims of 1."""
    sizes = sizes_of(value)
    if not sizes or not context.is_constant(value) or any(s != 1 for s in sizes[:-1]):
        return None
    array = context.array(value) if len(sizes) > 1 else None
    return value if array is None else context.initializer(array.reshape(-1), f"{value.name}_row")


def _variance_of(source: ir.Value, mean: ir.Value | None, root: ir.Value, context: PassContext) -> float | None:
    """Epsilon, when `mean` is that of the source and `root` that of its variance plus epsilon."""
    average = producer(mean, *_MEANS)
    if average is None or average.inputs[0] is not source or not _over_last(average):
        return None
    for use in source.uses():
        if use.node.op_type == "Sub" and use.node.domain == "" and use.node.inputs[1] is mean and use.idx == 0:
            return _root_mean_square(root, use.node.outputs[0], context)
    return None


def rms_norm(node: ir.Node, context: PassContext) -> Norm | None:
    """Normalization by the root mean square whose quotient is `node`."""
    for data, root in _quotients(node, context):
        epsilon, width = _root_mean_square(root, data, context), _width(data)
        if epsilon is not None and width is not None:
            return Norm(data, epsilon, *constant_step(node, "Mul", width, context))
    return None


def _width(source: ir.Value) -> int | None:
    """The last dim, when it is a number and the operators take the type."""
    sizes = sizes_of(source)
    if not sizes or not isinstance(sizes[-1], int) or source.dtype not in _TYPES:
        return None
    return sizes[-1]


def _quotients(node: ir.Node, context: PassContext) -> list[tuple[ir.Value, ir.Value]]:
    """(numerator, denominator) of a Div, or of a Mul by Reciprocal or by Div(1, ...)."""
    found = []
    if node.op_type == "Div" and node.inputs[0] is not None and node.inputs[1] is not None:
        found.append((node.inputs[0], node.inputs[1]))
    if node.op_type == "Mul":
        for first, second in ((0, 1), (1, 0)):
            inverse, data = producer(node.inputs[second], "Reciprocal", "Div"), node.inputs[first]
            below = None if inverse is None else inverse.inputs[-1]
            if inverse is None or below is None or data is None:
                continue
            if inverse.op_type == "Reciprocal" or scalar(inverse.inputs[0], context) == 1.0:
                found.append((data, below))
    return found


def _root_mean_square(value: ir.Value, data: ir.Value, context: PassContext) -> float | None:
    """Epsilon, when value = Sqrt(ReduceMean(data ** 2, -1) + epsilon)."""
    root = producer(value, "Sqrt")
    add = producer(root.inputs[0], "Add") if root is not None else None
    if add is None:
        return None
    for first, second in ((0, 1), (1, 0)):
        epsilon, mean = scalar(add.inputs[second], context), producer(add.inputs[first], *_MEANS)
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
    if mean.op_type == "GlobalAveragePool":
        return rank_of(mean.inputs[0]) == 3  # what tf2onnx writes for a mean over the last of three dims
    axes, rank = axes_of(mean), rank_of(mean.inputs[0])
    if axes is None or len(axes) != 1 or rank is None or not attribute(mean, "keepdims", 1):
        return False
    return int(axes[0]) in (-1, rank - 1)


def constant_step(node: ir.Node, op_type: str, width: int, context: PassContext) -> tuple[ir.Node, ir.Value | None]:
    """The node after `node` and its constant, when it is `op_type` with a row of `width` numbers."""
    after = sole_use(node.outputs[0])
    if after is None or after.op_type != op_type or after.domain != "" or len(after.inputs) != 2:
        return node, None
    other = after.inputs[1] if after.inputs[0] is node.outputs[0] else after.inputs[0]
    if other is None or not context.is_constant(other) or sizes_of(other) != (width,):
        return node, None
    return after, other

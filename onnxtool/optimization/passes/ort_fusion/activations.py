"""The runtime's own activations."""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, producer, sole_use
from onnxtool.model.operators.value_facts import sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import MICROSOFT, PassContext
from onnxtool.optimization.passes.cleanup.operator_chains import clip_bounds
from onnxtool.optimization.passes.fusion.activations import gelu_of
from onnxtool.optimization.patterns.operands import pairs, scalar


class FuseBiasGelu(NodeRewrite):
    """Gelu(x + b) -> the runtime's BiasGelu(x, b); Gelu in parts -> its FastGelu or Gelu."""

    name = "fuse-bias-gelu"
    level = Level.ALL
    operators = ("Gelu", "Mul")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """A whole Gelu without a row in front of it stays: it is the opset's own."""
        found = gelu_of(node, context) if node.op_type == "Mul" else _whole(node)
        if found is None or found[0].dtype != ir.DataType.FLOAT:
            return 0
        source, form = found
        data, row = _biased(source, context)
        if row is None and node.op_type == "Gelu":
            return 0
        name = "FastGelu" if form == "tanh" else "Gelu" if row is None else "BiasGelu"
        context.replace_op(node, name, [data] if row is None else [data, row], (), MICROSOFT)
        return 1


def _whole(node: ir.Node) -> tuple[ir.Value, str] | None:
    source = node.inputs[0]
    return None if source is None else (source, str(attribute(node, "approximate", "none")))


def _biased(source: ir.Value, context: PassContext) -> tuple[ir.Value, ir.Value | None]:
    """What a constant row is added to, and the row; the value itself and None otherwise."""
    add, sizes = producer(source, "Add"), sizes_of(source)
    readers = {use.node for use in source.uses()}
    if add is None or not sizes or source.is_graph_output():
        return source, None
    # Parts of one Gelu read the sum more than once; they all go.
    if len(readers) > 1 and any(r.op_type not in ("Mul", "Div", "Pow", "Add") for r in readers):
        return source, None
    for data, row in pairs(add):
        if context.is_constant(row) and sizes_of(row) == sizes[-1:] and sizes_of(data) == sizes:
            return data, row
    return source, None


class FuseQuickGelu(NodeRewrite):
    """x * Sigmoid(number * x), SiLU included -> the runtime's QuickGelu(x)."""

    name = "fuse-quick-gelu"
    level = Level.ALL
    operators = ("Mul",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Start from the product; the sigmoid must serve it alone."""
        for source, gate in pairs(node):
            sigmoid = producer(gate, "Sigmoid")
            if sigmoid is None or sole_use(gate) is not node or source.dtype != ir.DataType.FLOAT:
                continue
            alpha = _factor(sigmoid.inputs[0], source, context)
            if alpha is not None:
                context.replace_op(node, "QuickGelu", [source], [ir.AttrFloat32("alpha", alpha)], MICROSOFT)
                return 1
        return 0


def _factor(value: ir.Value | None, source: ir.Value, context: PassContext) -> float | None:
    """The number by which `value` is a multiple of `source`."""
    if value is source:
        return 1.0
    node = producer(value, "Mul")
    for one, other in pairs(node) if node is not None else ():
        if one is source and sizes_of(node.outputs[0] if node is not None else None) == sizes_of(source):
            return scalar(other, context)
    return None


class FuseConvActivation(NodeRewrite):
    """Relu(Conv(x, W, b) + z) -> the runtime's FusedConv(x, W, b, z), with or without z; other activations too."""

    name = "fuse-conv-activation"
    level = Level.ALL
    operators = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Relu, Sigmoid, Tanh, LeakyRelu, HardSigmoid and constant Clip; float only."""
        data = node.inputs[0]
        if data is None or data.dtype != ir.DataType.FLOAT or sole_use(data) is not node:
            return 0
        settings = _activation(node, context)
        if settings is None:
            return 0
        conv, shortcut = producer(data, "Conv"), None
        if conv is None and is_op(node, "Relu"):
            conv, shortcut = _conv_plus_shortcut(data)
        if conv is None:
            return 0
        inputs = list(conv.inputs)
        if shortcut is not None:
            inputs += [None] * (3 - len(inputs)) + [shortcut]
        context.replace_op(node, "FusedConv", inputs, [*conv.attributes.values(), *settings], MICROSOFT)
        return 1


def _activation(node: ir.Node, context: PassContext) -> list[ir.Attr] | None:
    name = ir.AttrString("activation", node.op_type)
    if node.op_type == "LeakyRelu":
        return [name, ir.AttrFloat32s("activation_params", [attribute(node, "alpha", 0.01)])]
    if node.op_type == "HardSigmoid":
        values = [attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)]
        return [name, ir.AttrFloat32s("activation_params", values)]
    if node.op_type == "Clip":
        bounds = clip_bounds(node, context)
        if bounds is None or not all(math.isfinite(b) for b in bounds):
            return None
        return [name, ir.AttrFloat32s("activation_params", bounds)]
    return [name]


def _conv_plus_shortcut(value: ir.Value) -> tuple[ir.Node | None, ir.Value | None]:
    """The Conv and the other operand of an Add of two tensors of one shape."""
    add = producer(value, "Add")
    if add is None:
        return None, None
    for index in (1, 0):
        conv, other = producer(add.inputs[index], "Conv"), add.inputs[1 - index]
        if conv is None or other is None or sole_use(conv.outputs[0]) is not add:
            continue
        if sizes_of(other) is not None and sizes_of(other) == sizes_of(conv.outputs[0]):
            return conv, other
    return None, None

"""The runtime's convolution with the activation built in."""

from __future__ import annotations

import math

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, producer, sole_use
from onnxtool.model.operators.value_facts import sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.operator_chains import clip_bounds
from onnxtool.optimization.passes.ort_fusion._insert import MICROSOFT


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

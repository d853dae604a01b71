"""Activations that exporters take apart, recovered as the opset's own operators."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.operator_chains import clip_bounds
from onnxtool.optimization.patterns.operands import factors, near, operand, scalar


class FuseGelu(NodeRewrite):
    """x * 0.5 * (1 + erf(x / sqrt(2))), and the tanh form -> Gelu(x); below opset 20, parts in the usual order."""

    # torch's newer exporter writes x * (0.5 * (1 + erf)), of which the runtime makes no single operator at load.
    name = "fuse-gelu"
    level = Level.EXTENDED
    operators = ("Mul",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Start from the last Mul, whose factors are x, 0.5 and the bracket, in any order."""
        found = gelu_of(node, context)
        if found is None:
            return 0
        if context.opset >= 20:
            context.replace_op(node, "Gelu", [found[0]], [ir.AttrString("approximate", found[1])])
            return 1
        return _arrange(node, found[0], context)


def _arrange(node: ir.Node, source: ir.Value, context: PassContext) -> int:
    """X * (0.5 * bracket) as (x * bracket) * 0.5, and a bracket of 1 - erf(-z) as 1 + erf(z)."""
    parts = factors(node.outputs[0])
    half = next((p for p in parts if p is not None and near(scalar(p, context), 0.5)), None)
    bracket = next((p for p in parts if p is not source and p is not half), None)
    minus = producer(bracket, "Sub")
    beside = any(half in m.inputs and bracket in m.inputs for v in node.inputs if (m := producer(v, "Mul")))
    if half is None or bracket is None or (minus is None and not beside):
        return 0
    base = node.outputs[0].name or "gelu"
    if minus is not None:
        kind = (source.dtype or ir.DataType.FLOAT).numpy()
        root = context.initializer(np.array(math.sqrt(2.0), kind), f"{base}_root")
        scaled = _like(context.insert(node, "Div", [source, root], base=f"{base}_scaled"), source)
        error = _like(context.insert(node, "Erf", [scaled], base=f"{base}_erf"), source)
        bracket = _like(context.insert(node, "Add", [error, minus.inputs[0]], base=f"{base}_bracket"), source)
    product = _like(context.insert(node, "Mul", [source, bracket], base=f"{base}_product"), source)
    context.replace_op(node, "Mul", [product, half])
    return 1


def _like(value: ir.Value, source: ir.Value) -> ir.Value:
    value.dtype = source.dtype or ir.DataType.FLOAT
    return value


def gelu_of(node: ir.Node, context: PassContext) -> tuple[ir.Value, str] | None:
    """What a Mul gives the Gelu of, and whether by "none" or the "tanh" approximation; None when it does not."""
    parts = factors(node.outputs[0])
    if len(parts) != 3:
        return None
    for index, value in enumerate(parts):
        rest = [p for i, p in enumerate(parts) if i != index]
        half = [p for p in rest if near(scalar(p, context), 0.5)]
        source = next((p for p in rest if not any(p is h for h in half)), None)
        if len(half) != 1 or source is None or value is None or sole_use(value) is None:
            continue
        form = _bracket(value, source, context)
        if form is not None:
            return source, form
    return None


def _bracket(value: ir.Value, source: ir.Value, context: PassContext) -> str | None:
    rest = producer(value, "Sub")
    if rest is not None and near(scalar(rest.inputs[0], context), 1.0):  # 1 - erf(-z), which is erfc(-z): Keras
        erf = producer(rest.inputs[1], "Erf")
        return "none" if erf is not None and _over_root_two(erf.inputs[0], context, negated=True) is source else None
    inner = operand(producer(value, "Add"), "Add", 1.0, context)
    if (erf := producer(inner, "Erf")) is not None:
        return "none" if _over_root_two(erf.inputs[0], context) is source else None
    if (tanh := producer(inner, "Tanh")) is not None:
        scaled = tanh.inputs[0].producer() if tanh.inputs[0] is not None else None
        sum_value = operand(scaled, "Mul", math.sqrt(2.0 / math.pi), context)
        add = producer(sum_value, "Add")
        for first, second in ((0, 1), (1, 0)) if add is not None else ():
            assert add is not None
            cube = operand(producer(add.inputs[second], "Mul"), "Mul", 0.044715, context)
            if add.inputs[first] is source and _is_cube(cube, source, context):
                return "tanh"
    return None


def _over_root_two(value: ir.Value | None, context: PassContext, *, negated: bool = False) -> ir.Value | None:
    """The x of x / sqrt(2), or of -x / sqrt(2) with the sign before or after the division."""
    if negated and (outer := producer(value, "Neg")) is not None:
        value, negated = outer.inputs[0], False
    scaled, sign = value.producer() if value is not None else None, 1.0
    if negated and operand(scaled, "Mul", -math.sqrt(0.5), context) is not None:
        negated, sign = False, -1.0
    plain = operand(scaled, "Mul", sign * math.sqrt(0.5), context)
    plain = plain or operand(scaled, "Div", math.sqrt(2.0), context, ordered=True)
    if not negated:
        return plain
    inner = producer(plain, "Neg")
    return inner.inputs[0] if inner is not None else None


def _is_cube(value: ir.Value | None, source: ir.Value, context: PassContext) -> bool:
    power = producer(value, "Pow")
    if power is not None:
        return power.inputs[0] is source and near(scalar(power.inputs[1], context), 3.0)
    return [p is source for p in factors(value)] == [True, True, True]


class FuseHardSwish:
    """Clip(x + 3, 0, 6) / 6 -> HardSigmoid(x); times x -> HardSwish(x) (opset 14 and newer)."""

    name = "fuse-hardswish"
    level = Level.EXTENDED

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Both orders: the division before and after the product with x."""
        count = 0
        for node in context.nodes(model, "Mul", "Div"):
            if node.graph is not None:
                count += self._sigmoid(node, context) or self._swish(node, context)
        if context.opset >= 14:
            for node in context.nodes(model, "Mul"):
                count += self._product(node, context)
        return count

    def _sigmoid(self, node: ir.Node, context: PassContext) -> int:
        source = _relu6_of_shifted(_sixth(node, context), context)
        if source is None:
            return 0
        context.replace_op(node, "HardSigmoid", [source], _SIXTH)
        return 1

    def _swish(self, node: ir.Node, context: PassContext) -> int:
        """(x * relu6(x + 3)) / 6."""
        inner = producer(_sixth(node, context), "Mul")
        if inner is None or sole_use(inner.outputs[0]) is not node:
            return 0
        for first, second in ((0, 1), (1, 0)):
            source = inner.inputs[first]
            if source is None or _relu6_of_shifted(inner.inputs[second], context) is not source:
                continue
            if context.opset >= 14:
                context.replace_op(node, "HardSwish", [source])
            else:
                gate = context.insert(node, "HardSigmoid", [source], _SIXTH, base=f"{node.outputs[0].name}_gate")
                gate.dtype = source.dtype or ir.DataType.FLOAT
                context.replace_op(node, "Mul", [source, gate])
            return 1
        return 0

    def _product(self, node: ir.Node, context: PassContext) -> int:
        for first, second in ((0, 1), (1, 0)):
            gate = producer(node.inputs[first], "HardSigmoid")
            if gate is None or gate.inputs[0] is not node.inputs[second] or sole_use(gate.outputs[0]) is not node:
                continue
            if near(attribute(gate, "alpha", 0.2), 1 / 6) and near(attribute(gate, "beta", 0.5), 0.5):
                context.replace_op(node, "HardSwish", [gate.inputs[0]])
                return 1
        return 0


_SIXTH = (ir.AttrFloat32("alpha", 1 / 6), ir.AttrFloat32("beta", 0.5))


def _sixth(node: ir.Node, context: PassContext) -> ir.Value | None:
    return operand(node, "Div", 6.0, context, ordered=True) or operand(node, "Mul", 1 / 6, context)


def _relu6_of_shifted(value: ir.Value | None, context: PassContext) -> ir.Value | None:
    """X of Clip(x + 3, 0, 6)."""
    clip = producer(value, "Clip")
    if clip is None or value is None or sole_use(value) is None or clip_bounds(clip, context) != (0.0, 6.0):
        return None
    add = producer(clip.inputs[0], "Add")
    return None if add is None or sole_use(add.outputs[0]) is not clip else operand(add, "Add", 3.0, context)

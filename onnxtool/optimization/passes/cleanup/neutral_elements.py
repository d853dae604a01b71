"""Arithmetic with a neutral element: x * 1, x + 0, x and true; and inputs that say what is understood anyway."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import is_op
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.no_ops import same_shape
from onnxtool.optimization.patterns.operands import uniform_value

# Operator -> (neutral number, whether it may stand on the left too).
_EXACT = {"Mul": (1.0, True), "Div": (1.0, False), "Pow": (1.0, False), "And": (1.0, True), "Or": (0.0, True)}
# Inputs of recurrent operators that count as zeros when they are left out: bias, initial_h, initial_c, peepholes.
_ZEROS_IF_ABSENT = {"LSTM": (3, 5, 6, 7), "GRU": (3, 5), "RNN": (3, 5)}
_ADDITIVE = {"Add": (0.0, True), "Sub": (0.0, False)}


class EliminateNeutral:
    """x * 1, x / 1, x ** 1, x and true, x or false, integer x + 0, Where(true, x, y) -> x; zero states -> none."""

    name = "eliminate-neutral"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """The result must have the shape of x."""
        count = 0
        for node in context.nodes(model, *_EXACT, *_ADDITIVE):
            neutral = _EXACT.get(node.op_type) or _ADDITIVE[node.op_type]
            dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
            if node.op_type in _ADDITIVE and (dtype is None or not dtype.is_integer()):
                continue
            count += _eliminate(node, *neutral, context)
        for node in context.nodes(model, "Where"):
            condition = uniform_value(node.inputs[0], context)
            chosen = None if condition is None else node.inputs[1 if condition else 2]
            if chosen is not None and same_shape(chosen, node.outputs[0]):
                count += context.bypass(node, chosen)
        for node in context.nodes(model, *_ZEROS_IF_ABSENT):
            count += _leave_out(node, _ZEROS_IF_ABSENT[node.op_type], context)
        return count


class EliminateAddZero:
    """x + 0, x - 0 -> x for floats: only the sign of a zero may change."""

    name = "eliminate-add-zero"
    level = Level.EXTENDED

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Untrained biases are all zero, and so are those of layers without one in some exports."""
        return sum(_eliminate(n, *_ADDITIVE[n.op_type], context) for n in context.nodes(model, *_ADDITIVE))


def _leave_out(node: ir.Node, places: tuple[int, ...], context: PassContext) -> int:
    """Exporters make zero states of the batch's size, which takes several nodes to work out."""
    count = 0
    for index in places:
        if index < len(node.inputs) and node.inputs[index] is not None and _is_zero(node.inputs[index], context):
            node.replace_input_with(index, None)
            count += 1
    return count


def _is_zero(value: ir.Value | None, context: PassContext) -> bool:
    return uniform_value(value, context) == 0.0


def _eliminate(node: ir.Node, number: float, either_side: bool, context: PassContext) -> int:
    if node.graph is None or len(node.inputs) != 2:
        return 0
    for index in (1, 0) if either_side else (1,):
        source = node.inputs[1 - index]
        if source is None or source.dtype is None or not same_shape(source, node.outputs[0]):
            continue
        # Pow takes an exponent of another type.
        if uniform_value(node.inputs[index], context) == number and (is_op(node, "Pow") or _same_type(node)):
            return context.bypass(node, source)
    return 0


def _same_type(node: ir.Node) -> bool:
    left, right = node.inputs
    return left is not None and right is not None and left.dtype == right.dtype

"""Nodes that hand their input on unchanged."""

# ruff: noqa: ARG001  (every check has one signature)

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op
from onnxtool.model.operators.layout_rules import axes_of, slice_bounds
from onnxtool.model.operators.value_facts import rank_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.patterns.operands import uniform_value

_HUGE = 1 << 31  # exporters write an end past every real dim as INT64_MAX, INT32_MAX or so


class EliminateIdentity(NodeRewrite):
    """Identity(x), inference Dropout(x), Concat, Sum, Max, Min, Mean of x alone -> x."""

    name = "eliminate-identity"
    level = Level.BASIC
    operators = ("Identity", "Dropout", "Concat", "Sum", "Max", "Min", "Mean")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Let users of the output read the input."""
        source = node.inputs[0] if node.inputs else None
        if source is None or len(node.outputs) == 0:
            return 0
        if node.op_type == "Dropout":
            passes = _inactive_dropout(node, context)
        else:
            passes = node.op_type == "Identity" or len(node.inputs) == 1
        if passes:
            return context.bypass(node, source)
        return 0


def _inactive_dropout(node: ir.Node, context: PassContext) -> bool:
    if any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
        return False  # somebody reads the mask
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    training = context.array(node.inputs[2])
    return training is not None and not bool(training.reshape(-1)[0])


def same_shape(a: ir.Value | None, b: ir.Value | None) -> bool:
    """True when both shapes are known and equal for certain, as numbers or as expressions."""
    left, right = sizes_of(a), sizes_of(b)
    return left is not None and left == right


def _cast(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    if source.dtype is None or source.dtype == ir.DataType.UNDEFINED:
        return False
    return bool(source.dtype == attribute(node, "to"))


def _cast_like(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    like = node.inputs[1]
    return like is not None and source.dtype is not None and source.dtype == like.dtype


def _reshape(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    if same_shape(source, node.outputs[0]):
        return True
    wanted, given = context.array(node.inputs[1] if len(node.inputs) > 1 else None, limit=64), sizes_of(source)
    if wanted is None or given is None or wanted.ndim != 1 or len(wanted) != len(given):
        return False
    # Every dim named or copied (0), and at most one left to -1: that one must then be the same as well.
    zero_copies = not attribute(node, "allowzero", 0)
    open_dims = 0
    for want, have in zip(wanted.tolist(), given, strict=True):
        if want == -1:
            open_dims += 1
        elif not (want == have or (want == 0 and zero_copies)):
            return False
    return open_dims <= 1 and not (open_dims and any(d == 0 for d in given))


def _same(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    return same_shape(source, node.outputs[0])


def _transpose(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    perm = attribute(node, "perm")
    if perm is None:
        rank = rank_of(source)
        return rank is not None and rank < 2
    return list(perm) == list(range(len(perm)))


def _tile(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    repeats = context.array(node.inputs[1], limit=64)
    return repeats is not None and repeats.ndim == 1 and bool((repeats == 1).all())


def _pad(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    pads = attribute(node, "pads", attribute(node, "paddings"))
    if pads is None and len(node.inputs) > 1:
        array = context.array(node.inputs[1], limit=64)
        pads = None if array is None else array.tolist()
    return pads is not None and not any(pads)


def _slice(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    bounds = slice_bounds(node)
    if bounds is None or any(s != 1 for s in bounds.steps) or any(s != 0 for s in bounds.starts):
        return False
    whole = all(isinstance(e, int) and e >= _HUGE - 1 for e in bounds.ends)
    return whole or same_shape(source, node.outputs[0])


def _squeeze(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    if rank_of(source) == 0 and node.op_type == "Squeeze":
        return True
    return axes_of(node) == () and node.op_type == "Unsqueeze"


def _reduce(node: ir.Node, source: ir.Value, context: PassContext) -> bool:
    # ReduceX over no axes with noop_with_empty_axes=1 is an identity (except for the L2/log/square forms).
    return bool(attribute(node, "noop_with_empty_axes", 0)) and axes_of(node) == ()


_CHECKS: dict[str, Callable[[ir.Node, ir.Value, PassContext], bool]] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "Reshape": _reshape,
    "Flatten": _same,
    "Transpose": _transpose,
    "Expand": _same,
    "Tile": _tile,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _same,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
    "ReduceSum": _reduce,
    "ReduceMean": _reduce,
    "ReduceMax": _reduce,
    "ReduceMin": _reduce,
}


class EliminateNoOps(NodeRewrite):
    """f(x) -> x for a Cast, Reshape, Transpose, Slice, Pad, Expand and the like that changes nothing."""

    name = "eliminate-no-ops"
    level = Level.BASIC
    operators = tuple(_CHECKS)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Check each node against what is known of its shapes and constants."""
        source = node.inputs[0] if node.inputs else None
        if node.graph is not None and source is not None and _CHECKS[node.op_type](node, source, context):
            return context.bypass(node, source)
        return 0


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
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is not None and uniform_value(value, context) == 0:
            node.replace_input_with(index, None)
            count += 1
    return count


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

"""Scalar multiplications and additions before a Conv go into its weights and bias.

Networks with learnable affine blocks (PP-LCNet and its kin) have a Mul and an Add of one number after every
activation. In float they are two passes over memory; in integers, two more roundings.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import new_initializer
from onnxtool.model.ir.queries import attribute, float_constant, is_op, sole_use
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.fusion.activations import gelu_of


def fold_affine(model: ir.Model) -> None:
    """X * a -> Conv(w) becomes x -> Conv(a w); x + b -> Conv(w, c) becomes x -> Conv(w, c + b sum(w)).

    The addition only where the Conv does not pad: padding is zeros after the addition, not before it. Where it does,
    the factor still moves through the addition: a x + b = a (x + b / a). The half of a Gelu in parts stays where it is:
    without it nobody makes one operator of the parts.
    """
    context = PassContext(model)
    for node in list(model.graph):
        if is_op(node, "Conv") and float_constant(node.inputs[1]) is not None:
            while _fold_one(model.graph, node, context):
                pass


def _fold_one(graph: ir.Graph, conv: ir.Node, context: PassContext) -> bool:
    source = conv.inputs[0]
    before = source.producer() if source is not None else None
    if source is None or before is None or sole_use(source) is not conv:
        return False
    if is_op(before, "Mul") and gelu_of(before, context) is not None:
        return False
    scalar = _scalar_operand(before)
    if scalar is None:
        return False
    live, number = scalar
    if before.op_type == "Mul":
        _scale_weights(graph, conv, number)
    elif _pads(conv):
        return _move_factor_through_add(graph, conv, before, live, number)
    else:
        _add_to_bias(graph, conv, number)
    conv.replace_input_with(0, live)
    graph.remove(before, safe=True)
    return True


def _scalar_operand(node: ir.Node) -> tuple[ir.Value, float] | None:
    """(the other operand, the number) of a Mul or Add with one constant number that leaves the shape alone."""
    if not is_op(node, "Mul", "Add"):
        return None
    for live, constant in (node.inputs, node.inputs[::-1]):
        array = float_constant(constant)
        if (
            array is not None
            and array.size == 1
            and array.ndim <= 1
            and live is not None
            and float_constant(live) is None
        ):
            return live, float(array.reshape(-1)[0])
    return None


def _pads(conv: ir.Node) -> bool:
    return any(attribute(conv, "pads", ())) or attribute(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID")


def _scale_weights(graph: ir.Graph, conv: ir.Node, factor: float) -> None:
    weight = conv.inputs[1]
    array = float_constant(weight)
    assert weight is not None and array is not None
    conv.replace_input_with(1, new_initializer(graph, f"{weight.name}_scaled", array * np.float32(factor)))


def _add_to_bias(graph: ir.Graph, conv: ir.Node, number: float) -> None:
    array = float_constant(conv.inputs[1])
    assert array is not None
    shift = array.astype(np.float64).sum(axis=tuple(range(1, array.ndim))) * number
    old = conv.inputs[2] if len(conv.inputs) > 2 else None
    existing = float_constant(old)
    if existing is not None:
        shift = shift + existing
    bias = new_initializer(graph, f"{conv.name or conv.outputs[0].name}_shifted_bias", shift.astype(np.float32))
    if len(conv.inputs) > 2:
        conv.replace_input_with(2, bias)
    else:
        conv.resize_inputs(3)
        conv.replace_input_with(2, bias)


def _move_factor_through_add(graph: ir.Graph, conv: ir.Node, add: ir.Node, live: ir.Value, number: float) -> bool:
    """Mul(a) -> Add(b) -> padding Conv(w) becomes Add(b / a) -> Conv(a w)."""
    before = live.producer()
    scalar = _scalar_operand(before) if before is not None and before.op_type == "Mul" else None
    if before is None or scalar is None or sole_use(live) is not add or scalar[1] == 0:
        return False
    source, factor = scalar
    moved = new_initializer(graph, f"{add.name or add.outputs[0].name}_moved", np.array(number / factor, np.float32))
    for index in range(2):
        add.replace_input_with(index, source if add.inputs[index] is live else moved)
    _scale_weights(graph, conv, factor)
    graph.remove(before, safe=True)
    return True

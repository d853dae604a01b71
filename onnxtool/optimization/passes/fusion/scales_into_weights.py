"""Multiplications by one number, moved back into the weights they come from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, sole_use
from onnxtool.model.operators.table import operator_of
from onnxtool.model.operators.value_facts import rank_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.fusion.affine import scaled_weight
from onnxtool.optimization.patterns.operands import scalar

Change = Callable[[], None]


class MoveScalesIntoWeights(NodeRewrite):
    """MatMul(x, W) * number -> MatMul(x, W * number), through what only moves data."""

    # The runtime turns the scale of attention scores into a parameter of the product; in the weights it costs nothing.
    name = "move-scales-into-weights"
    level = Level.EXTENDED
    operators = ("Mul", "Div")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Every value on the way back must have a single reader."""
        if node.graph is None or node.outputs[0].is_graph_output():
            return 0
        for index in (0, 1) if node.op_type == "Mul" else (0,):
            data, number = node.inputs[index], scalar(node.inputs[1 - index], context)
            if data is None or data.dtype != ir.DataType.FLOAT or not number:
                continue
            if rank_of(data) != rank_of(node.outputs[0]):
                continue
            changes = _plan(data, node, number if node.op_type == "Mul" else 1.0 / number, context)
            if changes and context.bypass(node, data):
                for change in changes:
                    change()
                return 1
        return 0


def _plan(value: ir.Value | None, reader: ir.Node, factor: float, context: PassContext) -> list[Change] | None:
    """What to change so that `value` becomes `factor` times as large; None when that cannot be done for nothing.

    One operand of a product of two computed tensors takes the factor: the first that can, and where that is not
    possible the second.
    """
    alternatives: list[tuple[ir.Value | None, ir.Node, list[Change]]] = [(value, reader, [])]
    while alternatives:
        value, reader, changes = alternatives.pop()
        node = value.producer() if value is not None else None
        if value is None or node is None or sole_use(value) is not reader:
            continue
        row = operator_of(node)
        if row.moves and row.carried == (0,) and len(node.outputs) == 1:
            alternatives.append((node.inputs[0], node, changes))
        elif is_op(node, "MatMul"):
            if weight := _weight(node, 1, factor, context):
                return changes + weight
            alternatives += [(node.inputs[1], node, changes), (node.inputs[0], node, changes)]
        elif is_op(node, "Gemm"):
            if own := _gemm(node, factor, context):
                return changes + own
        elif is_op(node, "Add"):
            found = next(((i, b) for i in (0, 1) if (b := _weight(node, i, factor, context))), None)
            if found is not None:
                alternatives.append((node.inputs[1 - found[0]], node, changes + found[1]))
    return None


def _gemm(node: ir.Node, factor: float, context: PassContext) -> list[Change] | None:
    if attribute(node, "beta", 1.0) != 1.0:
        return None
    changes = _weight(node, 1, factor, context)
    if changes and len(node.inputs) > 2 and node.inputs[2] is not None:
        more = _weight(node, 2, factor, context)
        return changes + more if more else None
    return changes


def _weight(node: ir.Node, index: int, factor: float, context: PassContext) -> list[Change]:
    change = scaled_weight(node, index, np.asarray(factor), context)
    return [] if change is None else [change]

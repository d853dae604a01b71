"""Reductions."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer
from onnxtool.model.operators.layout_rules import axes_of
from onnxtool.model.operators.table import named
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.operator_chains import permutation


class ReduceBeforeTranspose(NodeRewrite):
    """Reduce(Transpose(x, p), a) -> Reduce(x, p[a]), where the kept axes stay in order."""

    # tf2onnx writes the global pooling of each Keras model so. Level extended: the sum is taken in another order.
    name = "reduce-before-transpose"
    level = Level.EXTENDED
    operators = tuple(named(shape="reduce"))

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Reductions that drop the dims they reduce, with constant axes."""
        turn = producer(node.inputs[0], "Transpose")
        perm = permutation(turn) if turn is not None else None
        if turn is None or perm is None or attribute(node, "keepdims", 1) != 0:
            return 0
        given = attribute(node, "axes") is None
        axes = axes_of(node)
        if not axes:
            return 0
        reduced = {a % len(perm) for a in axes}
        remaining = [p for i, p in enumerate(perm) if i not in reduced]
        if remaining != sorted(remaining):
            return 0
        moved = sorted(perm[a] for a in reduced)
        kept = [a for name, a in node.attributes.items() if name != "axes"]
        if given:
            axes_value = context.initializer(np.array(moved, np.int64), f"{node.outputs[0].name}_axes")
            context.replace_op(node, node.op_type, [turn.inputs[0], axes_value], kept)
        else:
            context.replace_op(node, node.op_type, [turn.inputs[0]], [*kept, ir.AttrInt64s("axes", moved)])
        return 1

"""The runtime's matrix product with transposes and a factor built in."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import producer, sole_use
from onnxtool.model.operators.value_facts import rank_of, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import MICROSOFT, PassContext
from onnxtool.optimization.passes.cleanup.operator_chains import permutation
from onnxtool.optimization.passes.fusion.activations import gelu_of
from onnxtool.optimization.patterns.operands import pairs, scalar, unscaled


class FuseMatMulTransposes(NodeRewrite):
    """MatMul(Transpose(a), b) * number -> the runtime's FusedMatMul(a, b, transA=1, alpha=number); b likewise."""

    name = "fuse-matmul-transposes"
    level = Level.ALL
    operators = ("MatMul",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """At least one transpose or number must go; constants are turned by folding, and need none."""
        if node.graph is None or node.outputs[0].dtype != ir.DataType.FLOAT:
            return 0
        if any(v is None or (rank_of(v) or 0) < 2 for v in node.inputs) or not _adds_up(node):
            return 0
        sides = [_plain(v, context) for v in node.inputs]
        factor = sides[0][1] * sides[1][1]
        last, after = _scaled_after(node, context)
        if last is node and factor == 1.0 and not (sides[0][2] or sides[1][2]):
            return 0
        settings = [ir.AttrInt64("transA", sides[0][2]), ir.AttrInt64("transB", sides[1][2])]
        settings.append(ir.AttrFloat32("alpha", factor * after))
        context.replace_op(last, "FusedMatMul", [sides[0][0], sides[1][0]], settings, MICROSOFT)
        return 1


def _adds_up(node: ir.Node) -> bool:
    """Whether each sum has a term for certain.

    FusedMatMul of ONNX Runtime (as of 1.31) leaves its output as it was allocated where the inner dim is 0; MatMul
    gives zeros.
    """
    inner = [(sizes_of(node.inputs[0]) or (0,))[-1], (sizes_of(node.inputs[1]) or (0, 0))[-2]]
    return any(isinstance(size, int) and size > 0 for size in inner)


def _plain(value: ir.Value | None, context: PassContext) -> tuple[ir.Value | None, float, int]:
    """An operand without its factor and transpose, the factor, and 1 where there was a transpose."""
    inner, factor = unscaled(value, context)
    scaling = producer(value, "Mul")
    if rank_of(inner) != rank_of(value) or (scaling is not None and gelu_of(scaling, context) is not None):
        inner, factor = value, 1.0  # the number had more dims than what it multiplies, or is the half of a Gelu
    turn, rank = producer(inner, "Transpose"), rank_of(value)
    if turn is None or rank is None or permutation(turn) != [*range(rank - 2), rank - 1, rank - 2]:
        return inner, factor, 0
    below, more = unscaled(turn.inputs[0], context) if sole_use(turn.outputs[0]) is not None else (turn.inputs[0], 1.0)
    if rank_of(below) != rank:
        below, more = turn.inputs[0], 1.0
    return below, factor * more, 1


def _scaled_after(node: ir.Node, context: PassContext) -> tuple[ir.Node, float]:
    """The Mul or Div by one number that follows, and the number as a factor; the node itself and 1 otherwise."""
    after = sole_use(node.outputs[0])
    if after is None or after.op_type not in ("Mul", "Div") or after.domain != "":
        return node, 1.0
    if rank_of(after.outputs[0]) != rank_of(node.outputs[0]):
        return node, 1.0
    for data, number in pairs(after):
        factor = scalar(number, context)
        if data is node.outputs[0] and factor:
            if after.op_type == "Mul":
                return after, factor
            if after.inputs[0] is data:
                return after, 1.0 / factor
    return node, 1.0

"""Small questions about operands, for recognising what an exporter has taken apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, producer, sole_use
from onnxtool.model.operators.table import operator_of
from onnxtool.optimization.pass_context import PassContext

_UNIFORM = "onnxtool.uniform"
_MOST_COMPARED = 1 << 22


def uniform_value(value: ir.Value | None, context: PassContext, deepest: int = 8) -> float | None:
    """The number that all elements of a value are, whatever its shape; None when they differ or are not known.

    Args:
        value: what is asked about.
        context: for constants.
        deepest: how many Where nodes on top of each other are looked through.
    """
    while value is not None and not context.is_constant(value):
        node = value.producer()
        row = operator_of(node)
        if node is None or not row.moves or row.carried != (0,):
            break
        value = node.inputs[0]
    if value is None:
        return None
    if context.is_constant(value):
        return _uniform_constant(value, context)
    node = value.producer()
    if node is None or not is_op(node, "ConstantOfShape", "Where"):
        return None
    if node.op_type == "ConstantOfShape":
        fill = attribute(node, "value")
        return 0.0 if fill is None else float(fill.numpy().reshape(-1)[0])
    if deepest == 0:
        return None
    condition = uniform_value(node.inputs[0], context, deepest - 1)
    if condition is not None:
        return uniform_value(node.inputs[1 if condition else 2], context, deepest - 1)
    yes = uniform_value(node.inputs[1], context, deepest - 1)
    return yes if yes is not None and yes == uniform_value(node.inputs[2], context, deepest - 1) else None


def _uniform_constant(value: ir.Value, context: PassContext) -> float | None:
    cached = value.meta.get(_UNIFORM)
    if cached is None:
        array = context.array(value, limit=_MOST_COMPARED)
        number = None
        if array is not None and array.size and array.dtype.kind in "biuf":
            first = array.reshape(-1)[0]
            number = float(first) if bool((array == first).all()) else None
        cached = value.meta[_UNIFORM] = (number,)
    found: float | None = cached[0]
    return found


def scalar(value: ir.Value | None, context: PassContext) -> float | None:
    """The number behind a constant float of one element."""
    array = context.array(value, limit=1)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 and array.dtype.kind == "f" else None


def near(value: float | None, wanted: float, rtol: float = 1e-4) -> bool:
    """Equal up to the digits that exporters write (0.70710678 for 1 over the root of 2)."""
    return value is not None and bool(np.isclose(value, wanted, rtol=rtol, atol=0.0))


def operand(
    node: ir.Node | None, op_type: str, number: float, context: PassContext, *, ordered: bool = False
) -> ir.Value | None:
    """The computed operand of `op_type(x, number)`, or, unless `ordered`, of `op_type(number, x)`."""
    if node is None or not is_op(node, op_type) or len(node.inputs) != 2:
        return None
    for index in (0,) if ordered else (0, 1):
        if near(scalar(node.inputs[1 - index], context), number):
            return node.inputs[index]
    return None


def pairs(node: ir.Node) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Both orders of the operands of a commutative node."""
    if len(node.inputs) == 2 and node.inputs[0] is not None and node.inputs[1] is not None:
        yield node.inputs[0], node.inputs[1]
        yield node.inputs[1], node.inputs[0]


def factors(value: ir.Value | None, depth: int = 3) -> list[ir.Value | None]:
    """The operands of a tree of Mul nodes of which each inner one has a single reader."""
    node = producer(value, "Mul")
    if node is None or depth == 0:
        return [value]
    found: list[ir.Value | None] = []
    for side in node.inputs:
        inner = producer(side, "Mul")
        alone = side is not None and len(side.uses()) == 1 and not side.is_graph_output()
        found += factors(side, depth - 1) if inner is not None and alone else [side]
    return found


def unscaled(value: ir.Value | None, context: PassContext) -> tuple[ir.Value | None, float]:
    """What stands behind a Mul or Div by one number, and that number as a factor; the value itself and 1 otherwise."""
    node = producer(value, "Mul", "Div")
    if node is None or value is None or sole_use(value) is None:
        return value, 1.0
    for index in (0, 1) if node.op_type == "Mul" else (0,):
        number = scalar(node.inputs[1 - index], context)
        if number:
            return node.inputs[index], number if node.op_type == "Mul" else 1.0 / number
    return value, 1.0

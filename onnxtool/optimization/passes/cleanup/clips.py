"""Clip and Relu in a row."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, producer, sole_use
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.patterns.operands import scalar


class CollapseClips(NodeRewrite):
    """Clip(Clip(x, a, b), c, d) -> Clip(x, max(a, c), min(b, d)), and Relu(Relu(x)) -> Relu(x)."""

    # onnxscript's rules take the inner Relu for granted when the outer Clip starts below zero.
    name = "collapse-clips"
    level = Level.BASIC
    operators = ("Clip", "Relu")

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """The outer range, cut to what the inner one lets through."""
        inner = producer(node.inputs[0], "Clip", "Relu")
        if inner is None or sole_use(inner.outputs[0]) is not node:
            return 0
        dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
        first, second = clip_bounds(inner, context), clip_bounds(node, context)
        if first is None or second is None or dtype is None or dtype not in _CLIPPED:
            return 0
        low, high = (min(max(b, second[0]), second[1]) for b in first)
        if _changes_sign_of_zero(first, second, (low, high)):
            return 0
        self._replace(node, inner.inputs[0], low, high, dtype, context)
        return 1

    def _replace(
        self, node: ir.Node, source: ir.Value | None, low: float, high: float, dtype: ir.DataType, context: PassContext
    ) -> None:
        if (low, high) == (0.0, math.inf):
            context.replace_op(node, "Relu", [source])
        elif context.opset < 11:
            bounds = [("min", low), ("max", high)]
            context.replace_op(node, "Clip", [source], [ir.AttrFloat32(n, b) for n, b in bounds if math.isfinite(b)])
        else:
            inputs: list[ir.Value | None] = [source]
            for name, bound in (("min", low), ("max", high)):
                array = np.array(bound, dtype.numpy())
                made = context.initializer(array, f"{node.outputs[0].name}_{name}")
                inputs.append(made if math.isfinite(bound) else None)
            while inputs[-1] is None:
                inputs.pop()
            context.replace_op(node, "Clip", inputs)


def _changes_sign_of_zero(first: tuple[float, float], second: tuple[float, float], both: tuple[float, float]) -> bool:
    """Whether -0 comes out as another zero: the inner range turned it into a number that the outer one made +0."""
    if any(b == 0 and math.copysign(1.0, b) < 0 for b in (*first, *second)):
        return True
    return not first[0] <= 0 <= first[1] and both[0] <= 0 <= both[1]


def clip_bounds(node: ir.Node, context: PassContext) -> tuple[float, float] | None:
    """Constant bounds of a Clip, or of a Relu; None when they are computed or cross over."""
    if is_op(node, "Relu"):
        return (0.0, math.inf)
    if context.opset < 11:
        low, high = float(attribute(node, "min", -math.inf)), float(attribute(node, "max", math.inf))
    else:
        found = []
        for index, default in ((1, -math.inf), (2, math.inf)):
            given = node.inputs[index] if len(node.inputs) > index else None
            number = default if given is None else scalar(given, context)
            if number is None:
                return None
            found.append(number)
        low, high = found
    return (low, high) if low <= high else None


_CLIPPED = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)

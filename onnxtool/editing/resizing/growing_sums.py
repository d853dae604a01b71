"""Sums over a dim that becomes dynamic: they grow with it, so a constant behind one may be made of its old size.

A mean may be written as a sum and a weight in which 1 / 40 is folded, and no number of the weight shows it. No such
constant is needed where a sum is divided by another sum, or by a norm, over the same dim, and where a softmax has
weighted what is added up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute
from onnxtool.model.operators.layout_rules import axes_of
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.model.operators.value_facts import sizes_of

_KEEPS_SIZE = ("ReduceMean", "ReduceMax", "ReduceMin")
_WEIGHTED = ("Mul", "Where", "Dropout", "Cast")  # what is weighted by a softmax stays so
_TINY = 1e-2  # what is added to a divisor


class GrowingSums:
    """Follows sums through a graph, in the order of its nodes.

    Args:
        axes: the axes of a value that become dynamic.
        array: what a value is that depends on no input.
    """

    def __init__(
        self,
        axes: Callable[[ir.Value | None], Iterable[int]],
        array: Callable[[ir.Value | None], np.ndarray | None],
    ) -> None:
        self._axes, self._array = axes, array
        self._growing: set[ir.Value] = set()
        self._weighted: set[ir.Value] = set()  # sums over the dim are one

    def meets(self, node: ir.Node) -> ir.Value | None:
        """The constant of a node that meets a sum; the result is then a value like any other."""
        if node.domain not in STANDARD or not node.inputs:
            return None
        growing = [v in self._growing and i not in operator_of(node).sizes for i, v in enumerate(node.inputs)]
        if any(growing) and (met := self._constant(node, growing)) is not None:
            return met
        if self._normalizes(node, growing) or self._stays_weighted(node):
            self._weighted |= set(node.outputs)
        elif node.op_type in ("Shape", "Size") and self._axes(node.inputs[0]):
            self._growing |= set(node.outputs)
        elif node.op_type == "Range" or operator_of(node).compares:
            pass  # positions, which are the same at every size, and truth values
        elif node.op_type.startswith("Gather"):
            self._follow(node, growing[0])  # a sum that looks something up ends there
        elif node.op_type == "Div":
            self._follow(node, growing[0] and not growing[1])
        elif not node.op_type.endswith("Normalization"):
            self._follow(node, any(growing) or self._sums(node))
        return None

    def _follow(self, node: ir.Node, grows: bool) -> None:
        if grows:
            self._growing |= set(node.outputs)

    def _constant(self, node: ir.Node, growing: list[bool]) -> ir.Value | None:
        """A constant that is added to a sum, or multiplied with it; limits that keep a divisor from zero are none."""
        if operator_of(node).moves or node.op_type.startswith("Reduce"):
            return None
        for value, grows in zip(node.inputs, growing, strict=True):
            array = None if grows else self._array(value)
            if array is None or not array.size or array.dtype.kind != "f":
                continue
            free = 0 if node.op_type in ("Mul", "Div") else _TINY
            if ((abs(array) > free) & (abs(array) != 1)).any():
                return value
        return None

    def _normalizes(self, node: ir.Node, growing: list[bool]) -> bool:
        if node.op_type == "Softmax":
            rank = len(sizes_of(node.inputs[0]) or ())
            return bool(rank) and attribute(node, "axis", -1) % rank in self._axes(node.inputs[0])
        return node.op_type == "Div" and growing[1] and not growing[0]

    def _stays_weighted(self, node: ir.Node) -> bool:
        weighted = any(v in self._weighted for v in node.inputs)
        return weighted and (operator_of(node).moves or node.op_type in _WEIGHTED)

    def _sums(self, node: ir.Node) -> bool:
        """Whether a node adds up a dim that changes, of what is not weighted."""
        if any(v in self._weighted for v in node.inputs):
            return False
        if operator_of(node).shape == "reduce" and node.op_type not in _KEEPS_SIZE:
            rank = len(sizes_of(node.inputs[0]) or ())
            gone = axes_of(node) or (() if attribute(node, "noop_with_empty_axes", 0) else range(rank))
            return any(a % rank in self._axes(node.inputs[0]) for a in gone) if rank else False
        if node.op_type == "CumSum":
            return bool(self._axes(node.inputs[0]))
        if node.op_type in ("MatMul", "Gemm"):
            return any(axis in self._axes(value) for value, axis in self._inner(node))
        if node.op_type == "Einsum":
            terms, _, result = attribute(node, "equation", "").replace(" ", "").partition("->")
            pairs = zip(terms.split(","), node.inputs, strict=False)
            return any(a < len(t) and t[a] not in result for t, v in pairs for a in self._axes(v))
        return False

    @staticmethod
    def _inner(node: ir.Node) -> list[tuple[ir.Value | None, int]]:
        """The axes that a product of matrices adds up."""
        a, b = node.inputs[:2]
        ranks = [len(sizes_of(v) or ()) for v in (a, b)]
        turned = [bool(attribute(node, name, 0)) for name in ("transA", "transB")]
        left = ranks[0] - (2 if turned[0] else 1)
        right = ranks[1] - (1 if turned[1] or ranks[1] == 1 else 2)
        return [(a, left), (b, right)]

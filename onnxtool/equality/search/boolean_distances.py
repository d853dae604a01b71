"""Adds to a graph, for its booleans, how far each element is from true and from false.

The distance of a comparison is how far its operands are from the other outcome, that of `And` the sum of both, that of
`Or` the smaller: what a search can walk down.

Source: Korel 1990, "Automated software test data generation", section 4; Tracey et al. 1998, "An automated framework
for structural test-data generation", table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
import onnx_ir as ir

from onnxtool.model.operators.table import STANDARD, named, operator_of

_LESS = ("Less", "LessOrEqual")
COMPARISONS = named(compares=True)
LOGIC = ("And", "Or", "Xor", "Not")
_DOUBLE = ir.DataType.DOUBLE
# Added to the distance of an outcome that has not come about: strict comparisons of equal numbers are not there yet.
NOT_YET = 1e-6
HUGE = 1e30


class Fields:
    """Distances of the booleans of one graph or body.

    Args:
        graph: gets the nodes that compute them.
        label: goes into the names of values, which a body must not share with what is around it.
    """

    def __init__(self, graph: ir.Graph, label: str = "") -> None:
        self._graph, self._label = graph, label
        self._known: dict[int, tuple[ir.Value, ir.Value] | None] = {}
        self._numbers = count()
        self._constants: dict[float | tuple[float, ...], ir.Value] = {}

    def of(self, value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
        """(distance from true, distance from false) of each element; None where nothing can be said."""
        order: list[ir.Value] = [value]
        while order:  # without recursion: chains of And may be long
            current = order[-1]
            if id(current) in self._known:
                order.pop()
                continue
            node = current.producer()
            parents = _parents(node)
            waiting = [p for p in parents if id(p) not in self._known]
            if waiting:
                order += waiting
                continue
            self._known[id(current)] = self._made(current, node)
            order.pop()
        return self._known[id(value)]

    def of_choices(self, node: ir.Node) -> list[tuple[ir.Value, ir.Value]]:
        """Of Min, Max and Clip, for each bound: how far the first input is from lying above it, and below it."""
        first = node.inputs[0]
        found = []
        for bound in node.inputs[1:]:
            if first is None or bound is None:
                continue
            above = self._add("Sub", self._double(bound), self._double(first))
            zero, step = self._constant(0.0), self._constant(NOT_YET)  # where both are equal nothing is chosen
            more = self._add("Max", self._add("Add", above, step), zero)
            less = self._add("Max", self._add("Sub", step, above), zero)
            found.append((self._clean(more), self._clean(less)))
        return found

    def outside(self, value: ir.Value, low: float, high: float) -> tuple[ir.Value, ir.Value]:
        """How far each number is from lying below a range, and above it."""
        number, zero, step = self._double(value), self._constant(0.0), self._constant(NOT_YET)
        below = self._add("Sub", number, self._constant(low))
        above = self._add("Sub", self._constant(high), number)
        distances = [self._add("Max", self._add("Add", d, step), zero) for d in (below, above)]
        return self._clean(distances[0]), self._clean(distances[1])

    def of_parts(self, node: ir.Node) -> tuple[ir.Value, ...]:
        """How far the then and the else branch of an If are from running, or the body of a Loop."""
        if node.op_type == "If":
            condition = node.inputs[0]
            assert condition is not None
            return self.of(condition) or self._plain(condition)
        count, condition = (*node.inputs, None)[:2]
        distance = self._constant(0.0)
        if count is not None:
            missing = self._add("Sub", self._constant(1.0), self._double(count))
            distance = self._add("Max", missing, distance)
        if condition is not None:
            distance = self._add("Add", (self.of(condition) or self._plain(condition))[0], distance)
        return (distance,)

    def of_row(self, indices: ir.Value, row: int) -> ir.Value:
        """How far the nearest of some indices is from a row of a table."""
        return self._add("Abs", self._add("Sub", self._double(indices), self._constant(float(row))))

    def of_place(self, indices: ir.Value, place: Sequence[int]) -> ir.Value:
        """How far the nearest of some indices [..., k] is from a place in the first k dims of a table."""
        apart = self._add("Sub", self._double(indices), self._constant(tuple(map(float, place))))
        return self._add("MatMul", self._add("Abs", apart), self._constant((1.0,) * len(place)))

    def least(self, field: ir.Value) -> ir.Value:
        """The smallest element, as one number."""
        return self._add("ReduceMin", field, keepdims=0)

    def _made(self, value: ir.Value, node: ir.Node | None) -> tuple[ir.Value, ir.Value] | None:
        if node is None or node.graph is not self._graph:
            return self._plain(value) if value.dtype == ir.DataType.BOOL else None
        if node.op_type in COMPARISONS:
            return self._comparison(value, node)
        pairs = [self._known.get(id(p)) for p in _parents(node)]
        known = [p for p in pairs if p is not None]
        if not pairs or len(known) != len(pairs):
            return self._plain(value) if value.dtype in (None, ir.DataType.BOOL) else None
        if node.op_type == "Not":
            return known[0][1], known[0][0]
        if _moves(node):
            return self._reshaped(node, known[0][0]), self._reshaped(node, known[0][1])
        (t1, f1), (t2, f2) = known
        if node.op_type == "And":
            return self._add("Add", t1, t2), self._add("Min", f1, f2)
        if node.op_type == "Or":
            return self._add("Min", t1, t2), self._add("Add", f1, f2)
        differ = self._add("Min", self._add("Add", t1, f2), self._add("Add", f1, t2))
        agree = self._add("Min", self._add("Add", t1, t2), self._add("Add", f1, f2))
        return differ, agree

    def _comparison(self, value: ir.Value, node: ir.Node) -> tuple[ir.Value, ir.Value] | None:
        a, b = node.inputs
        if a is None or b is None or ir.DataType.STRING in (a.dtype, b.dtype):
            return self._plain(value)
        zero = self._constant(0.0)
        distance = self._add("Sub", self._double(b), self._double(a))
        if node.op_type == "Equal":
            true, false = self._add("Abs", distance), zero
        else:
            if node.op_type in _LESS:
                distance = self._add("Neg", distance)
            true = self._add("Max", distance, zero)
            false = self._add("Max", self._add("Neg", distance), zero)
        missing_true, missing_false = self._plain(value, NOT_YET)
        return (
            self._clean(self._add("Add", true, missing_true)),
            self._clean(self._add("Add", false, missing_false)),
        )

    def _plain(self, value: ir.Value, step: float = 1.0) -> tuple[ir.Value, ir.Value]:
        """Of a boolean of which nothing more is known: `step` where it is not there."""
        scale = self._constant(step)
        came = self._add("Mul", self._double(value), scale)
        return self._add("Sub", scale, came), came

    def _clean(self, field: ir.Value) -> ir.Value:
        return self._add("Where", self._add("IsNaN", field, kind=ir.DataType.BOOL), self._constant(HUGE), field)

    def _reshaped(self, node: ir.Node, field: ir.Value) -> ir.Value:
        made = ir.node(node.op_type, [field, *node.inputs[1:]], dict(node.attributes))
        return self._placed(made, _DOUBLE)

    def _double(self, value: ir.Value) -> ir.Value:
        return self._add("Cast", value, to=_DOUBLE)

    def _constant(self, number: float | tuple[float, ...]) -> ir.Value:
        if number not in self._constants:
            made = ir.node("Constant", [], {"value": ir.tensor(np.array(number, np.float64))})
            self._constants[number] = self._placed(made, _DOUBLE)
        return self._constants[number]

    def _add(self, operator: str, *inputs: ir.Value, kind: ir.DataType = _DOUBLE, **attributes: object) -> ir.Value:
        return self._placed(ir.node(operator, list(inputs), dict(attributes)), kind)  # type: ignore[arg-type]

    def _placed(self, node: ir.Node, kind: ir.DataType) -> ir.Value:
        self._graph.append(node)
        value = node.outputs[0]
        value.name, value.type = f"onnxtool.field{self._label}.{next(self._numbers)}", ir.TensorType(kind)
        return value


def _parents(node: ir.Node | None) -> list[ir.Value]:
    """The booleans that a boolean is made of, where they tell how far it is."""
    if node is None or node.domain not in STANDARD:
        return []
    if node.op_type in LOGIC:
        return [v for v in node.inputs if v is not None]
    return [v for v in node.inputs[:1] if v is not None] if _moves(node) else []


def _moves(node: ir.Node) -> bool:
    """Whether a node hands the booleans of its first input on in another shape or order."""
    row = operator_of(node)
    return row.moves and row.carried == (0,) and len(node.outputs) == 1

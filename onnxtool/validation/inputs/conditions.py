"""How far each condition of a graph is from coming out the other way: a copy of the graph tells, by further outputs.

The distance of a comparison is how far its operands are from the other outcome, that of `And` the sum of both, that of
`Or` the smaller: what a search can walk down.

Source: Korel 1990, "Automated software test data generation", section 4; Tracey et al. 1998, "An automated framework
for structural test-data generation", table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.queries import STANDARD, constant_array
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import SessionOptions
from onnxtool.validation.inputs.structure import digests
from onnxtool.validation.inputs.trial import Feeds

_PREFIX = "onnxtool.distance."
_GREATER, _LESS = ("Greater", "GreaterOrEqual"), ("Less", "LessOrEqual")
_COMPARISONS = (*_GREATER, *_LESS, "Equal")
_LOGIC = ("And", "Or", "Xor", "Not")
# Operators that take the larger or smaller of two numbers, which is a condition too.
_CHOICES = ("Clip", "Min", "Max")
# Operators that hand booleans on in another shape.
_THROUGH = frozenset(["Unsqueeze", "Squeeze", "Reshape", "Expand", "Transpose", "Identity", "Slice", "Flatten"])
_MOST = 64  # conditions that are watched
_DOUBLE = ir.DataType.DOUBLE
# Added to the distance of an outcome that has not come about: strict comparisons of equal numbers are not there yet.
_NOT_YET = 1e-6
_HUGE = 1e30


@dataclass(frozen=True)
class Outcome:
    """One way in which a condition can come out, for some element.

    Attributes:
        node: name of the node that decides, or of what it gives where it has none.
        side: what is to come about.
        value: name of the boolean, or of what the chosen number becomes.
        of_sizes: it depends on the sizes of inputs only.
    """

    node: str
    side: bool
    value: str
    of_sizes: bool

    def __str__(self) -> str:
        return f"the {self.part} of {self.node!r}"

    @property
    def part(self) -> str:
        """As reports call it."""
        return f"{'true' if self.side else 'false'} outcome"


class ConditionWatch:
    """A graph that tells how far its conditions are from either outcome.

    Attributes:
        outcomes: two for each condition.
    """

    def __init__(self, model: ir.Model, options: SessionOptions) -> None:
        """Make an instrumented copy.

        Raises:
            OnnxToolError: the runtime refuses it.
        """
        copy = model.clone()
        graph = copy.graph
        fields = _Fields(graph)
        self.outcomes: list[Outcome] = []
        found: list[ir.Value] = []
        for condition, of_sizes in _conditions(graph):
            is_choice = condition.op_type in _CHOICES
            pairs = fields.of_choices(condition) if is_choice else [fields.of(condition.outputs[0])]
            value = condition.outputs[0].name or ""
            name = condition.name or value
            for pair in pairs:
                for side, field in zip((True, False), pair or (), strict=False):
                    self.outcomes.append(Outcome(name, side, value, of_sizes))
                    found.append(fields.least(field))
        graph.outputs.clear()
        for place, distance in enumerate(found):
            distance.name = f"{_PREFIX}{place}"
            graph.outputs.append(distance)
        self._runner = OnnxRunner.open(copy, options) if found else None

    def distances(self, feeds: Feeds) -> np.ndarray:
        """How far each outcome is; 0 where it came about, infinite where nothing is known."""
        if self._runner is None:
            return np.zeros(0)
        taken = {s.name for s in self._runner.inputs}
        try:
            with np.errstate(all="ignore"):
                outputs = self._runner.run({n: a for n, a in feeds.items() if n in taken})
        except (OnnxToolError, ValueError):
            return np.full(len(self.outcomes), np.inf)
        found = [float(np.asarray(outputs[f"{_PREFIX}{i}"]).reshape(-1)[0]) for i in range(len(self.outcomes))]
        return np.asarray(np.nan_to_num(np.array(found), nan=np.inf))


def has_conditions(model: ir.Model) -> bool:
    """Whether the main graph decides anything."""
    return any(n.op_type in (*_COMPARISONS, *_LOGIC, *_CHOICES) for n in model.graph)


def _conditions(graph: ir.Graph) -> list[tuple[ir.Node, bool]]:
    """Nodes whose outcome depends on an input, and whether on its size only; comparisons before choices."""
    found: list[tuple[ir.Node, bool]] = []
    depends: dict[int, int] = {}
    for value in graph.inputs:
        if value.name not in graph.initializers:
            depends[id(value)] = 2
    for node in graph:
        known = max((depends.get(id(v), 0) for v in node.inputs if v is not None), default=0)
        if node.op_type in ("Shape", "Size") and node.domain in STANDARD:
            known = min(known, 1)
        elif any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
            known = 2
        for output in node.outputs:
            depends[id(output)] = known
        if known and node.domain in STANDARD and node.op_type in (*_COMPARISONS, *_LOGIC[:3], *_CHOICES):
            found.append((node, known == 1))
    return sorted(found, key=lambda item: item[0].op_type in _CHOICES)[:_MOST]


class _Fields:
    """Adds to a graph, for booleans, how far each element is from true and from false."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._known: dict[int, tuple[ir.Value, ir.Value] | None] = {}
        self._count = 0
        self._constants: dict[float, ir.Value] = {}

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
            zero, step = self._constant(0.0), self._constant(_NOT_YET)  # where both are equal nothing is chosen
            more = self._add("Max", self._add("Add", above, step), zero)
            less = self._add("Max", self._add("Sub", step, above), zero)
            found.append((self._clean(more), self._clean(less)))
        return found

    def least(self, field: ir.Value) -> ir.Value:
        """The smallest element, as one number."""
        return self._add("ReduceMin", field, keepdims=0)

    def _made(self, value: ir.Value, node: ir.Node | None) -> tuple[ir.Value, ir.Value] | None:
        if node is None or node.graph is not self._graph:
            return None
        if node.op_type in _COMPARISONS:
            return self._comparison(value, node)
        pairs = [self._known.get(id(p)) for p in _parents(node)]
        known = [p for p in pairs if p is not None]
        if not pairs or len(known) != len(pairs):
            return self._plain(value) if value.dtype in (None, ir.DataType.BOOL) else None
        if node.op_type == "Not":
            return known[0][1], known[0][0]
        if node.op_type in _THROUGH:
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
        missing_true, missing_false = self._plain(value, _NOT_YET)
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
        return self._add("Where", self._add("IsNaN", field, kind=ir.DataType.BOOL), self._constant(_HUGE), field)

    def _reshaped(self, node: ir.Node, field: ir.Value) -> ir.Value:
        made = ir.node(node.op_type, [field, *node.inputs[1:]], dict(node.attributes))
        return self._placed(made, _DOUBLE)

    def _double(self, value: ir.Value) -> ir.Value:
        return self._add("Cast", value, to=_DOUBLE)

    def _constant(self, number: float) -> ir.Value:
        if number not in self._constants:
            made = ir.node("Constant", [], {"value": ir.tensor(np.array(number))})
            self._constants[number] = self._placed(made, _DOUBLE)
        return self._constants[number]

    def _add(self, operator: str, *inputs: ir.Value, kind: ir.DataType = _DOUBLE, **attributes: object) -> ir.Value:
        return self._placed(ir.node(operator, list(inputs), dict(attributes)), kind)  # type: ignore[arg-type]

    def _placed(self, node: ir.Node, kind: ir.DataType) -> ir.Value:
        self._graph.append(node)
        self._count += 1
        value = node.outputs[0]
        value.name, value.type = f"onnxtool.field.{self._count}", ir.TensorType(kind)
        return value


def _parents(node: ir.Node | None) -> list[ir.Value]:
    """The booleans that a boolean is made of, where they tell how far it is."""
    if node is None or node.domain not in STANDARD:
        return []
    if node.op_type in _LOGIC:
        return [v for v in node.inputs if v is not None]
    if node.op_type in _THROUGH and node.inputs and node.inputs[0] is not None:
        return [node.inputs[0]]
    return []


def told_apart(missed: Sequence[Outcome], model: ir.Model, other: ir.Model) -> list[Outcome]:
    """Those outcomes whose consequences another graph does not have in the same form: there the two may differ.

    Args:
        missed: outcomes of `model` that nothing reached.
        model: whose they are.
        other: the graph it was held against.
    """
    if not missed:
        return []
    own, theirs = digests(model), set(digests(other).values())
    nodes = {o.name: n for n in model.graph for o in n.outputs}
    found = []
    for outcome in missed:
        node = nodes.get(outcome.value)
        if node is None or _is_unbounded(node):
            continue
        if node.op_type in _CHOICES:
            consequences = list(node.outputs)
        else:
            consequences = [o for use in node.outputs[0].uses() for o in use.node.outputs]
        if any(own.get(value.name or "") not in theirs for value in consequences):
            found.append(outcome)
    return found


def _is_unbounded(node: ir.Node) -> bool:
    """A choice against the largest number of the type, or nearly, is none."""
    arrays = [constant_array(v) for v in node.inputs[1:] if v is not None]
    numbers = [a for a in arrays if a is not None and a.dtype.kind == "f" and a.size]
    return node.op_type in _CHOICES and any(bool((np.abs(a) >= _HUGE).all()) for a in numbers)

"""How far each condition of a graph is from coming out the other way: a copy of the graph tells, by further outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnxtool.equality.search.boolean_distances import COMPARISONS, HUGE, LOGIC, Fields
from onnxtool.equality.search.subgraph_outputs import Body, HandedOut, bodies
from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.editing import inlined
from onnxtool.model.ir.queries import attribute, constant_array, constant_tensor, walk
from onnxtool.model.operators.table import STANDARD
from onnxtool.report.proof import BRANCHES
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.memory import bounded_memory, giving_back
from onnxtool.runtime.session.session import SessionOptions

_PREFIX = "onnxtool.distance."
# Operators that take the larger or smaller of two numbers, which is a condition too.
_CHOICES = ("Clip", "Min", "Max")
# Operators that decide by themselves.
_TESTS = ("IsNaN", "IsInf", "RegexFullMatch")
# Operators whose outputs are as long as the values say.
_COUNTING = ("NonZero", "Unique", "Compress", "NonMaxSuppression", "StringSplit")
_MOST = 64  # conditions that are watched
# Integer types that large numbers do not fit into, and what they hold.
_NARROW = {
    getattr(ir.DataType, name.upper()): (float(np.iinfo(name).min), float(np.iinfo(name).max))
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32")
}


@dataclass(frozen=True)
class Outcome:
    """One way in which a condition can come out, for some element.

    Attributes:
        node: name of the node that decides, or of what it gives where it has none; of a table.
        side: what is to come about.
        of_sizes: it depends on the sizes of inputs only.
        row: the row of a table that is to be read; None where it is no matter of a table.
        beyond: a number is to lie above what an integer type holds, or below; whether any can is not known.
        branch: the part of its node that runs then: "then branch", "else branch", "loop body"; "" where it is none.
    """

    node: str
    side: bool
    of_sizes: bool
    row: int | None = None
    beyond: bool = False
    branch: str = ""

    def __str__(self) -> str:
        return f"the {self.part} of {self.node!r}"

    @property
    def part(self) -> str:
        """As reports call it."""
        if self.branch:
            return self.branch
        if self.row is not None:
            return f"row {self.row}"
        return f"{'true' if self.side else 'false'} outcome"


class ConditionWatch:
    """A graph that tells how far its conditions are from either outcome.

    Attributes:
        outcomes: two for each condition, one for each row of a table.
    """

    def __init__(
        self,
        model: ir.Model,
        options: SessionOptions,
        rows: Mapping[str, Sequence[int]] | None = None,
        casts: Collection[str] = (),
    ) -> None:
        """Make an instrumented copy.

        Args:
            model: not changed.
            options: how the copy is run.
            rows: table -> rows that are to be read.
            casts: outputs of casts to integers that numbers are to be too large for.

        Raises:
            OnnxToolError: the runtime refuses it.
        """
        copy = inlined(model)
        graph = copy.graph
        self.outcomes: list[Outcome] = []
        found: list[ir.Value] = []
        handed_out = HandedOut(HUGE)
        for place, body in enumerate(list(bodies(graph))):
            fields = Fields(body.graph, f".{place}" if place else "")
            decided = [*_decided(body, fields, rows or {}), *_overflowing(body, fields, casts)]
            room = max(0, _MOST * 2 - sum(not o.branch for o in self.outcomes))
            for outcome, field in [*_branching(body, fields), *decided[:room]]:
                self.outcomes.append(outcome)
                found.append(handed_out(fields.least(field), body))
        graph.outputs.clear()
        for place, distance in enumerate(found):
            distance.name = f"{_PREFIX}{place}"
            graph.outputs.append(distance)
        copy.opset_imports.setdefault("", 17)
        self._runner = None
        if found:
            # Distances of attention at a length that is sought can take more memory than the model ever does.
            bounded = replace(options, settings=(*options.settings, *bounded_memory()))
            self._runner = OnnxRunner.open(copy, bounded)
            self._runner.run_options = giving_back()

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
    """Whether anything is decided, in the graph, its bodies or its functions."""
    graphs = [model.graph, *(f.graph for f in model.functions.values())]
    known = (*COMPARISONS, *LOGIC, *_CHOICES, *_TESTS)
    return any(n.op_type in known or controls(n) for g in graphs for n in walk(g))


def _branching(body: Body, fields: Fields) -> Iterator[tuple[Outcome, ir.Value]]:
    """The parts of one graph or body that may not run, and how far each is from running."""
    for node in [n for n in body.graph if controls(n)]:
        name = node.name or node.outputs[0].name or node.op_type
        parts = BRANCHES[:2] if node.op_type == "If" else BRANCHES[2:]
        for side, part, field in zip((True, False), parts, fields.of_parts(node), strict=False):
            yield Outcome(name, side, False, branch=part), field


def _decided(body: Body, fields: Fields, rows: Mapping[str, Sequence[int]]) -> list[tuple[Outcome, ir.Value]]:
    """Outcomes of one graph or body, with their distances."""
    found: list[tuple[Outcome, ir.Value]] = []
    for node in body.graph:
        dims = indexed_dims(node)
        if not dims:
            continue
        table, indices = node.inputs
        assert table is not None and indices is not None
        name = table.name or ""
        for row in rows.get(name, ()):
            single = node.op_type == "Gather"
            place = [int(i) for i in np.unravel_index(row, dims)]
            field = fields.of_row(indices, row) if single else fields.of_place(indices, place)
            found.append((Outcome(name, True, False, row), field))
    branching = {id(n.inputs[0]) for n in body.graph if n.op_type == "If" and n.domain in STANDARD}
    for condition, of_sizes in _conditions(body):
        if id(condition.outputs[0]) in branching and len(condition.outputs[0].uses()) == 1:
            continue  # the branches tell
        is_choice = condition.op_type in _CHOICES
        if _is_unbounded(condition):
            continue
        pairs = fields.of_choices(condition) if is_choice else [fields.of(condition.outputs[0])]
        name = condition.name or condition.outputs[0].name or ""
        for pair in pairs:
            for side, field in zip((True, False), pair or (), strict=False):
                found.append((Outcome(name, side, of_sizes), field))
    return found


def indexed_dims(node: ir.Node) -> tuple[int, ...]:
    """The dims of a constant table from which a node takes rows by indices that are computed; () for other nodes.

    A row is counted along all of them.
    """
    if node.op_type not in ("Gather", "GatherND") or node.domain not in STANDARD or len(node.inputs) < 2:
        return ()
    table, indices = node.inputs[:2]
    held = constant_tensor(table)
    shape = None if held is None else held.shape.numpy()
    if not shape or indices is None or attribute(node, "axis", 0) or attribute(node, "batch_dims", 0):
        return ()
    if node.op_type == "Gather":
        return tuple(shape[:1])
    width = indices.shape[-1] if indices.shape else None
    return tuple(shape[: width if isinstance(width, int) else None])


def _overflowing(body: Body, fields: Fields, casts: Collection[str]) -> Iterator[tuple[Outcome, ir.Value]]:
    """Outcomes of casts to integer types: a number above what the type holds, and one below."""
    for node in [n for n in body.graph if n.outputs[0].name in casts]:
        number, name = node.inputs[0], node.name or node.outputs[0].name or ""
        assert number is not None
        limits = _NARROW[ir.DataType(attribute(node, "to"))]
        for side, field in zip((False, True), fields.outside(number, *limits), strict=True):
            yield Outcome(name, side, False, beyond=True), field


def narrowing_casts(graphs: Mapping[str, ir.Model]) -> dict[str, set[str]]:
    """Casts to narrow integer types, by their outputs, of two graphs; of one alone none is sought."""
    if len(graphs) != 2:
        return {name: set() for name in graphs}
    models = {name: inlined(graph) if graph.functions else graph for name, graph in graphs.items()}
    return {name: {n.outputs[0].name or "" for n in model.graph if _narrowing(n)} for name, model in models.items()}


def _narrowing(node: ir.Node) -> bool:
    return node.op_type == "Cast" and node.domain in STANDARD and ir.DataType(attribute(node, "to")) in _NARROW


def _conditions(body: Body) -> list[tuple[ir.Node, bool]]:
    """Nodes whose outcome depends on an input, and whether on its size only; comparisons before choices."""
    graph = body.graph
    found: list[tuple[ir.Node, bool]] = []
    depends: dict[int, int] = {}
    for value in graph.inputs:
        if value.name not in graph.initializers:
            depends[id(value)] = 2
    around = 2 if body.path else 0  # of what a body captures nothing is known here
    own = {id(o) for node in graph for o in node.outputs}
    for node in graph:
        captured = [v for v in node.inputs if v is not None and id(v) not in own and id(v) not in depends]
        outer = around if any(constant_array(v) is None for v in captured) else 0
        known = max([outer, *(depends.get(id(v), 0) for v in node.inputs if v is not None)])
        if node.op_type in ("Shape", "Size") and node.domain in STANDARD and not _is_counted(node):
            known = min(known, 1)
        elif any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
            known = 2
        for output in node.outputs:
            depends[id(output)] = known
        if known and node.domain in STANDARD and node.op_type in (*COMPARISONS, *LOGIC[:3], *_CHOICES, *_TESTS):
            found.append((node, known == 1))
    return sorted(found, key=lambda item: item[0].op_type in _CHOICES)[:_MOST]


def _is_counted(node: ir.Node) -> bool:
    """Whether a Shape or Size reads something as long as values say."""
    source = node.inputs[0]
    producer = source.producer() if source is not None else None
    return producer is not None and producer.op_type in _COUNTING


def _is_unbounded(node: ir.Node) -> bool:
    """A choice against the largest number of the type, or nearly, is none."""
    arrays = [constant_array(v) for v in node.inputs[1:] if v is not None]
    numbers = [a for a in arrays if a is not None and a.dtype.kind == "f" and a.size]
    return node.op_type in _CHOICES and any(bool((np.abs(a) >= HUGE).all()) for a in numbers)


def controls(node: ir.Node) -> bool:
    """Whether a node has parts that may not run."""
    return node.op_type in ("If", "Loop") and node.domain in STANDARD

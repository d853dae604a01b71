"""Which branches and loop bodies of a graph an input runs: a copy of the graph tells, by further outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.queries import walk
from onnxtool.model.operators.table import operator_of
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

_PREFIX = "onnxtool.ran."
_OPERANDS = "onnxtool.compared."
_BRANCHES = {"then_branch": "then branch", "else_branch": "else branch"}
_LOGIC = ("Cast", "Not", "And", "Or")


@dataclass(frozen=True)
class GraphPart:
    """A branch or a loop body.

    Attributes:
        node: name of its If or Loop node, or of the first output where the node has none.
        index: which If or Loop of the graph, in order, subgraphs included.
        part: "then branch", "else branch" or "loop body".
        inside: (index, part) of what it is nested in, outermost first.
    """

    node: str
    index: int
    part: str
    inside: tuple[tuple[int, str], ...] = ()


def has_branches(model: ir.Model) -> bool:
    """Whether there is anything that may not run."""
    return any(_controls(node) for node in walk(model.graph)) or any(
        _controls(node) for function in model.functions.values() for node in walk(function.graph)
    )


class BranchWatch:
    """A graph that tells which of its parts ran.

    Attributes:
        parts: all there are.
        reached: those that some input has run.
    """

    def __init__(self, model: ir.Model, options: SessionOptions) -> None:
        """Make an instrumented copy.

        Raises:
            OnnxToolError: the runtime refuses it.
        """
        copy = _inlined(model)
        numbers = {id(node): i for i, node in enumerate(n for n in walk(copy.graph) if _controls(n))}
        flags = _expose(copy.graph, numbers, ())
        self.parts = [part for part, _ in flags]
        for place, (_, value) in enumerate(flags):
            value.name = f"{_PREFIX}{place}"
            copy.graph.outputs.append(value)
        for place, value in enumerate(_operands(copy.graph)):
            value.name = f"{_OPERANDS}{place}"
            copy.graph.outputs.append(value)
        copy.opset_imports.setdefault("", 17)
        self.reached: set[GraphPart] = set()
        self._runner = OnnxRunner.open(copy, options)

    def run(self, feeds: Feeds) -> tuple[bool, float]:
        """Run an input.

        Returns:
            Whether it reached a part that none before it did, and how near the numbers that conditions compare came to
            one another; infinite where nothing is known.
        """
        taken = {s.name for s in self._runner.inputs}
        try:
            outputs = self._runner.run({n: a for n, a in feeds.items() if n in taken})
        except OnnxToolError:
            return False, np.inf
        before = len(self.reached)
        for place, part in enumerate(self.parts):
            if int(np.asarray(outputs[f"{_PREFIX}{place}"]).max()) > 0:
                self.reached.add(part)
        return len(self.reached) > before, _nearness(outputs)

    @property
    def unreached(self) -> list[GraphPart]:
        """The parts that no input has run so far."""
        return [p for p in self.parts if p not in self.reached]


def forced(model: ir.Model, part: GraphPart) -> ir.Model:
    """A copy of a graph in which the conditions on the way to a branch are constants, so that it always runs."""
    copy = _inlined(model)
    nodes = [n for n in walk(copy.graph) if _controls(n)]
    for index, name in (*part.inside, (part.index, part.part)):
        node = nodes[index]
        if node.op_type != "If":
            continue
        owner = node.graph
        assert owner is not None
        constant = ir.node("Constant", [], {"value": ir.tensor(np.array(name == "then branch"))})
        constant.outputs[0].name = f"onnxtool.forced.{index}"
        owner.insert_before(node, constant)
        node.replace_input_with(0, constant.outputs[0])
    return copy


def _controls(node: ir.Node) -> bool:
    return node.op_type in ("If", "Loop") and node.domain in ("", "ai.onnx")


def _inlined(model: ir.Model) -> ir.Model:
    copy = model.clone()
    if any(_controls(n) for f in copy.functions.values() for n in walk(f.graph)):
        from onnx_ir.passes.common import InlinePass

        copy = InlinePass()(copy).model
    return copy


def _expose(
    graph: ir.Graph, numbers: Mapping[int, int], inside: tuple[tuple[int, str], ...]
) -> list[tuple[GraphPart, ir.Value]]:
    """Values of a graph, each one int64 number, that are positive where a part has run."""
    found: list[tuple[GraphPart, ir.Value]] = []
    for node in list(graph):
        if not _controls(node):
            continue
        index = numbers[id(node)]
        name = node.name or node.outputs[0].name or node.op_type
        found += (
            _of_if(node, index, name, numbers, inside)
            if node.op_type == "If"
            else _of_loop(graph, node, index, name, numbers, inside)
        )
    return found


def _of_if(
    node: ir.Node,
    index: int,
    name: str,
    numbers: Mapping[int, int],
    inside: tuple[tuple[int, str], ...],
) -> list[tuple[GraphPart, ir.Value]]:
    found: list[tuple[GraphPart, ir.Value]] = []
    bodies = {branch: node.attributes[branch].as_graph() for branch in _BRANCHES}
    for branch, part in _BRANCHES.items():
        own = bodies[branch]
        inner = _expose(own, numbers, (*inside, (index, part)))
        flags = [(GraphPart(name, index, part, inside), _constant(own, 1)), *inner]
        for known, value in flags:
            own.outputs.append(value)
            for other, body in bodies.items():
                if other != branch:
                    body.outputs.append(_constant(body, 0))
            found.append((known, _further_output(node)))
    return found


def _of_loop(
    graph: ir.Graph,
    node: ir.Node,
    index: int,
    name: str,
    numbers: Mapping[int, int],
    inside: tuple[tuple[int, str], ...],
) -> list[tuple[GraphPart, ir.Value]]:
    found: list[tuple[GraphPart, ir.Value]] = []
    body = node.attributes["body"].as_graph()
    flags = [
        (GraphPart(name, index, "loop body", inside), _constant(body, 1)),
        *_expose(body, numbers, (*inside, (index, "loop body"))),
    ]
    for known, value in flags:
        body.outputs.append(value)
        scanned = _further_output(node)  # [iterations, 1]
        zero = _constant(graph, 0, after=node, shape=(1, 1))
        joined = _append(graph, zero.producer(), "Concat", [scanned, zero], {"axis": 0})
        flat = _append(graph, joined.producer(), "ReduceMax", [joined], {"keepdims": 0})
        one = _constant(graph, 1, after=flat.producer())
        found.append((known, _append(graph, one.producer(), "Reshape", [flat, one])))
    return found


_count = [0]


def _name(value: ir.Value) -> ir.Value:
    _count[0] += 1
    value.name = f"onnxtool.watch.{_count[0]}"
    return value


def _further_output(node: ir.Node) -> ir.Value:
    node.resize_outputs(len(node.outputs) + 1)
    value = _name(node.outputs[-1])
    value.type = ir.TensorType(ir.DataType.INT64)
    return value


def _constant(graph: ir.Graph, number: int, after: ir.Node | None = None, shape: tuple[int, ...] = (1,)) -> ir.Value:
    node = ir.node("Constant", [], {"value": ir.tensor(np.full(shape, number, np.int64))})
    if after is None:
        graph.append(node)
    else:
        graph.insert_after(after, node)
    value = _name(node.outputs[0])
    value.type, value.shape = ir.TensorType(ir.DataType.INT64), ir.Shape(list(shape))
    return value


def _append(
    graph: ir.Graph,
    after: ir.Node | None,
    operator: str,
    inputs: Sequence[ir.Value],
    attributes: Mapping[str, Any] | None = None,
) -> ir.Value:
    node = ir.node(operator, list(inputs), dict(attributes or {}))
    assert after is not None
    graph.insert_after(after, node)
    value = _name(node.outputs[0])
    value.type = ir.TensorType(ir.DataType.INT64)
    return value


def _operands(graph: ir.Graph) -> Iterator[ir.Value]:
    """What the conditions of the main graph compare, as float outputs in pairs."""
    for node in [n for n in graph if n.op_type == "If" and n.domain in ("", "ai.onnx")]:
        for comparison in _comparisons(node.inputs[0]):
            if comparison.graph is not graph:
                continue
            for value in comparison.inputs:
                if value is None:
                    return
                cast = ir.node("Cast", [value], {"to": ir.DataType.DOUBLE})
                graph.insert_after(comparison, cast)
                made = _name(cast.outputs[0])
                made.type = ir.TensorType(ir.DataType.DOUBLE)
                yield made


def _comparisons(value: ir.Value | None) -> list[ir.Node]:
    stack: list[ir.Value | None] = [value]
    seen: set[int] = set()
    found: list[ir.Node] = []
    while stack:
        current = stack.pop()
        node = current.producer() if current is not None else None
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if operator_of(node).compares:
            found.append(node)
        elif node.op_type in _LOGIC or operator_of(node).passes_through != "no":
            stack.extend(node.inputs)
    return found


def _nearness(outputs: Mapping[str, Any]) -> float:
    pairs = [np.asarray(v, dtype=float) for n, v in outputs.items() if n.startswith(_OPERANDS)]
    total = 0.0
    for a, b in zip(pairs[::2], pairs[1::2], strict=False):
        with np.errstate(all="ignore"):
            near = np.abs(a - b)
        total += float(near.min()) if near.size else 0.0
    return total if pairs and np.isfinite(total) else np.inf

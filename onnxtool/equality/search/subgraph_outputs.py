"""Numbers computed in the bodies of If, Loop and Scan, handed out to the graph around them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import onnx_ir as ir

from onnxtool.model.operators.table import STANDARD

_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
_DOUBLE = ir.DataType.DOUBLE


@dataclass(frozen=True)
class Body:
    """A graph and where it stands.

    Attributes:
        graph: the graph.
        path: (graph around, its node, attribute that holds the next graph), outermost first; empty for the main graph.
    """

    graph: ir.Graph
    path: tuple[tuple[ir.Graph, ir.Node, str], ...] = ()


def bodies(graph: ir.Graph) -> Iterator[Body]:
    """The main graph and all that numbers can be handed out of, outer ones first."""
    stack = [Body(graph)]
    while stack:
        body = stack.pop(0)
        yield body
        for node in body.graph:
            for name in _BODIES.get(node.op_type, ()) if node.domain in STANDARD else ():
                inner = node.attributes.get(name)
                if inner is not None and inner.type == ir.AttributeType.GRAPH and _takes_further(node):
                    stack.append(Body(inner.as_graph(), (*body.path, (body.graph, node, name))))


def _takes_further(node: ir.Node) -> bool:
    """Whether a further output is all that it takes: directions and axes of a Scan are listed one by one."""
    return not {"scan_output_axes", "scan_output_directions"} & set(node.attributes)


class HandedOut:
    """Hands numbers out of bodies, the smallest of all iterations.

    Args:
        absent: what stands for a branch that was not taken, and a loop that did not run.
    """

    def __init__(self, absent: float) -> None:
        self._absent = absent
        self._numbers = count()

    def __call__(self, value: ir.Value, body: Body) -> ir.Value:
        """A value of the main graph.

        Args:
            value: one double computed in the body.
            body: which.
        """
        for graph, node, name in reversed(body.path):
            value = self._out(value, graph, node, name)
        return value

    def _out(self, value: ir.Value, graph: ir.Graph, node: ir.Node, name: str) -> ir.Value:
        node.attributes[name].as_graph().outputs.append(value)
        for other in _BODIES[node.op_type]:
            if other != name:
                branch = node.attributes[other].as_graph()
                branch.outputs.append(self._constant(branch, ()))
        node.resize_outputs(len(node.outputs) + 1)
        found = self._named(node.outputs[-1])
        if node.op_type == "If":
            return found
        joined = self._append(graph, "Concat", [found, self._constant(graph, (1,))], {"axis": 0})
        return self._append(graph, "ReduceMin", [joined], {"keepdims": 0})

    def _constant(self, graph: ir.Graph, shape: tuple[int, ...]) -> ir.Value:
        return self._append(graph, "Constant", [], {"value": ir.tensor(np.full(shape, self._absent))})

    def _append(
        self, graph: ir.Graph, operator: str, inputs: list[ir.Value], attributes: dict[str, object]
    ) -> ir.Value:
        node = ir.node(operator, inputs, attributes)  # type: ignore[arg-type]
        graph.append(node)
        return self._named(node.outputs[0])

    def _named(self, value: ir.Value) -> ir.Value:
        value.name, value.type = f"onnxtool.out.{next(self._numbers)}", ir.TensorType(_DOUBLE)
        return value

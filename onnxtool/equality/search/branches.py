"""Branches and loop bodies of a graph: where they stand, and how one is made to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.equality.search.subgraph_outputs import Body, inlined
from onnxtool.model.ir.queries import walk
from onnxtool.model.operators.table import STANDARD

_PARTS = {"then_branch": "then branch", "else_branch": "else branch", "body": "loop body"}


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


def controls(node: ir.Node) -> bool:
    """Whether a node has parts that may not run."""
    return node.op_type in ("If", "Loop") and node.domain in STANDARD


def numbered(graph: ir.Graph) -> dict[ir.Node, int]:
    """The nodes that control parts -> which of them each is, in order."""
    return {node: place for place, node in enumerate(n for n in walk(graph) if controls(n))}


def parts_of(node: ir.Node, body: Body, numbers: Mapping[ir.Node, int]) -> Iterator[GraphPart]:
    """The parts of an If or Loop.

    Args:
        node: which.
        body: the graph that it stands in.
        numbers: of `numbered`.
    """
    inside = tuple((numbers[owner], _PARTS[name]) for _, owner, name in body.path if owner in numbers)
    for part in ("then branch", "else branch") if node.op_type == "If" else ("loop body",):
        yield GraphPart(node.name or node.outputs[0].name or node.op_type, numbers[node], part, inside)


def forced(model: ir.Model, part: GraphPart) -> ir.Model:
    """A copy of a graph in which the conditions on the way to a branch are constants, so that it always runs."""
    copy = inlined(model)
    nodes = list(numbered(copy.graph))
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

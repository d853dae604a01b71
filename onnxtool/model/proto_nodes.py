"""The nodes of a model's protobuf, with those of the graphs inside of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes, each followed by those of the graphs inside of it. Without recursion: a file may nest graphs deeply."""
    pending = [iter(nodes)]
    while pending:
        node = next(pending[-1], None)
        if node is None:
            pending.pop()
        else:
            yield node
            pending.append(inner for graph in inner_graphs(node) for inner in graph.node)


def inside_out(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """Its graph and those inside of nodes, the innermost first: nodes that are put into a graph anew are copies."""
    return [model.graph, *(g for node in all_nodes(model.graph.node) for g in inner_graphs(node))][::-1]

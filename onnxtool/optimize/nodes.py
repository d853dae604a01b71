"""Small questions about nodes and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from onnxtool.model.mapped import lies_beside
from onnxtool.optimize.facts import sizes_of

STANDARD = ("", "ai.onnx")
_WITH_BODIES = frozenset(["If", "Loop", "Scan", "SequenceMap"])
_KEPT_ON_DISK = 1 << 22  # bytes


def walk(graph: ir.Graph) -> Iterator[ir.Node]:
    """Every node of a graph and its subgraphs (onnx_ir's own traversal looks at each attribute, and is far slower)."""
    for node in graph:
        yield node
        if node.op_type in _WITH_BODIES or node.domain not in STANDARD:
            for item in node.attributes.values():
                if item.type == ir.AttributeType.GRAPH and not item.is_ref():
                    yield from walk(item.as_graph())
                elif item.type == ir.AttributeType.GRAPHS and not item.is_ref():
                    for body in item.as_graphs():
                        yield from walk(body)


def is_op(node: ir.Node | None, *op_types: str) -> bool:
    """True for a node of the standard domain with one of these operators."""
    return node is not None and node.domain in STANDARD and node.op_type in op_types


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """An attribute's value: int, float, str, tuple or tensor; `default` when it is absent."""
    found = node.attributes.get(name)
    if found is None or found.is_ref():
        return default
    return tuple(found.value) if isinstance(found.value, (list, tuple)) else found.value


def has_subgraph(node: ir.Node) -> bool:
    """True for If, Loop, Scan and their like."""
    return any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())


def sole_use(value: ir.Value) -> ir.Node | None:
    """The only node that reads a value, if there is just one use and it is no graph output."""
    uses = value.uses()
    return next(iter(uses)).node if len(uses) == 1 and not value.is_graph_output() else None


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The standard-domain node of one of these operators that makes a value, if so."""
    node = value.producer() if value is not None else None
    return node if node is not None and is_op(node, *op_types) else None


def rank_of(value: ir.Value | None) -> int | None:
    """Number of dims, None when unknown."""
    sizes = sizes_of(value)
    return None if sizes is None else len(sizes)


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape when every dim is a number."""
    sizes = sizes_of(value)
    if sizes is None or not all(isinstance(d, int) for d in sizes):
        return None
    return tuple(d for d in sizes if isinstance(d, int))


def on_disk(value: ir.Value) -> bool:
    """True for a large weight in external data, which is better left there than rewritten in memory."""
    return lies_beside(value.const_value) and value.const_value is not None and value.const_value.nbytes > _KEPT_ON_DISK

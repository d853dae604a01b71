"""Which computations of two graphs are the same: a digest of each value, from the inputs and weights on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import onnx_ir as ir

from onnxtool.model.ir.queries import walk


def digests(model: ir.Model) -> dict[str, bytes]:
    """Digest of every value of the main graph, by name: equal for equal operators on equal weights and inputs.

    Args:
        model: its weights are read.
    """
    known: dict[str, bytes] = {}
    for place, value in enumerate(model.graph.inputs):
        known[value.name or ""] = _of("input", place)
    for name, value in model.graph.initializers.items():
        if value.const_value is not None:
            known[name] = _of_tensor(value.const_value)
    for node in model.graph:
        inputs = [known.get(v.name or "", b"?") if v is not None else b"" for v in node.inputs]
        body = [_of_attribute(name, a, known) for name, a in sorted(node.attributes.items())]
        for place, output in enumerate(node.outputs):
            known[output.name or ""] = _of(node.domain, node.op_type, place, inputs, body)
    return known


def _of(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def _of_tensor(tensor: ir.TensorProtocol) -> bytes:
    found = hashlib.blake2b(repr((str(tensor.dtype), tuple(tensor.shape))).encode(), digest_size=16)
    found.update(tensor.tobytes())
    return found.digest()


def _of_attribute(name: str, item: ir.Attr, outer: dict[str, bytes]) -> object:
    if item.type == ir.AttributeType.TENSOR:
        return name, _of_tensor(item.as_tensor())
    if item.type == ir.AttributeType.GRAPH:
        return name, _of_body(item.as_graph(), outer)
    return name, repr(item.value)


def _of_body(graph: ir.Graph, outer: dict[str, bytes]) -> list[object]:
    """A subgraph by its nodes in order, with what each reads, what it captures, and the weights it holds."""
    found: list[object] = [_of_tensor(v.const_value) for v in graph.initializers.values() if v.const_value is not None]
    places: dict[int, int] = {}  # values of the subgraph and of those in it, by their order

    def place(values: Sequence[ir.Value]) -> None:
        for value in values:
            places[id(value)] = len(places)

    place(list(graph.inputs))
    place(list(graph.initializers.values()))
    results: list[ir.Value] = list(graph.outputs)
    for node in walk(graph):
        for item in node.attributes.values():
            if item.type == ir.AttributeType.GRAPH:
                inner = item.as_graph()
                place([*inner.inputs, *inner.initializers.values()])
                found += [_of_tensor(v.const_value) for v in inner.initializers.values() if v.const_value is not None]
                results = [*results, *inner.outputs]
        read = [
            places[id(v)] if id(v) in places else outer.get(v.name or "", b"") if v is not None else b""
            for v in node.inputs
        ]
        plain = [
            _of_attribute(n, a, outer)
            for n, a in sorted(node.attributes.items())
            if a.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
        ]
        found.append((node.domain, node.op_type, read, plain))
        place(list(node.outputs))
    found.append([places.get(id(v), outer.get(v.name or "", b"")) for v in results])
    return found

"""Which nodes of a file each node of the runtime's own graph does the work of.

The runtime fuses nodes, changes layouts and renames tensors when it loads a model, and does not say which became which.
What remains are names: most tensors keep theirs, and new nodes and tensors are called after old ones ("relu_1_nchwc").
A node of the runtime makes a tensor of the file out of other tensors that the runtime still has; all that lies between
them in the file has become this node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import onnx

from onnxtool.model.proto_nodes import all_nodes, inner_graphs

_BOUNDARY = re.compile(r"(?=[^A-Za-z0-9])")
# What the runtime puts in to change a layout or a type is called after what it changes, but is not made of it.
_INSERTED = (
    "Transpose", "Cast", "Identity", "ReorderInput", "ReorderOutput", "QuantizeLinear", "DequantizeLinear",
    "MemcpyFromHost", "MemcpyToHost",
)  # fmt: skip


def original_nodes(source: onnx.ModelProto, run: onnx.ModelProto) -> dict[int, tuple[onnx.NodeProto, ...]]:
    """For each node of `run` (by its position in `all_nodes`), the nodes of `source` that became it.

    Args:
        source: the file.
        run: the graph that the runtime made of it.
    """
    file = _File(source)
    nodes = list(all_nodes(run.graph.node))
    anchors = [[file.tensor(name, node) for name in node.output if name] for node in nodes]
    kept = {a for found in anchors for a in found if a}
    claimed: set[int] = set()
    result: dict[int, tuple[onnx.NodeProto, ...]] = {}
    for position, found in enumerate(anchors):
        behind = [n for a in dict.fromkeys(found) if a for n in file.behind(a, kept - set(found))]
        own = {id(n): n for n in behind if id(n) not in claimed}
        claimed |= own.keys()
        result[position] = tuple(own.values())
    return result


def label(node: onnx.NodeProto) -> str:
    """A node's name or, unnamed, its first output."""
    return node.name or next((n for n in node.output if n), node.op_type)


class _File:
    """The nodes of a file by what they make."""

    def __init__(self, model: onnx.ModelProto) -> None:
        nodes = [n for n in all_nodes(model.graph.node) if n.op_type != "Constant"]
        self._makers = {name: n for n in nodes for name in n.output if name}
        self._by_name: Mapping[str, onnx.NodeProto] = {n.name: n for n in nodes if n.name}

    def tensor(self, output: str, node: onnx.NodeProto) -> str | None:
        """The file's tensor that an output of the runtime's graph stands for."""
        if output in self._makers:
            return output
        if node.op_type in _INSERTED:
            return None
        for name in (node.name, output):
            for shorter in _beginnings(name):
                if shorter in self._makers:
                    return shorter
                if shorter in self._by_name:
                    return next((n for n in self._by_name[shorter].output if n), None)
        return None

    def behind(self, tensor: str, stops: Iterable[str]) -> list[onnx.NodeProto]:
        """The nodes that make a tensor out of `stops`, in the order of the data."""
        ends = set(stops)
        found: dict[int, onnx.NodeProto] = {}
        pending = [tensor]
        while pending:
            node = self._makers.get(pending.pop())
            if node is None or id(node) in found:
                continue
            found[id(node)] = node
            pending += [n for n in _reads(node) if n not in ends]
        return list(found.values())[::-1]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The inputs, and what graphs inside the node take from outside."""
    yield from (n for n in node.input if n)
    for inner in inner_graphs(node):
        own = {name for each in inner.node for name in each.output} | {v.name for v in inner.input}
        yield from (name for each in inner.node for name in _reads(each) if name not in own)


def _beginnings(name: str) -> Iterator[str]:
    """A name, then ever shorter beginnings of it that end before a character such as "_" or "/"."""
    yield name
    cuts = [m.start() for m in _BOUNDARY.finditer(name)]
    yield from (name[:c] for c in reversed(cuts) if c)

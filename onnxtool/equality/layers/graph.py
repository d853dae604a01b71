"""Who makes and who reads each tensor of a model's main graph, for finding where two models part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from onnxtool.model.header import operator_name
from onnxtool.report.layers import Suspect


@dataclass(frozen=True)
class LayerGraph:
    """A model's main graph by tensor name.

    Attributes:
        model: the model.
        producers: tensor -> the node that makes it; Constant nodes count as weights.
        order: tensor -> position of that node.
        weights: name -> content of each initializer and constant.
    """

    model: ir.Model
    producers: Mapping[str, ir.Node]
    order: Mapping[str, int]
    weights: Mapping[str, ir.TensorProtocol]

    @classmethod
    def of(cls, model: ir.Model) -> LayerGraph:
        """Index a model."""
        producers: dict[str, ir.Node] = {}
        order: dict[str, int] = {}
        weights = {n: v.const_value for n, v in model.graph.initializers.items() if v.const_value is not None}
        for index, node in enumerate(model.graph):
            constant = ir.convenience.get_const_tensor(node.outputs[0]) if _is_constant(node) else None
            if constant is not None:
                weights[node.outputs[0].name or ""] = constant
                continue
            for output in node.outputs:
                if output.name:
                    producers[output.name], order[output.name] = node, index
        return cls(model, producers, order, weights)

    @staticmethod
    def output_names(model: ir.Model) -> list[str]:
        """The graph outputs."""
        return [v.name or "" for v in model.graph.outputs]

    def value(self, tensor: str) -> ir.Value:
        """The value of that name; it has a producer."""
        return next(o for o in self.producers[tensor].outputs if o.name == tensor)

    def heirs(self, tensor: str, stops: Iterable[str]) -> set[str]:
        """The nearest tensors in `stops` that are made of `tensor`."""
        ends = set(stops) - {tensor}
        readers = self._readers
        seen: set[int] = set()
        reached: set[str] = set()
        pending = [tensor]
        while pending:
            for node in readers.get(pending.pop(0), ()):
                if id(node) in seen:
                    continue
                seen.add(id(node))
                for output in node.outputs:
                    if output.name in ends:
                        reached.add(output.name)
                    elif output.name:
                        pending.append(output.name)
        return reached

    @cached_property
    def _readers(self) -> dict[str, list[ir.Node]]:
        found: dict[str, list[ir.Node]] = {}
        for node in self.model.graph:
            for name in self.reads(node):
                found.setdefault(name, []).append(node)
        return found

    def reads(self, node: ir.Node) -> list[str]:
        """Tensors that a node reads, those that its subgraphs capture included."""
        names = [v.name for v in node.inputs if v is not None and v.name]
        for attribute in node.attributes.values():
            for graph in _subgraphs(attribute):
                own = {o.name for n in graph.all_nodes() for o in n.outputs} | {v.name for v in graph.inputs}
                used = {v.name for n in graph.all_nodes() for v in n.inputs if v is not None}
                names += sorted(n for n in used - own if n)
        return names

    def behind(self, tensor: str, stops: Iterable[str]) -> tuple[list[ir.Node], set[str]]:
        """The nodes that make `tensor` out of `stops`, and which of those they read.

        Walks back from the tensor's producer; ends at tensors in `stops`, inputs and initializers.

        Returns:
            (nodes, nearest first; tensors at which the walk ended).
        """
        ends = set(stops) - {tensor}
        nodes: dict[int, ir.Node] = {}
        reached: set[str] = set()
        pending = [tensor]
        while pending:
            node = self.producers.get(pending.pop(0))
            if node is None or id(node) in nodes:
                continue
            nodes[id(node)] = node
            for name in self.reads(node):
                if name in ends:
                    reached.add(name)
                else:
                    pending.append(name)
        return list(nodes.values()), reached

    def suspects(self, nodes: Iterable[ir.Node], label: str, changed: set[str]) -> list[Suspect]:
        """Nodes as a report has them."""
        found = []
        for node in nodes:
            inputs = tuple(self.reads(node))
            weights = tuple(n for n in inputs if n in changed)
            name = node.name or next((o.name for o in node.outputs if o.name), "")
            found.append(Suspect(label, name, operator_name(node.domain, node.op_type), inputs, weights))
        return found


def changed_weights(a: LayerGraph, b: LayerGraph) -> set[str]:
    """Initializers and constants of one name in both models whose content differs."""
    return {n for n in a.weights.keys() & b.weights.keys() if not _same(a.weights[n], b.weights[n])}


def _same(a: ir.TensorProtocol, b: ir.TensorProtocol) -> bool:
    if a.dtype != b.dtype or tuple(a.shape) != tuple(b.shape):
        return False
    x, y = a.numpy(), b.numpy()
    if a.dtype == ir.DataType.STRING:
        return bool(np.array_equal(x, y))
    # Bytes, not numbers: NaN is the same as NaN here.
    x, y = (np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (x, y))
    return bool(np.array_equal(x, y))


def _is_constant(node: ir.Node) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


def _subgraphs(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.value]
    return list(attribute.value) if attribute.type == ir.AttributeType.GRAPHS else []

"""A model as the rules of `check` see it: who makes and who reads each tensor, weights one at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.model.header import ModelHeader, element_type, operator_name, read_header
from onnxtool.model.randomness import is_random_proto
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import external_ref, graphs

_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training")


@dataclass(frozen=True)
class ModelView:
    """What the rules need of one model; computed when first asked for.

    Attributes:
        path: the file.
        proto: its content, external data left where it is.
    """

    path: Path
    proto: onnx.ModelProto

    @cached_property
    def header(self) -> ModelHeader:
        """The outside of the model."""
        return read_header(self.proto)

    @cached_property
    def nodes(self) -> list[onnx.NodeProto]:
        """All nodes: main graph, subgraphs, functions."""
        found = [node for graph in graphs(self.proto, DEFAULT) for node in graph.node]
        return found + [node for function in self.proto.functions for node in function.node]

    @cached_property
    def graphs_outside_functions(self) -> list[onnx.GraphProto]:
        """The main graph and its subgraphs."""
        plain = onnx.ModelProto(graph=self.proto.graph) if self.proto.functions else self.proto
        return list(graphs(plain, DEFAULT))

    @cached_property
    def producers(self) -> Mapping[str, onnx.NodeProto]:
        """Tensor -> the node of the main graph that makes it."""
        return {name: node for node in self.proto.graph.node for name in node.output if name}

    @cached_property
    def readers(self) -> Mapping[str, list[onnx.NodeProto]]:
        """Tensor -> the nodes that read it, those of subgraphs included."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def output_names(self) -> frozenset[str]:
        """Outputs of the main graph and of all subgraphs."""
        return frozenset(v.name for graph in graphs(self.proto, DEFAULT) for v in graph.output)

    @cached_property
    def initializers(self) -> Mapping[str, onnx.TensorProto]:
        """The weights of the main graph, by name."""
        return {t.name: t for t in self.proto.graph.initializer}

    @cached_property
    def constants(self) -> frozenset[str]:
        """Tensors of the main graph that hold the same values in every run, initializers included."""
        inputs = {v.name for v in self.proto.graph.input}
        known = {t.name for t in self.proto.graph.initializer} - inputs
        for node in self.proto.graph.node:
            if node.op_type == "Constant" or (
                node.input and self.is_pure(node) and all(not n or n in known for n in node.input)
            ):
                known.update(node.output)
        return frozenset(known)

    @cached_property
    def random_nodes(self) -> list[onnx.NodeProto]:
        """Those of `nodes` that may draw random numbers."""
        return [node for node in self.nodes if self.is_random(node)]

    def is_random(self, node: onnx.NodeProto) -> bool:
        """May it give other values each time it runs? See `onnxtool.model.randomness`."""
        return is_random_proto(node, self._constant)

    def is_pure(self, node: onnx.NodeProto) -> bool:
        """Does it give the same outputs for the same inputs, and nothing else? Subgraphs count as not."""
        return not self.is_random(node) and not any(a.HasField("g") or a.graphs for a in node.attribute)

    def _constant(self, name: str) -> np.ndarray | None:
        """The values of a tensor by its name, where only one tensor of all graphs and functions bears it."""
        found = self._tensors.get(name, [])
        return self.values(found[0]) if len(found) == 1 and found[0] is not None else None

    @cached_property
    def _tensors(self) -> Mapping[str, list[onnx.TensorProto | None]]:
        """Name -> what defines it: an initializer, a Constant's tensor, or None for all else."""
        found: dict[str, list[onnx.TensorProto | None]] = {}
        for graph in graphs(self.proto, DEFAULT):
            for value in graph.input:
                found.setdefault(value.name, []).append(None)
            for tensor in graph.initializer:
                found.setdefault(tensor.name, []).append(tensor)
        for name in (name for function in self.proto.functions for name in function.input):
            found.setdefault(name, []).append(None)
        for node in self.nodes:
            held = next((a.t for a in node.attribute if node.op_type == "Constant" and a.HasField("t")), None)
            for name in node.output:
                found.setdefault(name, []).append(held)
        return found

    def weights(self) -> Iterator[tuple[onnx.TensorProto, np.ndarray]]:
        """Every numeric initializer, and large Constant, with its values; external ones are memory-mapped."""
        for graph in graphs(self.proto, DEFAULT):
            for tensor in graph.initializer:
                values = self.values(tensor)
                if values is not None:
                    yield tensor, values
            for node in graph.node:
                if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
                    values = self.values(node.attribute[0].t)
                    if values is not None and values.size > 1:
                        yield node.attribute[0].t, values

    def values(self, tensor: onnx.TensorProto) -> np.ndarray | None:
        """A tensor's values; None for strings and for types that numpy does not have."""
        kind = element_type(tensor.data_type)
        if isinstance(kind, str):
            return None
        reference = external_ref(tensor)
        if reference is None:
            return numpy_helper.to_array(tensor)
        if math.prod(tensor.dims) == 0:
            return np.empty(tuple(tensor.dims), kind)
        place = self.path.parent / reference.location
        return np.memmap(place, dtype=kind, mode="r", offset=reference.offset, shape=tuple(tensor.dims))


def is_standard(domain: str) -> bool:
    """Is the domain one of the ONNX project's own?"""
    return domain in _STANDARD


def label(node: onnx.NodeProto) -> str:
    """How to name a node to a person: by its name, else by what it makes."""
    kind = operator_name(node.domain, node.op_type)
    return f"{kind} {node.name!r}" if node.name else f"{kind} -> {', '.join(n for n in node.output if n)!r}"

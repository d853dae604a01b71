"""Adding standard operators before or behind a model's own graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.editing.free_names import node_names, taken_names
from onnxtool.model.ir.editing import new_initializer


class Builder:
    """Makes nodes with free names, and puts them at one place of the graph.

    Args:
        model: changed in place.
        prefix: of all new names.
    """

    def __init__(self, model: ir.Model, prefix: str) -> None:
        self.model, self.prefix = model, prefix
        self._taken = taken_names(model) | node_names(model)
        self.nodes: list[ir.Node] = []

    def free(self, base: str) -> str:
        """A name that starts with the prefix and is free."""
        name, number = f"{self.prefix}_{base}", 1
        while name in self._taken:
            number += 1
            name = f"{self.prefix}_{base}_{number}"
        self._taken.add(name)
        return name

    def constant(self, array: Any, base: str, dtype: Any = None) -> ir.Value:
        """A weight."""
        return new_initializer(self.model.graph, self.free(base), np.asarray(array, dtype))

    def strings(self, words: Sequence[str], base: str) -> ir.Value:
        """A weight of strings."""
        name = self.free(base)
        tensor = ir.StringTensor([w.encode() for w in words], shape=ir.Shape([len(words)]), name=name)
        value = ir.Value(name=name, type=ir.TensorType(ir.DataType.STRING), shape=tensor.shape, const_value=tensor)
        self.model.graph.register_initializer(value)
        return value

    def add(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        base: str,
        attributes: Mapping[str, Any] | None = None,
        dtype: ir.DataType | None = None,
        domain: str = "",
    ) -> ir.Value:
        """A node with one output."""
        return self.add_many(op_type, inputs, (base,), attributes, dtype, domain)[0]

    def add_many(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        bases: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        dtype: ir.DataType | None = None,
        domain: str = "",
    ) -> Sequence[ir.Value]:
        """A node with as many outputs as there are names."""
        names = [self.free(b) for b in bases]
        node = ir.node(op_type, inputs, dict(attributes or {}), domain=domain, num_outputs=len(bases), name=names[0])
        for value, name in zip(node.outputs, names, strict=True):
            value.name = name
            if dtype is not None:
                value.type = ir.TensorType(dtype)
        self.nodes.append(node)
        return node.outputs

    def at_start(self) -> None:
        """Put the nodes before all others."""
        graph = self.model.graph
        if len(graph):
            graph.insert_before(graph[0], self.nodes)
        else:
            graph.extend(self.nodes)

    def at_end(self) -> None:
        """Put the nodes behind all others."""
        self.model.graph.extend(self.nodes)

"""Names that are free in a model, and new nodes under such names before or behind a model's own graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from itertools import chain, count
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.errors import UsageError
from onnxtool.model.ir.editing import add_tensor, as_tensor, new_initializer, put_first
from onnxtool.model.ir.queries import bodies_of, walk

_SHOWN = 12


def split_pair(option: str, text: str, separator: str = "=", form: str = "A=B") -> tuple[str, str]:
    """Cut "A=B" in two; "A:B" at the last colon, because names of TensorFlow's tensors have colons.

    Raises:
        UsageError: another form.
    """
    left, found, right = text.rpartition(separator) if separator == ":" else text.partition(separator)
    if not found or not left.strip() or not right.strip():
        raise UsageError(f"--{option} {text}: write {form}.")
    return left.strip(), right.strip()


def unknown(option: str, what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not there, with the nearest one that is."""
    names = list(known)
    near = get_close_matches(name, names, 1, 0.5) or [n for n in names if n.lower() == name.lower()][:1]
    if near:
        return UsageError(f"--{option}: there is no {what} {name!r}; did you mean {near[0]!r}?")
    listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return UsageError(f"--{option}: there is no {what} {name!r}; the model has {listed or 'none'}.")


def find_input(model: ir.Model, name: str, option: str) -> ir.Value:
    """The graph input of that name.

    Raises:
        UsageError: no such input; the message says the nearest name.
    """
    return _found(model.graph.inputs, "input", name, option)


def find_output(model: ir.Model, name: str, option: str) -> ir.Value:
    """The graph output of that name.

    Raises:
        UsageError: no such output.
    """
    return _found(model.graph.outputs, "output", name, option)


def find_tensor(model: ir.Model, name: str, option: str) -> ir.Value:
    """A value of the main graph: an input, a weight or what a node makes.

    Raises:
        UsageError: no such value.
    """
    return _found(list(main_values(model.graph)), "tensor", name, option)


def _found(values: Sequence[ir.Value], what: str, name: str, option: str) -> ir.Value:
    found = next((v for v in values if v.name == name), None)
    if found is None:
        raise unknown(option, what, name, [v.name for v in values if v.name])
    return found


def main_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Inputs, initializers and node outputs of a graph, without those of subgraphs."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def taken_names(model: ir.Model) -> set[str]:
    """Names of all values of all graphs."""
    names = {v.name for v in main_values(model.graph) if v.name}
    for node in walk(model.graph):
        names.update(v.name for v in node.outputs if v.name)
        for body in bodies_of(node):
            names.update(v.name for v in (*body.inputs, *body.initializers.values()) if v.name)
    return names


def node_names(model: ir.Model) -> set[str]:
    """Names of all nodes of all graphs; the runtime wants each but once."""
    return {n.name for n in walk(model.graph) if n.name}


def free_name(model: ir.Model, base: str) -> str:
    """`base`, or `base_2` and so on where a value or a node has it."""
    return _free(taken_names(model) | node_names(model), base)


def _free(taken: Set[str], base: str) -> str:
    numbered = (f"{base}_{number}" for number in count(2))
    return next(name for name in chain([base], numbered) if name not in taken)


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
        name = _free(self._taken, f"{self.prefix}_{base}")
        self._taken.add(name)
        return name

    def constant(self, array: Any, base: str, dtype: Any = None) -> ir.Value:
        """A weight."""
        return new_initializer(self.model.graph, self.free(base), np.asarray(array, dtype))

    def strings(self, words: Sequence[str], base: str) -> ir.Value:
        """A weight of strings."""
        return add_tensor(self.model.graph, as_tensor(np.array(words, object), self.free(base)))

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
        put_first(self.model.graph, *self.nodes)

    def at_end(self) -> None:
        """Put the nodes behind all others."""
        self.model.graph.extend(self.nodes)

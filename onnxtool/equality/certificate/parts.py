"""The parts in which two models compute in different ways, cut out between values that they share.

A value is shared where both models have it at a random point of the field. Where the nodes that make it are not the
same, its part is what lies behind it in each model, back to the nearest shared values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from onnxtool.equality.certificate.field import Field
from onnxtool.equality.certificate.interpreter import Interpreter
from onnxtool.equality.certificate.ledger import constants_of
from onnxtool.equality.certificate.values import Item, Value
from onnxtool.model.cut_model import captured_names

Key = tuple[str, tuple[int, ...], object]  # what two equal values have in common: dtype, shape and a hash


@dataclass(frozen=True)
class ModelPart:
    """How each of two models makes one value.

    Attributes:
        output: its name in A and in B.
        nodes: that make it, in A and in B, in their order; none where it is an input.
        inputs: the values that go in, which both have, by their names in A.
        theirs: the values that go in on B's side: name in B -> name in A. Two of B may be one of A.
    """

    output: tuple[str, str]
    nodes: tuple[tuple[onnx.NodeProto, ...], tuple[onnx.NodeProto, ...]]
    inputs: tuple[str, ...]
    theirs: Mapping[str, str]

    @property
    def kind(self) -> str:
        """The operators on both sides: parts of one kind differ in their constants alone."""
        return " against ".join(" ".join(n.op_type for n in nodes) or "the same value" for nodes in self.nodes)


class Evaluated:
    """A model at a random point, by what its values are.

    Args:
        model: the model.
        point: the point.
        constants: elements that stand for its constants.
        feeds: of all inputs, as elements.
        memory: results of costly operators at this point.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        point: Field,
        constants: Mapping[str, np.ndarray],
        feeds: Mapping[str, Value],
        memory: dict[object, Item],
    ) -> None:
        self.producers = {name: node for node in model.graph.node for name in node.output if name}
        self.order = {name: i for i, node in enumerate(model.graph.node) for name in node.output if name}
        self.inputs, self.outputs = tuple(feeds), tuple(o.name for o in model.graph.output)
        self._constants = {name: _digest(a) for name, a in constants_of(model).items()}
        plain = Interpreter(onnx.ModelProto(), point)
        self.keys: dict[str, Key] = {name: _key(plain, value) for name, value in feeds.items()}

        def see(_: onnx.NodeProto, name: str, value: Item) -> None:
            if name in self.producers and isinstance(value, Value) and value.data.dtype.kind not in "OUS":
                self.keys[name] = _key(plain, value)

        Interpreter(model, point, constants, see=see, memory=memory).run(feeds)
        moving = set(feeds)
        for node in model.graph.node:
            if not moving.isdisjoint(captured_names(node)) or node.op_type.startswith("Random"):
                moving.update(node.output)
        self.values = {name: key for name, key in self.keys.items() if name in moving}

    def computation(self, name: str) -> object:
        """What makes a value: the operator, its attributes and what it reads."""
        node = self.producers[name]
        read = tuple(self._constants.get(n, self.keys.get(n)) for n in node.input)
        inner = tuple(sorted(str(self.keys.get(n)) for n in captured_names(node) - set(node.input)))
        attributes = tuple(sorted(a.SerializeToString(deterministic=True) for a in node.attribute))
        return node.domain, node.op_type, list(node.output).index(name), attributes, read, inner

    def behind(self, name: str, stops: set[str]) -> tuple[tuple[onnx.NodeProto, ...], set[str]]:
        """The nodes that make a value out of others, and which of those they read."""
        names: set[str] = set()
        ends: set[str] = set()
        pending = [name]
        while pending:
            own = pending.pop()
            if own in names or own not in self.producers:
                continue
            names.add(own)
            for read in captured_names(self.producers[own]):
                if read in stops:
                    ends.add(read)
                else:
                    pending.append(read)
        nodes = {self.order[n]: self.producers[n] for n in names}
        return tuple(nodes[i] for i in sorted(nodes) if nodes[i].op_type != "Constant"), ends


def parts_of(a: Evaluated, b: Evaluated) -> list[ModelPart]:
    """Where values that both models have are made in different ways, in the order of B."""
    first: dict[Key, str] = {}
    for name, key in a.values.items():
        first.setdefault(key, name)
    known = {a.computation(name) for name in a.values if name in a.producers}
    outputs = dict(zip(b.outputs, a.outputs, strict=True))
    found = []
    for name, key in b.values.items():
        own = outputs.get(name, name if a.values.get(name) == key else first.get(key, ""))
        if not own or a.values.get(own) != key or name not in b.producers:
            continue
        if b.computation(name) in ({a.computation(own)} if name in outputs and own in a.producers else known):
            continue
        stops_a = _stops(a, key, b.values.values())
        stops_b = _stops(b, key, first)
        nodes_a, ends_a = a.behind(own, stops_a)
        nodes_b, ends_b = b.behind(name, stops_b)
        theirs = {n: _partner(n, b, a, first) for n in ends_b}
        inputs = tuple(dict.fromkeys([*ends_a, *theirs.values()]))
        found.append(ModelPart((own, name), (nodes_a, nodes_b), inputs, theirs))
    return found


def _partner(name: str, own: Evaluated, other: Evaluated, known: Mapping[Key, str]) -> str:
    """The value of the other model that is the same; the one of that name, if it is."""
    key = own.values[name]
    return name if other.values.get(name) == key else known[key]


def _stops(model: Evaluated, output: Key, shared: Iterable[Key]) -> set[str]:
    """Values at which a part ends; those that are the output itself, under another name, do not count."""
    keys = set(shared) - {output}
    return {n for n, key in model.values.items() if key in keys or n in model.inputs}


def _key(plain: Interpreter, value: Value) -> Key:
    return value.dtype.name, value.data.shape, plain.field.fingerprint(plain.elements(value))


def _digest(array: np.ndarray) -> Key:
    content = repr(array.tolist()).encode() if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes()
    return array.dtype.name, array.shape, hashlib.blake2b(content, digest_size=16).digest()

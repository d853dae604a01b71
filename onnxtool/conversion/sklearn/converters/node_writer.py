"""Adding nodes to a graph that skl2onnx is building, in a converter of our own."""

from __future__ import annotations

from typing import Any

import numpy as np

FLOAT, INT64, DOUBLE = 1, 7, 11  # as onnx.TensorProto counts them
STRING = 8
_KINDS = {"float32": FLOAT, "float64": DOUBLE, "int64": INT64}
_ML = "ai.onnx.ml"
_KIND_OF = {"DoubleTensorType": DOUBLE, "Int64TensorType": INT64}
_OLDER = {"TopK": 11, "Equal": 11, "Where": 9}  # operators that are older than version 13


class NodeWriter:
    """Adds nodes to a container of skl2onnx, and gives the names of their outputs.

    Args:
        scope, container: what a converter is given.
        prefix: of the names.
    """

    def __init__(self, scope: Any, container: Any, prefix: str) -> None:
        self._scope, self._container, self._prefix = scope, container, prefix

    def constant(self, array: Any) -> str:
        """Floats, doubles, int64 or texts, as NumPy has them."""
        values = np.asarray(array)
        name = self._name("constant")
        if values.dtype.kind in "OU":
            texts = [str(text).encode() for text in values.reshape(-1)]
            self._container.add_initializer(name, STRING, list(values.shape), texts)
            return name
        numbers = values.reshape(-1).tolist()
        self._container.add_initializer(name, _KINDS[values.dtype.name], list(values.shape), numbers)
        return name

    def add(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """A node of one output.

        Args:
            kind: an operator of the standard.
            inputs: values.
            name: of its output, where that is known.
            attributes: of the operator.
        """
        return self._node(kind, inputs, [name or self._name(kind)], attributes)[0]

    def add_of(self, domain: str, version: int, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node of one output, of an operator that the standard does not have."""
        name = self._name(kind)
        self._node(kind, inputs, [name], {**attributes, "op_domain": domain}, version)
        return name

    def looked_up(self, value: str, **tables: Any) -> str:
        """What a table of keys (`keys_strings`, ...) has for values (`values_floats`, ...), else its default."""
        return self.add_of(_ML, 2, "LabelEncoder", value, **tables)

    def joined(self, inputs: Any) -> str:
        """The columns of all inputs as one matrix of doubles."""
        parts = [self.cast(given.full_name, DOUBLE) for given in inputs]
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)

    def give(self, value: str, output: Any) -> None:
        """Make a value one of a converter's outputs, in the type that was declared for it."""
        self.cast(value, _KIND_OF.get(type(output.type).__name__, FLOAT), output.full_name)

    def give_labels(self, places: str, classes: Any, output: Any) -> None:
        """Make labels of the places of classes, [rows]."""
        texts = np.asarray(classes).dtype.kind in "OU"
        labels = np.asarray(classes) if texts else np.asarray(classes).astype(np.int64)
        self.add("Gather", self.constant(labels), places, axis=0, name=output.full_name)

    def give_most_likely(self, chances: str, classes: Any, outputs: Any) -> None:
        """Make chances [rows, classes], and the labels of the largest, a classifier's outputs."""
        self.give_labels(self.add("ArgMax", chances, axis=1, keepdims=0), classes, outputs[0])
        self.give(chances, outputs[1])

    def cast(self, value: str, kind: int, name: str | None = None) -> str:
        """A value in another type."""
        return self.add("Cast", value, name=name, to=kind)

    def smallest(self, value: str, count: str) -> tuple[str, str]:
        """The smallest of each row, and where they stand."""
        names = [self._name("TopK") for _ in range(2)]
        values, places = self._node("TopK", (value, count), names, {"axis": 1, "largest": 0, "sorted": 1})
        return values, places

    def _name(self, what: str) -> str:
        return str(self._scope.get_unique_variable_name(f"{self._prefix}_{what}"))

    def _node(
        self, kind: str, inputs: tuple[str, ...], names: list[str], attributes: dict[str, Any], version: int = 0
    ) -> list[str]:
        own = self._scope.get_unique_operator_name(f"{self._prefix}_{kind}")
        version = version or _OLDER.get(kind, 13)
        self._container.add_node(kind, list(inputs), names, op_version=version, name=own, **attributes)
        return names

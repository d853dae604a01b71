"""Adding nodes to a graph that skl2onnx is building, in a converter of our own."""

from __future__ import annotations

from typing import Any

import numpy as np

FLOAT, INT64, DOUBLE = 1, 7, 11  # as onnx.TensorProto counts them
_KINDS = {"float32": FLOAT, "float64": DOUBLE, "int64": INT64}
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
        """Floats, doubles or int64, as NumPy has them."""
        values = np.asarray(array)
        name = self._name("constant")
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

    def _node(self, kind: str, inputs: tuple[str, ...], names: list[str], attributes: dict[str, Any]) -> list[str]:
        own = self._scope.get_unique_operator_name(f"{self._prefix}_{kind}")
        version = _OLDER.get(kind, 13)
        self._container.add_node(kind, list(inputs), names, op_version=version, name=own, **attributes)
        return names

"""The nodes of one step of a Loop or Scan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import Operand

if TYPE_CHECKING:
    import onnx


class LoopBody:
    """Collects nodes. What it takes from around it are inputs: skl2onnx puts nodes in order by these alone.

    Args:
        name: begins the names of its values, which differ from those of the graphs around it and inside it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: Operand, outputs: int = 1, **attributes: Any) -> Any:
        """A node: the name of its output, or of each where there are several."""
        from onnx import helper

        names = [f"{self._name}_{len(self._nodes)}_{number}" for number in range(outputs)]
        given = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        self._nodes.append(helper.make_node(kind, given, names, **attributes))
        return names[0] if outputs == 1 else names

    def graph(self, inputs: Mapping[str, tuple[int, int]], outputs: Mapping[str, tuple[int, int]]) -> onnx.GraphProto:
        """The step.

        Args:
            inputs, outputs: names, with the element type and the rank of each.
        """
        from onnx import helper

        given, results = (
            [helper.make_tensor_value_info(name, kind, [None] * rank) for name, (kind, rank) in values.items()]
            for values in (inputs, outputs)
        )
        return helper.make_graph(self._nodes, self._name, given, results, self._constants)

    def _constant(self, value: float | np.ndarray) -> str:
        from onnx import numpy_helper

        name = f"{self._name}_constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

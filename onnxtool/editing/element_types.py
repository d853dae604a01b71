"""Element types and shapes of inner tensors, where the file does not state them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxtool.errors import UnsupportedError
from onnxtool.model.operators.shape_inference import infer_shapes
from onnxtool.model.operators.value_facts import sizes_of
from onnxtool.optimization.type_inference import infer_types


def inferred(model: ir.Model) -> ir.Model:
    """A copy of the model in which types and sizes are worked out; values have the same names."""
    copied = model.clone()
    for graph in copied.graphs():
        for node in graph:
            for value in node.outputs:
                if not value.is_graph_output():
                    value.shape = None
                if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                    value.const_value = ir.convenience.get_const_tensor(value)
    infer_types(copied)
    infer_shapes(copied)
    return copied


def complete_types(model: ir.Model, values: Sequence[ir.Value]) -> None:
    """Fill in the types and shapes of values of the main graph that become inputs or outputs.

    Raises:
        UnsupportedError: the type of one cannot be worked out.
    """
    if all(v.type is not None and v.shape is not None for v in values):
        return
    known = {v.name: v for node in inferred(model).graph for v in node.outputs if v.name}
    for value in values:
        match = known.get(value.name or "")
        if match is None:
            continue
        value.type = value.type or match.type
        sizes = sizes_of(match)
        if value.shape is None and sizes is not None:
            value.shape = ir.Shape([s if isinstance(s, int) else None if s.anonymous else str(s) for s in sizes])
    for value in values:
        if value.type is None:
            raise UnsupportedError(f"the element type of {value.name!r} cannot be worked out.")

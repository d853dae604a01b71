"""Small graph questions asked of onnx_ir."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from onnxtool.model import map_types
from onnxtool.model.header import operator_name
from onnxtool.model.spec import ONNX_TO_NUMPY, TensorSpec


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of the main graph, its subgraphs and the model-local functions."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def operator_counts(model: ir.Model) -> dict[str, int]:
    """Operator name -> number of nodes, most frequent first."""
    counts: dict[str, int] = {}
    for node in all_nodes(model):
        name = operator_name(node.domain, node.op_type)
        counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def input_specs(model: ir.Model) -> tuple[TensorSpec, ...]:
    """What a caller must feed: graph inputs without a default."""
    return tuple(value_spec(v) for v in model.graph.inputs if v.name not in model.graph.initializers)


def output_specs(model: ir.Model) -> tuple[TensorSpec, ...]:
    """The graph outputs."""
    return tuple(value_spec(v) for v in model.graph.outputs)


def value_spec(value: ir.Value) -> TensorSpec:
    """The TensorSpec of a value; unknown type is "unknown"."""
    kind = type(value.type).__name__.removesuffix("Type").lower()
    if value.type is None or kind not in ("tensor", "none"):
        hidden = map_types.kind_of(value) or "unknown"
        return TensorSpec(value.name or "", hidden if value.type is None else kind, None)
    name = value.type.dtype.name
    dims = None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
    return TensorSpec(value.name or "", ONNX_TO_NUMPY.get(name, name.lower()), dims)


def constant_array(value: ir.Value | None) -> np.ndarray | None:
    """The array behind an initializer or a Constant node's output; None when it is not constant."""
    if value is None:
        return None
    if value.const_value is not None:
        if value.is_graph_input():
            return None  # an overridable default is no constant
        return value.const_value.numpy()
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    constant = ir.convenience.get_const_tensor(value)
    return None if constant is None else constant.numpy()

"""Small graph questions asked of onnx_ir."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.model.header import operator_name
from onnxtool.model.io import set_aside
from onnxtool.model.io.lazy_read import is_external
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.model.spec import ONNX_TO_NUMPY, TensorSpec, with_columns

QUANTIZATION = "quant_parameter_tensor_names"  # where onnx_ir keeps the quantization_annotation of a value


def splat(node: ir.Node) -> np.ndarray | None:
    """What a ConstantOfShape with a constant shape gives, as a view of its one number."""
    shape = constant_array(node.inputs[0])
    return None if shape is None or (shape < 0).any() else filled(node, tuple(int(d) for d in shape))


def filled(node: ir.Node, shape: tuple[int, ...]) -> np.ndarray:
    """What a ConstantOfShape gives for a shape: a view of one element, which takes no memory of the full size."""
    fill = attribute(node, "value")
    one = np.zeros(1, np.float32) if fill is None else fill.numpy().reshape(-1)[:1]
    return np.broadcast_to(one.reshape((1,) * len(shape)), shape)


def expanded(node: ir.Node) -> np.ndarray | None:
    """What an Expand of a constant to a constant shape gives, as a view of that constant."""
    data, shape = (constant_array(v) for v in node.inputs)
    if data is None or shape is None or data.dtype.kind in "OUS":
        return None
    try:
        return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(int(d) for d in shape)))
    except ValueError:
        return None


def distinct(array: np.ndarray) -> np.ndarray:
    """One element along each dim that only repeats."""
    return array[tuple(slice(None) if stride else slice(1) for stride in array.strides)]


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
    free = (value_spec(v) for v in model.graph.inputs if v.name not in model.graph.initializers)
    return with_columns(free, model.metadata_props)


def output_specs(model: ir.Model) -> tuple[TensorSpec, ...]:
    """The graph outputs."""
    return with_columns((value_spec(v) for v in model.graph.outputs), model.metadata_props)


def value_spec(value: ir.Value) -> TensorSpec:
    """The TensorSpec of a value; unknown type is "unknown"."""
    kind = type(value.type).__name__.removesuffix("Type").lower()
    if value.type is None or kind not in ("tensor", "none"):
        hidden = set_aside.kind_of(value) or "unknown"
        return TensorSpec(value.name or "", hidden if value.type is None else kind, None)
    name = value.type.dtype.name
    dims = None if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
    return TensorSpec(value.name or "", ONNX_TO_NUMPY.get(name, name.lower()), dims)


def constant_array(value: ir.Value | None) -> np.ndarray | None:
    """The array behind an initializer or a Constant node's output; None when it is not constant."""
    tensor = constant_tensor(value)
    return None if tensor is None else tensor.numpy()


def is_constant(value: ir.Value | None) -> bool:
    """True where `constant_array` gives an array; nothing is read for it."""
    return constant_tensor(value) is not None


def constant_tensor(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node, whose numbers are not read; None when it is not constant."""
    if value is None:
        return None
    if value.const_value is not None:
        return None if value.is_graph_input() else value.const_value  # an overridable default is not a constant
    node = value.producer()
    if node is None or node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    return ir.convenience.get_const_tensor(value)


def float_constant(value: ir.Value | None) -> np.ndarray | None:
    """The float32 array behind a constant value; None for anything else."""
    array = constant_array(value)
    return array if array is not None and array.dtype == np.float32 else None


def inner_nodes(graph: ir.Graph) -> list[ir.Node]:
    """The nodes of a graph's subgraphs."""
    outer = set(graph)
    return [n for n in graph.all_nodes() if n not in outer]


_KEPT_ON_DISK = 1 << 22  # bytes


def walk(graph: ir.Graph) -> Iterator[ir.Node]:
    """Every node of a graph and its subgraphs (onnx_ir's own traversal looks at each attribute, and is far slower)."""
    for node in graph:
        yield node
        if node.domain not in STANDARD or operator_of(node).has_bodies:
            for body in bodies_of(node):
                yield from walk(body)


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    """The subgraphs of If, Loop, Scan and their like, as the attributes have them."""
    found: list[ir.Graph] = []
    for item in node.attributes.values():
        if item.type == ir.AttributeType.GRAPH and not item.is_ref():
            found.append(item.as_graph())
        elif item.type == ir.AttributeType.GRAPHS and not item.is_ref():
            found += item.as_graphs()
    return found


def is_op(node: ir.Node | None, *op_types: str) -> bool:
    """True for a node of the standard domain with one of these operators."""
    return node is not None and node.domain in STANDARD and node.op_type in op_types


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """An attribute's value: int, float, str, tuple or tensor; `default` when it is absent."""
    found = node.attributes.get(name)
    if found is None or found.is_ref():
        return default
    return tuple(found.value) if isinstance(found.value, (list, tuple)) else found.value


def has_subgraph(node: ir.Node) -> bool:
    """True for If, Loop, Scan and their like."""
    return any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values())


def sole_use(value: ir.Value) -> ir.Node | None:
    """The only node that reads a value, if there is just one use and it is not a graph output."""
    uses = value.uses()
    return next(iter(uses)).node if len(uses) == 1 and not value.is_graph_output() else None


def producer(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The standard-domain node of one of these operators that makes a value, if so."""
    node = value.producer() if value is not None else None
    return node if node is not None and is_op(node, *op_types) else None


def on_disk(value: ir.Value) -> bool:
    """True for a large weight in external data, which is better left there than rewritten in memory."""
    return is_external(value.const_value) and value.const_value is not None and value.const_value.nbytes > _KEPT_ON_DISK


def stays_external(model: ir.Model, above: int) -> bool | None:
    """True where more than so many bytes of weights lie beside the source: put beside the result too, they take a tenth
    of the memory. None leaves it to their size.
    """
    weights = (v.const_value for v in model.graph.initializers.values())
    return True if sum(w.nbytes for w in weights if w is not None and is_external(w)) > above else None


def annotating_names(model: ir.Model) -> set[str]:
    """Initializers that no node reads, because a quantization_annotation of an input or output names them."""
    ends = (*model.graph.inputs, *model.graph.outputs)
    return {name for value in ends for name in value.meta.get(QUANTIZATION, {}).values()}

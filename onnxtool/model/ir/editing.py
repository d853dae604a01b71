"""Small edits on onnx_ir graphs that the quantizers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx_ir as ir


def _free_name(graph: ir.Graph, name: str) -> str:
    """`name`, or `name` with the first number that makes it free among the graph's initializers."""
    free, number = name, 0
    while free in graph.initializers:
        number += 1
        free = f"{name}_{number}"
    return free


def hold_arrays(model: ir.Model) -> None:
    """Make arrays of the initializers that are parts of a parsed message, in place: each reading of such a part copies.

    What lies in a data file stays there.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.serde.TensorProtoTensor) and tensor.dtype != ir.DataType.STRING:
                value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)


def release_mapped(model: ir.Model) -> None:
    """Unmap data files whose weights were read: what is mapped counts as memory of the process until then."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            release_tensor(value.const_value)


def release_tensor(tensor: ir.TensorProtocol | None) -> None:
    """Unmap the data file of one weight."""
    if isinstance(tensor, ir.ExternalTensor):
        with suppress(BufferError):  # somebody still has an array of it
            tensor.release()


def made_of(tensor: ir.TensorProtocol, make: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What `make` computes of a weight, which is not a view of it; its data file is mapped no longer than that."""
    made = make(tensor.numpy())
    release_tensor(tensor)
    return made


def new_initializer(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """Register an array as an initializer under a free name that starts with `name`."""
    return add_tensor(graph, as_tensor(array, _free_name(graph, name)))


def as_tensor(array: np.ndarray, name: str) -> ir.TensorProtocol:
    """An array as a tensor of a model; one of texts as UTF-8."""
    if array.dtype.kind in "OUS":
        words = [w if isinstance(w, bytes) else str(w).encode() for w in array.reshape(-1)]
        return ir.StringTensor(words, shape=ir.Shape(array.shape), name=name)
    return ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=name)


def add_tensor(graph: ir.Graph, tensor: ir.TensorProtocol) -> ir.Value:
    """Register a tensor as an initializer under its own name."""
    shape = ir.Shape(tensor.shape.numpy())
    value = ir.Value(name=tensor.name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
    graph.register_initializer(value)
    return value


def lazy_initializer(
    graph: ir.Graph,
    name: str,
    compute: Callable[[], np.ndarray],
    shape: tuple[int, ...],
    dtype: ir.DataType,
) -> ir.Value:
    """An initializer whose bytes are computed whenever they are asked for (when the file is written), and not kept."""
    free = _free_name(graph, name)

    def tensor() -> ir.TensorProtocol:
        return ir.Tensor(np.ascontiguousarray(compute()), name=free)

    return add_tensor(graph, ir.LazyTensor(tensor, dtype=dtype, shape=ir.Shape(shape), name=free))


def insert(
    before: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    names: Sequence[str],
    attributes: dict[str, Any] | None = None,
    domain: str = "",
    dtype: ir.DataType | None = None,
) -> list[ir.Value]:
    """Insert a node right before another one and return its outputs, called `names`.

    Args:
        before: the node that the new one precedes.
        op_type: operator.
        inputs: values that are defined by then.
        names: output names; the node is called after the first.
        attributes: plain Python values.
        domain: operator domain.
        dtype: element type of the outputs where it is known.
    """
    node = ir.node(op_type, inputs, attributes, domain=domain, num_outputs=len(names), name=names[0])
    for value, name in zip(node.outputs, names, strict=True):
        value.name = name
        if dtype is not None:
            value.type = ir.TensorType(dtype)
    graph = before.graph
    assert isinstance(graph, ir.Graph)
    graph.insert_before(before, node)
    return list(node.outputs)


def put_first(graph: ir.Graph, *nodes: ir.Node) -> None:
    """Put nodes before all others of a graph, which may have none."""
    if len(graph):
        graph.insert_before(graph[0], nodes)
    else:
        graph.extend(nodes)


def append(
    graph: ir.Graph,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    name: str,
    attributes: Mapping[str, Any] | None = None,
) -> ir.Value:
    """Add a node at the end of a graph and return its output, called `name` like the node.

    Args:
        graph: changed in place.
        op_type: operator.
        inputs: values of the graph.
        name: free in the graph.
        attributes: plain Python values, or attributes of another node.
    """
    plain = {k: v for k, v in (attributes or {}).items() if not isinstance(v, ir.Attr)}
    node = ir.node(op_type, inputs, plain, name=name)
    for found in (attributes or {}).values():
        if isinstance(found, ir.Attr):
            node.attributes[found.name] = found
    node.outputs[0].name = name
    graph.append(node)
    return node.outputs[0]


def replace_value(node: ir.Node, result: ir.Value) -> None:
    """The new value takes over the old one's readers, its name, and its place among the graph outputs."""
    old = node.outputs[0]
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    result.type, result.shape = old.type, old.shape
    name = old.name
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    old.name = f"{name}_float"
    result.name = name


def owning_graph(value: ir.Value, node: ir.Node) -> ir.Graph:
    """The graph that a weight lies in, where what is made of it belongs; `node` reads it, perhaps in a subgraph."""
    producer = value.producer()
    graph = value.graph or (producer.graph if producer is not None else None) or node.graph
    assert isinstance(graph, ir.Graph)
    return graph


def remove_unused(model: ir.Model) -> None:
    """Drop nodes and initializers that nothing reads."""
    import onnx_ir.passes.common as common

    common.RemoveUnusedNodesPass()(model)
    for graph in model.graphs():
        for name, value in list(graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del graph.initializers[name]


def inline_functions(model: ir.Model) -> bool:
    """Put the model's functions in place of their calls, or leave all of it as it is.

    Returns:
        Whether no function is left: some call each other in a circle, or mean another version of operators.
    """
    from onnx_ir.passes.common import InlinePass  # loads what most callers do without

    # InlinePass keeps the model's version of each domain, which would change the meaning of the function's nodes.
    for function in model.functions.values():
        for domain, version in function.opset_imports.items():
            if model.opset_imports.get(domain, version) != version:
                return False
    try:
        InlinePass()(model)
    except ir.passes.PreconditionError:
        return False
    model.functions.clear()
    return True


def inlined(model: ir.Model) -> ir.Model:
    """A copy whose local functions are in place of their calls, where they can be."""
    copy = model.clone()
    inline_functions(copy)
    return copy

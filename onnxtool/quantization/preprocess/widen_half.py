"""float16 models, as they come from training on GPUs, in float32: what integers are made from.

The runtime has few float16 kernels on processors: it converts between them, so that such a model runs slower than its
float32 twin, and has no integer kernels whose scales are float16.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import is_op

_DTYPES = ("to", "dtype")  # attributes that name a type


def has_half(model: ir.Model) -> bool:
    """Whether weights or inputs are float16, or anything is that a node computes."""
    for graph in model.graphs():
        values = (*graph.inputs, *graph.initializers.values(), *(v for n in graph for v in n.outputs))
        if any(v.dtype == ir.DataType.FLOAT16 for v in values):
            return True
    return False


def widen_half(model: ir.Model) -> None:
    """Compute in float32 what a model computes in float16; its inputs and outputs stay what they are.

    Args:
        model: changed in place, with its subgraphs. Weights are converted when they are asked for.
    """
    main = model.graph
    half_outputs = [v.dtype == ir.DataType.FLOAT16 for v in main.outputs]
    for graph in model.graphs():
        inner = () if graph is main else (*graph.inputs, *graph.outputs)
        for value in (*inner, *(v for node in graph for v in node.outputs)):
            if value.dtype == ir.DataType.FLOAT16 and isinstance(value.type, ir.TensorType):
                value.type = ir.TensorType(ir.DataType.FLOAT)
        for value in graph.initializers.values():
            _widen_weight(value)
        for node in graph:
            _widen_attributes(node)
    for value in main.inputs:
        if value.dtype == ir.DataType.FLOAT16:
            _widen_input(main, value)
    for index, value in enumerate(list(main.outputs)):
        if half_outputs[index] and value.producer() is not None:
            _narrow_output(main, index, value)


def _widen_weight(value: ir.Value) -> None:
    tensor = value.const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT16 or value.is_graph_input():
        return
    value.const_value = ir.LazyTensor(
        _widened(tensor), dtype=ir.DataType.FLOAT, shape=ir.Shape(tensor.shape.numpy()), name=value.name, cache=False
    )
    value.type = ir.TensorType(ir.DataType.FLOAT)


def _widened(tensor: ir.TensorProtocol) -> Callable[[], ir.TensorProtocol]:
    return lambda: ir.Tensor(tensor.numpy().astype(np.float32), name=tensor.name)


def _widen_attributes(node: ir.Node) -> None:
    for name in _DTYPES:
        given = node.attributes.get(name)
        if given is not None and given.type == ir.AttributeType.INT and given.as_int() == int(ir.DataType.FLOAT16):
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))
    filling = node.attributes.get("value") if is_op(node, "Constant", "ConstantOfShape") else None
    if filling is not None and filling.as_tensor().dtype == ir.DataType.FLOAT16:
        node.attributes["value"] = ir.AttrTensor("value", _widened(filling.as_tensor())())


def _widen_input(graph: ir.Graph, value: ir.Value) -> None:
    cast = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT)}, name=f"{value.name}_single")
    wide = cast.outputs[0]
    wide.name, wide.type, wide.shape = cast.name, ir.TensorType(ir.DataType.FLOAT), value.shape
    for use in list(value.uses()):
        if use.node is not cast:
            use.node.replace_input_with(use.idx, wide)
    graph.insert_before(graph[0], cast)


def _narrow_output(graph: ir.Graph, index: int, value: ir.Value) -> None:
    name = value.name or f"output_{index}"
    value.name = f"{name}_single"
    cast = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, name=f"{name}_half")
    half = cast.outputs[0]
    half.name, half.type, half.shape = name, ir.TensorType(ir.DataType.FLOAT16), value.shape
    graph.append(cast)
    graph.outputs[index] = half

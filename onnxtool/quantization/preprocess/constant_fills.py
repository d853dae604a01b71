"""Weights that are one number all over: a ConstantOfShape stands for them, before quantizing and after.

Test models and freshly initialized ones hold such weights in a few bytes. They count as constants here, without being
written out, and what quantization makes of them is uniform again and becomes a ConstantOfShape of integers.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import onnx_ir as ir

from onnxtool.model import io
from onnxtool.model.ir.editing import new_initializer
from onnxtool.model.ir.queries import is_op, splat
from onnxtool.runtime.worker.isolation import guarded

_WORTH = 1024  # elements; smaller arrays stay as they are
_FILLABLE = (
    *(ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT8, ir.DataType.UINT8),
    *(ir.DataType.INT32, ir.DataType.INT64),
)


def note_filled(model: ir.Model) -> None:
    """Give the outputs of ConstantOfShape nodes with a constant shape their value; it takes no memory (stride 0)."""
    for node in model.graph:
        if not is_op(node, "ConstantOfShape"):
            continue
        array, result = splat(node), node.outputs[0]
        if array is None:
            continue
        result.const_value = ir.Tensor(array, name=result.name)
        result.shape, result.type = ir.Shape(array.shape), ir.TensorType(result.const_value.dtype)


def has_filled(model: ir.Model) -> bool:
    """True when `note_filled` found something."""
    return any(node.outputs[0].const_value is not None for node in model.graph if is_op(node, "ConstantOfShape"))


def refill(model: ir.Model) -> None:
    """Large initializers of equal elements become ConstantOfShape nodes."""
    graph = model.graph
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.size < _WORTH or tensor.dtype not in _FILLABLE or value.is_graph_input():
            continue
        array = tensor.numpy()
        first = array.reshape(-1)[:1]
        if (array != first).any():
            continue
        del graph.initializers[name]
        size = new_initializer(graph, f"{name}_size", np.array(array.shape, np.int64))
        node = ir.node("ConstantOfShape", [size], {"value": ir.tensor(first.copy())}, name=f"{name}_filled")
        result = node.outputs[0]
        result.type, result.shape = value.type, value.shape
        ir.convenience.replace_all_uses_with(value, result, replace_graph_outputs=True)
        result.name = name
        graph.insert_before(graph[0], node)


def loading(model: ir.Model) -> AbstractContextManager[None]:
    """Surrounds the loading of a model made of `model`: its file is small, but what the runtime unfolds is not.

    What a candidate stores in integers the runtime may turn back into floats, and fills of one value into tensors.
    """
    values = [node.outputs[0].const_value for node in model.graph if is_op(node, "ConstantOfShape")]
    unfolded = sum(tensor.nbytes for tensor in values if tensor is not None)
    return guarded("loading the model into the runtime", io.weight_bytes(model) + 2 * unfolded)

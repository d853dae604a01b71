"""Dynamic quantization: int8 weights, activations quantized at run time; of MatMul, Gemm and LSTM.

MatMul and Gemm become DynamicQuantizeLinear -> MatMulInteger -> Cast -> Mul, standard operators that the runtime
fuses into one kernel.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import insert, new_initializer, owning_graph, release_tensor, replace_value
from onnxtool.model.ir.queries import attribute, float_constant, is_op
from onnxtool.quantization.algorithms.quant_math import quantize_weight, stored
from onnxtool.quantization.recipe import QuantRecipe

_DOMAIN = "com.microsoft"
_WEIGHTS = (1, 2)
_PEEPHOLES = 7
_INPUTS = 12  # of DynamicQuantizeLSTM; from the ninth on, scale and zero point of W and of R


def is_recurrent(node: ir.Node) -> bool:
    """True for an LSTM that the integer kernel can take: constant float32 weights, steps first, no peepholes."""
    if not is_op(node, "LSTM") or len(node.inputs) < 3 or attribute(node, "layout", 0):
        return False
    if len(node.inputs) > _PEEPHOLES and node.inputs[_PEEPHOLES] is not None:
        return False
    arrays = [float_constant(node.inputs[i]) for i in _WEIGHTS]
    return all(a is not None and a.ndim == 3 and a.size > 0 for a in arrays)


def make_recurrent(graph: ir.Graph, nodes: Iterable[ir.Node], recipe: QuantRecipe) -> None:
    """Turn LSTM nodes into integer ones.

    Args:
        graph: the main graph; changed in place, with its subgraphs.
        nodes: for which `is_recurrent` holds.
        recipe: weight type and granularity.
    """
    for node in nodes:
        split = recipe.splits_channels(node.name or "")
        node.resize_inputs(_INPUTS)
        for position, index in enumerate(_WEIGHTS):
            weight = node.inputs[index]
            array = float_constant(weight)
            assert weight is not None and array is not None
            # The integer kernel has [directions, inputs, 4 x hidden] where the standard has the last two swapped.
            turned = np.ascontiguousarray(array.transpose(0, 2, 1))
            parts = [quantize_weight(a, 1 if split else None, recipe.weights, reduced=recipe.reduced) for a in turned]
            name = weight.name or "weight"
            made = {
                index: (f"{name}_quantized", np.stack([p[0] for p in parts])),
                8 + 2 * position: (f"{name}_scale", np.stack([p[1].scale for p in parts])),
                9 + 2 * position: (f"{name}_zero_point", np.stack([p[1].zero_point for p in parts])),
            }
            for place, (label, values) in made.items():
                node.replace_input_with(place, new_initializer(owning_graph(weight, node), label, values))
        node.attributes.pop("layout", None)
        node.domain, node.op_type = _DOMAIN, "DynamicQuantizeLSTM"
        graph.opset_imports.setdefault(_DOMAIN, 1)


DYNAMIC = ("MatMul", "Gemm")


def make_dynamic(graph: ir.Graph, nodes: Iterable[ir.Node], recipe: QuantRecipe) -> None:
    """Replace MatMul and Gemm nodes with constant weights by integer ones.

    Args:
        graph: the main graph; changed in place, with its subgraphs.
        nodes: eligible MatMul and Gemm nodes.
        recipe: weight type and granularity. Activations are u8, as DynamicQuantizeLinear gives no other.
    """
    # What one graph computes, others cannot read: two branches each quantize for themselves.
    inputs: dict[tuple[int, ir.Value], list[ir.Value]] = {}
    weights: dict[tuple[int, bool, bool], list[ir.Value]] = {}
    chosen = set(nodes)
    for node in list(graph.all_nodes()):
        if node in chosen:
            _replace(node, recipe, inputs, weights)


def _replace(
    node: ir.Node,
    recipe: QuantRecipe,
    inputs: dict[tuple[int, ir.Value], list[ir.Value]],
    weights: dict[tuple[int, bool, bool], list[ir.Value]],
) -> None:
    source, weight = node.inputs[0], node.inputs[1]
    assert source is not None and weight is not None
    place = (id(node.graph), source)
    if place not in inputs:
        name = source.name or "tensor"
        suffixes = ("quantized_at_run_time", "scale_at_run_time", "zero_point_at_run_time")
        # Nodes are visited in graph order, so that the first reader's place is before all others.
        inputs[place] = insert(node, "DynamicQuantizeLinear", [source], [f"{name}_{s}" for s in suffixes])
    quantized, scale, zero = inputs[place]
    transposed = node.op_type == "Gemm" and bool(attribute(node, "transB", 0))
    split = recipe.splits_channels(node.name or "")
    key = (id(weight), transposed, split)
    if key not in weights:
        weights[key] = _weight(owning_graph(weight, node), weight, transposed, recipe, split)
    integers, weight_scale, weight_zero = weights[key]
    name = node.outputs[0].name or str(node.name)
    (product,) = insert(
        node, "MatMulInteger", [quantized, integers, zero, weight_zero], [f"{name}_int32"], dtype=ir.DataType.INT32
    )
    product.shape = node.outputs[0].shape
    (as_float,) = insert(node, "Cast", [product], [f"{name}_unscaled"], {"to": int(ir.DataType.FLOAT)})
    (both,) = insert(node, "Mul", [scale, weight_scale], [f"{name}_int32_scale"])
    result = insert(node, "Mul", [as_float, both], [f"{name}_scaled"])[0]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None:
        result = insert(node, "Add", [result, bias], [f"{name}_biased"])[0]
    replace_value(node, result)


def _weight(graph: ir.Graph, weight: ir.Value, transposed: bool, recipe: QuantRecipe, split: bool) -> list[ir.Value]:
    array = float_constant(weight)
    assert array is not None
    array = np.ascontiguousarray(array.T) if transposed else array
    axis = array.ndim - 1 if split and array.ndim == 2 else None
    integers, params = quantize_weight(array, axis, recipe.weights, reduced=recipe.reduced)
    del array
    release_tensor(weight.const_value)
    return stored(graph, weight.name or "weight", integers, params)

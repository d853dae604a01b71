"""LSTM layers on integers: the runtime's DynamicQuantizeLSTM, with int8 weights and activations quantized at run time.

The runtime has no such kernel for GRU and RNN, which stay float.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import new_initializer, owning_graph
from onnxtool.model.ir.queries import attribute, float_constant, is_op
from onnxtool.quantization.algorithms.quant_math import quantize_weight
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

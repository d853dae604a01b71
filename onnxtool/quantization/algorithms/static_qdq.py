"""Static quantization: Q/DQ pairs with calibrated scales, int8 weights, int32 biases."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import insert, new_initializer, put_first
from onnxtool.model.ir.queries import attribute, constant_array, float_constant, is_op, sole_use
from onnxtool.quantization.algorithms.qdq_placement import QdqPlacement, is_product, output_channel_axis
from onnxtool.quantization.algorithms.quant_math import (
    QuantParams,
    activation_params,
    quantize_weight,
    quantize_with,
    stored,
    weight_params,
)
from onnxtool.quantization.calibration.range_estimators import Range
from onnxtool.quantization.recipe import QuantRecipe

_BIAS_LIMIT = 2**30  # an int32 accumulator also needs room for the products


def insert_qdq(graph: ir.Graph, placement: QdqPlacement, ranges: Mapping[str, Range], recipe: QuantRecipe) -> None:
    """Write Q/DQ pairs, integer weights and biases into the graph.

    Args:
        graph: the main graph; changed in place.
        placement: what runs in integers.
        ranges: calibrated (low, high) of every tensor in `placement.observed`.
        recipe: integer types and granularity.
    """
    params = {v: _params(v, placement, ranges, recipe) for v in placement.tensors}
    weights = _Weights(graph, recipe)
    for node in placement.compute:
        if is_product(node):
            continue
        weights.quantize(node, params[node.inputs[0]])  # type: ignore[index]
    if not recipe.form:
        _shield_float_convs(graph, placement)
    for node in placement.carried:
        if node.op_type == "HardSigmoid":
            gate = node.outputs[0]
            params[gate] = _saturate_instead(graph, node, recipe)
            for moved in (v for v, source in placement.same_as.items() if source is gate):
                params[moved] = activation_params(0.0, 1.0, recipe.activations)
    integer = {*placement.compute, *placement.carried}
    for value in placement.tensors:
        _pair(graph, value, params[value], integer, value in placement.results)


def _shield_float_convs(graph: ir.Graph, placement: QdqPlacement) -> None:
    """A Conv that stays float between quantized ones becomes a FusedConv without an activation, which is the same.

    The runtime's WeightBiasQuantization pass would make an integer Conv, with weights quantized per tensor, of any
    standard Conv that reads a DQ and feeds a Q.
    """
    quantized = set(placement.tensors)
    compute = set(placement.compute)
    for node in list(graph):
        if not is_op(node, "Conv") or node in compute or node.inputs[0] not in placement.results:
            continue
        user = sole_use(node.outputs[0])
        if node.outputs[0] in quantized or (user is not None and user.outputs[0] in quantized):
            node.domain, node.op_type = "com.microsoft", "FusedConv"
            graph.opset_imports.setdefault("com.microsoft", 1)


def _saturate_instead(graph: ir.Graph, node: ir.Node, recipe: QuantRecipe) -> QuantParams:
    """HardSigmoid, clip(alpha x + beta, 0, 1), has no integer kernel; the saturation of a Q does the same.

    Add(x, beta / alpha) quantized in steps of 1 / (255 alpha) saturates where the HardSigmoid does, and the same
    integers, read back in steps of 1 / 255, are its values. The factor alpha costs nothing.
    """
    alpha, beta = float(attribute(node, "alpha", 0.2)), float(attribute(node, "beta", 0.5))
    node.op_type = "Add"
    node.attributes.clear()
    shift = np.float32(beta / alpha)
    step = np.array(shift / 255, np.float32)  # of the constant itself, so that it is exact
    top = activation_params(0.0, 1.0, recipe.activations)
    name = f"{node.outputs[0].name or 'gate'}_shift"
    params = QuantParams(step, top.zero_point)
    inputs = stored(graph, name, _rounded(np.array(shift), params), params)
    (constant,) = insert(node, "DequantizeLinear", inputs, [name], dtype=ir.DataType.FLOAT)
    node.resize_inputs(2)
    node.replace_input_with(1, constant)
    return QuantParams(np.array(1 / (255 * alpha), np.float32), top.zero_point, read_scale=top.scale)


def _params(value: ir.Value, placement: QdqPlacement, ranges: Mapping[str, Range], recipe: QuantRecipe) -> QuantParams:
    constant = constant_array(value)
    centred = bool(recipe.form)
    if constant is not None:
        low, high = float(constant.min(initial=0)), float(constant.max(initial=0))
        return activation_params(low, high, recipe.activations, centred=centred)
    source = placement.same_as.get(value, value)
    low, high = ranges[source.name or ""]
    low = max(low, placement.floors.get(source, low))
    return activation_params(low, high, recipe.activations, centred=centred)


def _pair(graph: ir.Graph, value: ir.Value, params: QuantParams, integer: set[ir.Node], from_integer: bool) -> None:
    """Q and DQ behind one tensor; integer nodes read the DQ, and everybody when the tensor comes out of one."""
    users = [(u.node, u.idx) for u in value.uses() if from_integer or u.node in integer]
    exposed = from_integer and value.is_graph_output()
    if not users and not exposed:
        return
    name = value.name or "tensor"
    scale = new_initializer(graph, f"{name}_scale", params.scale)
    zero = new_initializer(graph, f"{name}_zero_point", params.zero_point)
    read_scale = scale if params.read_scale is None else new_initializer(graph, f"{name}_read_scale", params.read_scale)
    constant = float_constant(value)
    if constant is not None:
        quantized = new_initializer(graph, f"{name}_quantized", _rounded(constant, params))
    else:
        node = ir.node("QuantizeLinear", [value, scale, zero], name=f"{name}_QuantizeLinear")
        node.outputs[0].name = f"{name}_quantized"
        node.outputs[0].shape = value.shape
        node.outputs[0].type = ir.TensorType(ir.DataType.from_numpy(params.zero_point.dtype))
        _insert_behind(graph, value, node)
        quantized = node.outputs[0]
    restore = ir.node("DequantizeLinear", [quantized, read_scale, zero], name=f"{name}_DequantizeLinear")
    result = restore.outputs[0]
    result.name = f"{name}_dequantized"
    result.type, result.shape = value.type, value.shape
    _insert_behind(graph, quantized, restore)
    for node, index in users:
        node.replace_input_with(index, result)
    if exposed:
        _expose(graph, value, result)


def _expose(graph: ir.Graph, value: ir.Value, result: ir.Value) -> None:
    """The DQ's result takes the place and the name of a graph output."""
    name = value.name
    value.name = f"{name}_raw"
    result.name = name
    for index, output in enumerate(graph.outputs):
        if output is value:
            graph.outputs[index] = result


def _insert_behind(graph: ir.Graph, value: ir.Value, node: ir.Node) -> None:
    producer = value.producer()
    if producer is not None:
        graph.insert_after(producer, node)
    else:
        put_first(graph, node)


def _rounded(array: np.ndarray, params: QuantParams) -> np.ndarray:
    info = np.iinfo(params.zero_point.dtype)
    steps = np.rint(array / params.scale) + int(params.zero_point)
    return np.asarray(np.clip(steps, info.min, info.max), params.zero_point.dtype)


class _Weights:
    """Integer weights and biases of compute nodes; a weight that several nodes share is stored once."""

    def __init__(self, graph: ir.Graph, recipe: QuantRecipe) -> None:
        self.graph = graph
        self.recipe = recipe
        self._made: dict[tuple[int, int | None], tuple[ir.Value, QuantParams]] = {}

    def quantize(self, node: ir.Node, input_params: QuantParams) -> None:
        source = node.inputs[1]
        array = float_constant(source)
        assert source is not None and array is not None
        axis = output_channel_axis(node, array.ndim) if self.recipe.splits_channels(node.name or "") else None
        bias = float_constant(node.inputs[2]) if len(node.inputs) > 2 else None
        key = (id(source), axis)
        if key not in self._made:
            self._made[key] = self._store(source, array, axis, None)
        made = self._made[key]
        if bias is not None and not self.recipe.form:
            floor = _scale_floor(bias, float(input_params.scale), axis)
            if (floor > made[1].scale).any():
                made = self._store(source, array, axis, floor)
            self._bias(node, bias, float(input_params.scale), made[1])
        node.replace_input_with(1, made[0])

    def _store(
        self, source: ir.Value, array: np.ndarray, axis: int | None, floor: np.ndarray | None
    ) -> tuple[ir.Value, QuantParams]:
        recipe = self.recipe
        integers, params = quantize_weight(array, axis, recipe.weights, reduced=recipe.reduced)
        if floor is not None:
            params = weight_params(np.maximum(params.scale, floor).astype(np.float32), axis, recipe.weights)
            integers = quantize_with(array, params, 63 if recipe.reduced else 127)
        return self._dequantize(stored(self.graph, source.name or "weight", integers, params), axis, source), params

    def _bias(self, node: ir.Node, bias: np.ndarray, input_scale: float, weight: QuantParams) -> None:
        source = node.inputs[2]
        scale = (np.float32(input_scale) * weight.scale).astype(np.float32)
        scale = np.where(scale > 0, scale, np.float32(1.0)).astype(np.float32)
        if scale.ndim == 0:
            scale, axis = scale.reshape(()), None
        else:
            axis = 0
        integers = np.clip(np.rint(bias.reshape(-1).astype(np.float64) / scale), -(2**31), 2**31 - 1)
        name = (source.name if source is not None else None) or f"{node.name}_bias"
        inputs = [
            new_initializer(self.graph, f"{name}_quantized", integers.astype(np.int32)),
            new_initializer(self.graph, f"{name}_scale", scale),
        ]
        assert source is not None
        node.replace_input_with(2, self._dequantize(inputs, axis, source))

    def _dequantize(self, inputs: list[ir.Value], axis: int | None, source: ir.Value) -> ir.Value:
        attributes = None if axis is None else {"axis": axis}
        # At the very start: a weight may be shared with nodes that come earlier.
        first = next(iter(self.graph))
        (result,) = insert(first, "DequantizeLinear", inputs, [f"{inputs[0].name}_dequantized"], attributes)
        result.type, result.shape = source.type, source.shape
        return result


def _scale_floor(bias: np.ndarray, input_scale: float, axis: int | None) -> np.ndarray:
    """The least weight scales that keep the bias inside int32.

    Channels that a BatchNormalization has all but switched off have tiny weights beside a normal bias.
    """
    floor = np.abs(bias.reshape(-1)) / (input_scale * _BIAS_LIMIT)
    return np.asarray(floor if axis is not None else floor.max(initial=0), np.float32)

"""Bias correction: the mean error that rounded weights cause goes into the bias.

Rounding a channel's weights shifts the mean of its output, because activations behind a Relu all point one way. The
shift over the calibration samples, E[W x] - E[Wq x], is a constant for each output channel: the bias takes it back.

Source: Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction", section 4.2, with
the expectation over samples in place of the normal distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.model.ir.editing import new_initializer
from onnxtool.model.ir.queries import float_constant, is_op, sole_use
from onnxtool.quantization.algorithms.qdq_placement import output_channel_axis
from onnxtool.quantization.algorithms.quant_math import dequantize, quantize_weight
from onnxtool.quantization.calibration.observer import OutputProbe
from onnxtool.quantization.recipe import NodePlan, QuantRecipe
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.session.session import SessionOptions


def correctable(node: ir.Node) -> bool:
    """True for a node with a bias, or a place for one: Conv, Gemm, and MatMul with an Add of constants behind it."""
    return is_op(node, "Conv", "Gemm") or _added_constant(node) is not None


def weight_error(node: ir.Node, recipe: QuantRecipe) -> np.ndarray:
    """W - Wq of a node under a recipe, in the layout of its weights."""
    weight = float_constant(node.inputs[1])
    assert weight is not None
    axis = output_channel_axis(node, weight.ndim) if recipe.splits_channels(node.name or "") else None
    integers, params = quantize_weight(weight, axis, recipe.weights, reduced=recipe.reduced)
    return np.asarray(weight - dequantize(integers, params), np.float32)


def measure_shifts(
    model: ir.Model, plan: Mapping[str, NodePlan], recipe: QuantRecipe, data: DataSource, threads: int | None = None
) -> dict[str, tuple[float, ...]]:
    """E[W x] - E[Wq x] of every node that a recipe quantizes and whose bias can be corrected.

    Of what products read only the sums leave the runtime: E[x] (W - Wq). Beside a Conv, whose borders see fewer values,
    runs a copy of it with W - Wq for weights.

    Args:
        model: prepared (and smoothed, equalized); left as it is.
        plan: how nodes run, by name.
        recipe: weight type and granularity.
        data: calibration samples.
        threads: of the runtime.

    Returns:
        By node name, what to add to each output channel.
    """
    probe = OutputProbe(model)
    nodes = [n for n in probe.graph if plan.get(n.name or "") in ("static", "dynamic") and correctable(n)]
    if not nodes:
        return {}
    names = [name for i, n in enumerate(nodes) for name in _watch(probe, n, recipe, i)]
    runner = probe.open(SessionOptions(threads=threads))
    sums: dict[str, np.ndarray] = {}
    counts = dict.fromkeys((n.name or "" for n in nodes), 0.0)
    with progress.task("measuring shifts of means", data.count) as task:
        for feeds in data.samples():
            values = runner.session.run(names, feeds)
            for node, total, size in zip(nodes, values[0::2], values[1::2], strict=True):
                name = node.name or ""
                sums[name] = sums.get(name, 0.0) + np.asarray(total, np.float64)
                counts[name] += float(size) / max(total.size, 1)
            task.advance()
    means = {name: total / counts[name] for name, total in sums.items() if counts[name]}
    told = ((name, _shift(node, means[name], recipe)) for node in nodes if (name := node.name or "") in means)
    return {name: tuple(float(np.float32(v)) for v in shift) for name, shift in told}


def _shift(node: ir.Node, mean: np.ndarray, recipe: QuantRecipe) -> np.ndarray:
    """By output channel, from what was measured."""
    if node.op_type == "Conv":
        return mean
    error = weight_error(node, recipe)
    return np.asarray(error @ mean if output_channel_axis(node, error.ndim) == 0 else mean @ error)


def _watch(probe: OutputProbe, node: ir.Node, recipe: QuantRecipe, index: int) -> tuple[str, str]:
    """Sums and the size of what a product reads, by column; of what a Conv with W - Wq gives, by channel."""
    source, weight = node.inputs[0], float_constant(node.inputs[1])
    assert source is not None and weight is not None
    if node.op_type == "Conv":
        error = new_initializer(probe.graph, f"onnxtool_error_{index}", weight_error(node, recipe))
        source = summed = probe.step(node.op_type, [source, error], f"twin_{index}", node.attributes)
        axes = [0, *range(2, weight.ndim)]
    else:
        columns = _integers(probe.graph, [-1, weight.shape[1 - (output_channel_axis(node, weight.ndim) or 0)]])
        summed, axes = probe.step("Reshape", [source, columns], f"flat_{index}"), [0]
    total = probe.step("ReduceSum", [summed, _integers(probe.graph, axes)], f"shift_{index}", {"keepdims": 0})
    return probe.output(total), probe.add("Size", source, f"count_{index}", ir.DataType.INT64)


def _integers(graph: ir.Graph, values: Sequence[int]) -> ir.Value:
    return new_initializer(graph, "onnxtool_integers", np.array(values, np.int64))


def correct_biases(model: ir.Model, shifts: Mapping[str, Sequence[float]]) -> int:
    """Add shifts to the biases of a float model, before its weights are quantized.

    Args:
        model: changed in place.
        shifts: of `measure_shifts`, by node name.

    Returns:
        Number of biases changed.
    """
    done = 0
    for node in list(model.graph):
        shift = shifts.get(node.name or "")
        if shift is None or not correctable(node):
            continue
        _add(model.graph, node, np.array(shift, np.float32))
        done += 1
    return done


def _add(graph: ir.Graph, node: ir.Node, shift: np.ndarray) -> None:
    found = _added_constant(node)
    target, index = found if found is not None else (node, 2)
    old = target.inputs[index] if len(target.inputs) > index else None
    existing = float_constant(old)
    name = f"{node.name}_corrected_bias"
    if existing is None:
        target.resize_inputs(index + 1)
        target.replace_input_with(index, new_initializer(graph, name, shift))
        return
    spread = np.broadcast_to(existing, (*existing.shape[:-1], len(shift))) if existing.ndim else existing
    target.replace_input_with(index, new_initializer(graph, name, (spread + shift).astype(np.float32)))


def _added_constant(node: ir.Node) -> tuple[ir.Node, int] | None:
    """The Add of a constant vector right behind a MatMul with a matrix of constants, and the vector's place in it."""
    weight = float_constant(node.inputs[1]) if is_op(node, "MatMul") else None
    user = sole_use(node.outputs[0]) if weight is not None and weight.ndim == 2 else None
    if weight is None or user is None or not is_op(user, "Add"):
        return None
    for index, value in enumerate(user.inputs):
        array = float_constant(value)
        if array is not None and array.size == weight.shape[1] and array.ndim and array.shape[-1] == weight.shape[1]:
            return user, index
    return None

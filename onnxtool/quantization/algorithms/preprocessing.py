"""A float model conditioned for quantization: smoothed and equalized, computing the same."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.errors import UsageError
from onnxtool.model.ir.editing import append, new_initializer
from onnxtool.quantization.algorithms.cross_layer_equalization import equalize
from onnxtool.quantization.algorithms.smooth_quant import Divided, SmoothedGroup, smooth, smoothable
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

_AXES_ARE_INPUTS = 18  # of ReduceMax, from this opset


def conditioned(prepared: ir.Model, recipe: QuantRecipe) -> ir.Model:
    """The model that a recipe quantizes: smoothed and equalized as it says.

    Args:
        prepared: of `prepare`; left as it is, and given back when there is nothing to do.
        recipe: with `channels`, where it smooths.
    """
    return conditioned_and_divided(prepared, recipe)[0]


def conditioned_and_divided(prepared: ir.Model, recipe: QuantRecipe) -> tuple[ir.Model, dict[str, Divided]]:
    """`conditioned`, and which of its tensors smoothing has divided, by name (see `smooth`)."""
    if not recipe.equalize and not recipe.smooth:
        return prepared, {}
    model = prepared.clone()
    if recipe.equalize:
        equalize(model)
    return model, smooth(model, recipe.channels or {}, recipe.smooth) if recipe.smooth else {}


def with_channels(
    prepared: ir.Model, recipe: QuantRecipe, data: DataSource | None, threads: int | None = None
) -> QuantRecipe:
    """The recipe with the magnitudes of channels that smoothing goes by.

    Raises:
        UsageError: they are needed and there is no data.
    """
    if not recipe.smooth or recipe.channels is not None:
        return recipe
    if data is None:
        raise UsageError("--smooth needs --data: which channels have outliers has to be measured on real inputs.")
    return recipe.with_channels(channel_extremes(prepared, data, threads))


def channel_extremes(prepared: ir.Model, data: DataSource, threads: int | None = None) -> dict[str, tuple[float, ...]]:
    """The largest magnitude of each channel (last axis) of every tensor that linear layers read, by tensor name."""
    copy = prepared.clone()
    groups = smoothable(copy.graph)
    if not groups:
        return {}
    copy.graph.outputs.clear()
    for group in groups:
        copy.graph.outputs.append(_watched(copy, group))
    runner = OnnxRunner.open(copy, SessionOptions(threads=threads))
    names = [o.name or "" for o in copy.graph.outputs]
    extremes = [np.zeros(group.channels, np.float32) for group in groups]
    with progress.task("measuring channels", data.count) as task:
        for feeds in data.samples():
            for kept, seen in zip(extremes, runner.session.run(names, feeds), strict=True):
                # The reduction of an empty tensor is -infinity.
                np.maximum(kept, np.where(np.isfinite(seen), seen, 0), out=kept)
            task.advance()
    return {g.value.name or "": tuple(map(float, e)) for g, e in zip(groups, extremes, strict=True)}


def _watched(model: ir.Model, group: SmoothedGroup) -> ir.Value:
    graph = model.graph
    name = f"onnxtool_channels_of_{group.value.name}"
    shape = new_initializer(graph, f"{name}_shape", np.array([-1, group.channels], np.int64))
    flat = append(graph, "Reshape", [group.value, shape], f"{name}_flat")
    sizes = append(graph, "Abs", [flat], f"{name}_sizes")
    if model.opset_imports.get("", 0) >= _AXES_ARE_INPUTS:
        axes = new_initializer(graph, f"{name}_axes", np.array([0], np.int64))
        result = append(graph, "ReduceMax", [sizes, axes], name, {"keepdims": 0})
    else:
        result = append(graph, "ReduceMax", [sizes], name, {"keepdims": 0, "axes": [0]})
    result.type = ir.TensorType(ir.DataType.FLOAT)
    return result

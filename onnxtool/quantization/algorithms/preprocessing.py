"""A float model conditioned for quantization: smoothed and equalized, computing the same."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.errors import UsageError
from onnxtool.quantization.algorithms.cross_layer_equalization import equalize
from onnxtool.quantization.algorithms.smooth_quant import Divided, smooth, smoothable
from onnxtool.quantization.calibration.observer import observe
from onnxtool.quantization.calibration.range_estimators import ObservedChannels
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.source import DataSource


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
    channels = {group.value.name or "": group.channels for group in smoothable(prepared.graph)}
    seen = observe(prepared, list(channels), data, threads=threads, channels=channels)
    return {n: tuple(map(float, own.magnitudes)) for n, own in seen.items() if isinstance(own, ObservedChannels)}

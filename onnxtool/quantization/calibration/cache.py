"""What candidates need to know of activations, measured once for each way of conditioning the float model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import onnx_ir as ir

from onnxtool.model.io import weight_bytes
from onnxtool.quantization.algorithms.bias_correction import correctable, measure_shifts
from onnxtool.quantization.algorithms.cross_layer_equalization import equalized_tensors
from onnxtool.quantization.algorithms.preprocessing import conditioned_and_divided, with_channels
from onnxtool.quantization.algorithms.qdq_placement import eligible, is_product, live_tensors
from onnxtool.quantization.algorithms.smooth_quant import Divided, smoothable
from onnxtool.quantization.apply_recipe import placement_of
from onnxtool.quantization.calibration.observer import observe
from onnxtool.quantization.calibration.range_estimators import ObservedChannels, ObservedRange, Range
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.runtime.data.source import DataSource

# What a mean or a range of an equalized model is measured on: it settles sooner than the ranges of all others.
_SHIFT_SAMPLES = 32
_EQUALIZED_SAMPLES = 64
_LARGE = 50_000_000  # bytes of weights, beyond which a conditioned model is dropped as soon as it is not asked for
_Condition = tuple[float, bool]
_PLAIN: _Condition = (0.0, False)
Shifts = Mapping[str, tuple[float, ...]]


class CalibrationCache:
    """Ranges, magnitudes of channels and shifts of means of one float model over one set of samples."""

    def __init__(
        self,
        prepared: ir.Model,
        seen: Mapping[str, ObservedRange],
        data: DataSource | None,
        stored: Callable[[ir.Model], ir.Model] = lambda model: model,
    ) -> None:
        """Take the model as it is and what was seen of it; without `data` nothing else can be measured.

        A conditioned model, which may hold all weights once more, is kept as `stored` gives it.
        """
        self.prepared, self.stored = prepared, stored
        self.data = data
        self._large = weight_bytes(prepared) > _LARGE
        self._models: dict[_Condition, tuple[ir.Model, dict[str, Divided]]] = {}
        self._seen: dict[_Condition, Mapping[str, ObservedRange]] = {_PLAIN: seen}
        self._channels: Mapping[str, tuple[float, ...]] | None = None
        self._shifts: dict[tuple[object, ...], Shifts] = {}
        self._ranges: dict[tuple[_Condition, str, str, float], Range] = {}

    def calibrated(self, recipe: QuantRecipe) -> QuantRecipe:
        """The recipe with what it needs."""
        recipe = self._with_channels(recipe)
        needed = placement_of(self.model(recipe).graph, recipe).observed
        recipe = recipe.with_ranges({name: self._range(name, recipe) for name in needed})
        if not recipe.bias_correction:
            return replace(recipe, shifts=None)
        shifts = self._measured_shifts(recipe)
        return replace(recipe, shifts={name: shifts[name] for name in recipe.plan or {} if name in shifts})

    def _with_channels(self, recipe: QuantRecipe) -> QuantRecipe:
        if not recipe.smooth:
            return replace(recipe, channels=None)
        if self._channels is None:
            self._channels = self._seen_channels()
        if self._channels is None:
            self._channels = with_channels(self.prepared, replace(recipe, channels=None), self.data).channels  # type: ignore[assignment]
        return recipe.with_channels(self._channels or {})

    def _seen_channels(self) -> Mapping[str, tuple[float, ...]] | None:
        """Their magnitudes, where the first pass over the samples has looked at all of them."""
        found = {}
        for group in smoothable(self.prepared.graph):
            seen = self._seen[_PLAIN].get(group.value.name or "")
            if not isinstance(seen, ObservedChannels) or len(seen.lows) != group.channels:
                return None
            found[group.value.name or ""] = tuple(map(float, seen.magnitudes))
        return found

    def model(self, recipe: QuantRecipe) -> ir.Model:
        """The conditioned float model that a recipe (with its channels) quantizes."""
        return self._conditioned(recipe)[0]

    def _conditioned(self, recipe: QuantRecipe) -> tuple[ir.Model, dict[str, Divided]]:
        key = (recipe.smooth, recipe.equalize)
        if key not in self._models or (key == _PLAIN and self._large):
            # Each may hold all weights once more: the model as it is and the one that was asked for last are kept.
            self._models = {k: v for k, v in self._models.items() if k == _PLAIN}
            model, divided = conditioned_and_divided(self.prepared, recipe)
            self._models[key] = (model if key == _PLAIN else self.stored(model), divided)
        return self._models[key]

    def _range(self, name: str, recipe: QuantRecipe) -> Range:
        condition = (recipe.smooth, recipe.equalize)
        key = (condition, name, recipe.method, recipe.coverage)
        if key not in self._ranges:
            if condition not in self._seen:
                self._seen[condition] = self._derived(recipe)
            if name not in self._seen[condition]:
                self._seen[condition] = {**self._seen[condition], **self._observe(recipe)}
            self._ranges[key] = self._seen[condition][name].range(recipe.method, recipe.coverage)
        return self._ranges[key]

    def _derived(self, recipe: QuantRecipe) -> dict[str, ObservedRange]:
        """What follows for a conditioned model from what was seen of the model as it is, without another pass."""
        divided = self._conditioned(recipe)[1]
        plain = self._seen[_PLAIN]
        others = equalized_tensors(self.prepared.graph) if recipe.equalize else set()
        known: dict[str, ObservedRange] = {n: seen for n, seen in plain.items() if n not in divided and n not in others}
        for name, how in divided.items():
            seen = plain.get(how.tensor)
            if (
                how.tensor not in others
                and isinstance(seen, ObservedChannels)
                and seen.complete
                and len(seen.lows) == len(how.scales)
            ):
                known[name] = seen.divided(how.scales)
        return known

    def _observe(self, recipe: QuantRecipe) -> Mapping[str, ObservedRange]:
        """Of every tensor that some choice of static nodes may need."""
        assert self.data is not None
        graph = self.model(recipe).graph
        names = [n.name or "" for n in graph if eligible(n) or is_product(n)]
        everything = replace(recipe, plan=dict.fromkeys(names, "static"))
        known = self._seen.get((recipe.smooth, recipe.equalize), {})
        needed = [name for name in live_tensors(placement_of(graph, everything)) if name not in known]
        return observe(self.model(recipe), needed, self.data.limited(_EQUALIZED_SAMPLES), histogram=True)

    def _measured_shifts(self, recipe: QuantRecipe) -> Shifts:
        key = (
            recipe.smooth,
            recipe.equalize,
            recipe.per_channel,
            recipe.per_tensor_nodes,
            recipe.weights,
            recipe.reduced,
        )
        if key not in self._shifts:
            assert self.data is not None
            model = self.model(recipe)
            nodes = {n.name or "": "static" for n in model.graph if eligible(n) and correctable(n)}
            self._shifts[key] = measure_shifts(model, nodes, recipe, self.data.limited(_SHIFT_SAMPLES))  # type: ignore[arg-type]
        return self._shifts[key]

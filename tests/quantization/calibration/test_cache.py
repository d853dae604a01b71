"""What candidates need to know of activations comes from as few passes over the samples as possible."""

from __future__ import annotations

import gc
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.model import io
from onnxtool.model.ir.queries import input_specs
from onnxtool.quantization.algorithms.preprocessing import channel_extremes, conditioned
from onnxtool.quantization.algorithms.smooth_quant import smoothable
from onnxtool.quantization.apply_recipe import placement_of
from onnxtool.quantization.calibration import cache
from onnxtool.quantization.calibration.cache import CalibrationCache
from onnxtool.quantization.calibration.observer import observe
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.opened_candidates import on_disk
from onnxtool.runtime.data.open_data import open_data
from tests.quantization.algorithms.test_cross_layer_equalization import DATA, unbalanced
from tests.quantization.algorithms.test_smooth_quant import behind_residual, outliers

RECIPE = QuantRecipe(mode="static", smooth=0.5, per_channel=False)


@pytest.mark.parametrize("make", [outliers, behind_residual])
@pytest.mark.parametrize("method", ["minmax", "mse"])
def test_ranges_of_a_smoothed_model_follow_from_the_pass_over_the_model_as_it_is(make: object, method: str) -> None:
    proto = make()  # type: ignore[operator]
    prepared = prepare(io.from_proto(proto), "none")
    specs = input_specs(prepared)
    shape = (24, *(4 if not isinstance(d, int) else d for d in specs[0].shape[1:]))
    data = open_data({"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}, specs)
    plain = placement_of(prepared.graph, RECIPE).observed
    channels = {g.value.name or "": g.channels for g in smoothable(prepared.graph)}
    seen = observe(prepared, plain, data, histogram=True, channels=channels)
    # Without samples: another pass is not possible.
    found = CalibrationCache(prepared, seen, None).calibrated(replace(RECIPE, method=method))

    sizes = channel_extremes(prepared, data)
    assert found.channels is not None
    assert {n: pytest.approx(v) for n, v in found.channels.items()} == sizes
    smoothed = conditioned(prepared, RECIPE.with_channels(sizes))
    needed = placement_of(smoothed.graph, RECIPE).observed
    expected = {n: o.range(method) for n, o in observe(smoothed, needed, data, histogram=True).items()}
    assert found.ranges is not None
    assert set(found.ranges) == set(expected)
    assert set(expected) - set(plain) or any(
        not np.allclose(expected[n], seen[n].range(method), rtol=0.02) for n in expected
    ), "smoothing changes something"
    for name, right in expected.items():
        np.testing.assert_allclose(found.ranges[name], right, rtol=1e-4 if method == "minmax" else 0.03, atol=1e-4)


def test_of_an_equalized_model_only_what_changes_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(io.from_proto(unbalanced()), "none")
    recipe = QuantRecipe(mode="static", equalize=True)
    data = open_data(DATA, input_specs(prepared))
    seen = observe(prepared, placement_of(prepared.graph, recipe).observed, data, histogram=True)
    watched: list[str] = []

    def watch(model: ir.Model, tensors: list[str], *rest: Any, **more: Any) -> Any:
        watched.extend(tensors)
        return observe(model, tensors, *rest, **more)

    monkeypatch.setattr(cache, "observe", watch)
    found = CalibrationCache(prepared, seen, data).calibrated(recipe).ranges
    assert found is not None and set(watched) == set(found) - {"x", "y"} and {"x", "y"} <= set(found)
    equalized = conditioned(prepared, recipe)
    for name, one in observe(equalized, list(found), data, histogram=True).items():
        np.testing.assert_allclose(found[name], one.range(recipe.method, recipe.coverage), rtol=1e-3, atol=1e-5)


def test_a_conditioned_model_that_is_kept_on_disk_is_the_same_and_goes_with_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prepared, recipe = prepare(io.from_proto(unbalanced()), "none"), QuantRecipe(mode="static", equalize=True)
    stored = CalibrationCache(prepared, {}, None, on_disk)
    assert stored.model(QuantRecipe()) is prepared and not list(tmp_path.iterdir())
    expected, found = (c.model(recipe).graph.initializers for c in (CalibrationCache(prepared, {}, None), stored))
    assert list(tmp_path.iterdir())
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(cast(Any, found[name].const_value).numpy(), cast(Any, value.const_value).numpy())
    del stored, found
    gc.collect()
    assert not list(tmp_path.iterdir())

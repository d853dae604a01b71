"""Trees compare with thresholds, which the proof tries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.datasets import load_digits
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.tree import DecisionTreeClassifier

from onnxtool.conversion.convert import convert
from onnxtool.runtime.runner import OnnxRunner


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 4)) * 100 + 1e4
    return x, (x[:, 0] + x[:, 1] > 2e4).astype(int)


@pytest.mark.parametrize(
    "model",
    [DecisionTreeClassifier(), GradientBoostingRegressor(n_estimators=5), HistGradientBoostingClassifier(max_iter=5)],
)
def test_trees_convert_in_doubles(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path, model: Any) -> None:
    skops.io.dump(model.fit(*rows), tmp_path / "model.skops")
    assert convert(tmp_path / "model.skops", tmp_path / "out.onnx").ok


def test_doubles_keep_what_float32_would_round_off(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    model = LinearRegression().fit(x, x[:, 0] * 3 + 1e9)
    skops.io.dump(model, tmp_path / "model.skops")
    assert convert(tmp_path / "model.skops", tmp_path / "out.onnx").ok
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": x})["prediction"]
    assert found.dtype == np.float64
    np.testing.assert_allclose(found[:, 0], model.predict(x), rtol=0, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_whole_numbers_that_rounding_puts_to_either_side_are_no_difference(seed: int) -> None:
    x, y = load_digits(return_X_y=True)
    model = make_pipeline(MinMaxScaler(), GradientBoostingClassifier(n_estimators=8, random_state=0)).fit(x, y)
    assert convert(model, seed=seed).ok

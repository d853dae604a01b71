"""Trees compare with thresholds: what float32 changes next to them is counted."""

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
    RandomForestClassifier,
)
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.sklearn import export
from onnxtool.conversion.sklearn.model import SklearnModel
from onnxtool.conversion.sklearn.tree_thresholds import rows_near_thresholds
from onnxtool.runtime.runner import OnnxRunner


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 4)) * 100 + 1e4
    return x, (x[:, 0] + x[:, 1] > 2e4).astype(int)


@pytest.fixture(scope="module")
def scaled(rows: tuple[np.ndarray, np.ndarray]) -> Pipeline:
    return make_pipeline(StandardScaler(), RandomForestClassifier(9, random_state=0)).fit(*rows)


def near(path: Path) -> np.ndarray:
    watched: Any = open_source(path)
    model = watched._model
    assert isinstance(model, SklearnModel)
    found = rows_near_thresholds(model)
    assert found is not None
    return found


def test_flips_of_float32_inputs_are_counted_and_said(
    scaled: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "has_trees", lambda _: False)  # as skl2onnx writes scalers
    skops.io.dump(scaled, tmp_path / "model.skops")
    report = convert(tmp_path / "model.skops", tmp_path / "out.onnx", input_dtypes={"X": "float32"})
    assert report.ok
    (note,) = [n for n in report.notes if "float32 changes" in n]
    data = near(tmp_path / "model.skops").astype(np.float32)
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": data})["label"]
    flips = int((found != scaled.predict(data.astype(np.float64))).sum())
    assert flips > 0
    assert f"float32 changes {flips} of {len(data)} labels" in note


def test_doubles_flip_nothing(scaled: Pipeline, tmp_path: Path) -> None:
    skops.io.dump(scaled, tmp_path / "model.skops")
    report = convert(tmp_path / "model.skops", tmp_path / "out.onnx")
    assert report.ok
    assert not [n for n in report.notes if "changes" in n]
    assert [str(i) for i in report.inputs] == ["X: float64[batch, 4]"]
    data = near(tmp_path / "model.skops")
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": data})["label"]
    np.testing.assert_array_equal(found, scaled.predict(data))


def test_rows_lie_on_both_sides_of_thresholds(rows: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    tree = DecisionTreeClassifier(max_depth=1).fit(*rows)
    skops.io.dump(tree, tmp_path / "model.skops")
    data = near(tmp_path / "model.skops")
    feature, threshold = tree.tree_.feature[0], tree.tree_.threshold[0]
    below = data[:, feature] <= threshold
    assert below.any()
    assert not below.all()
    assert np.abs(data[:, feature] - threshold).max() < 0.01


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

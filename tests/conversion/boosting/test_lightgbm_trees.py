"""LightGBM's trees on their thresholds, its linear leaves, and zeros that are missing values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.errors import OnnxToolError
from tests.conversion.answers import outputs

pytest.importorskip("lightgbm")
pytest.importorskip("skl2onnx")
import lightgbm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 4)).astype(np.float32)
HOLED = np.where(RANDOM.random(X.shape) < 0.2, np.nan, X).astype(np.float32)
Y = X[:, 0] * 3 * (X[:, 1] > 0) + X[:, 2]
SMALL: dict[str, Any] = {"n_estimators": 6, "num_leaves": 5, "verbose": -1}


def test_rows_on_the_thresholds(tmp_path: Path) -> None:
    booster = lightgbm.LGBMRegressor(n_estimators=1, min_child_samples=1, verbose=-1).fit(X.astype(float), Y).booster_
    trees = booster.trees_to_dataframe().dropna(subset=["threshold"])
    rows = np.zeros((len(trees), 4), np.float32)
    places = trees.split_feature.str.removeprefix("Column_").astype(int)
    rows[np.arange(len(rows)), places] = trees.threshold.astype(np.float32)
    assert convert(booster, tmp_path / "out.onnx", effort="quick").ok
    np.testing.assert_allclose(outputs(tmp_path / "out.onnx", rows)[0].ravel(), booster.predict(rows), rtol=1e-5)


@pytest.mark.parametrize("rows", [X, HOLED], ids=["whole", "gaps"])
def test_leaves_are_linear(rows: np.ndarray, tmp_path: Path) -> None:
    model = lightgbm.LGBMRegressor(linear_tree=True, **SMALL).fit(rows, Y)
    for number, estimator in enumerate((model, model.booster_)):
        path = tmp_path / f"{number}.onnx"
        assert convert(estimator, path, effort="quick").ok
        tried = np.concatenate([rows, HOLED])  # gaps where the training had none, too
        np.testing.assert_allclose(outputs(path, tried)[0].ravel(), model.predict(tried), rtol=1e-5, atol=1e-5)


def test_linear_leaves_behind_a_scaler_and_an_objective(tmp_path: Path) -> None:
    target = np.exp(Y / 4)
    step = lightgbm.LGBMRegressor(linear_tree=True, objective="poisson", **SMALL)
    model = make_pipeline(StandardScaler(), step).fit(X.astype(float), target)
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    found = outputs(tmp_path / "out.onnx", X)[0].ravel()
    np.testing.assert_allclose(found, model.predict(X.astype(float)), rtol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_linear_leaves_of_classifiers(classes: int, tmp_path: Path) -> None:
    labels = np.array(["a", "b", "c"])[np.digitize(Y, [-0.5, 0.5][: classes - 1])]
    model = lightgbm.LGBMClassifier(linear_tree=True, **SMALL).fit(X, labels)
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    found, chances = outputs(tmp_path / "out.onnx", X)
    assert found.tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(chances, model.predict_proba(X), rtol=1e-5, atol=1e-6)


def test_zero_is_missing(tmp_path: Path) -> None:
    rows = np.where(RANDOM.random(X.shape) < 0.3, 0, X).astype(np.float32)
    target = np.where(rows[:, 0] == 0, 5, rows[:, 0])
    model = lightgbm.LGBMRegressor(zero_as_missing=True, **SMALL).fit(rows, target)
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    tried = np.concatenate([rows, HOLED, np.full((1, 4), 1e-36, np.float32)])
    np.testing.assert_allclose(outputs(tmp_path / "out.onnx", tried)[0].ravel(), model.predict(tried), rtol=1e-6)


def test_categories_where_zero_is_missing(tmp_path: Path) -> None:
    rows = np.column_stack([RANDOM.integers(0, 6, 300), np.where(X[:, 1] < 0.3, 0, X[:, 1])]).astype(np.float32)
    model = lightgbm.LGBMRegressor(zero_as_missing=True, min_data_per_group=1, cat_smooth=0.1, **SMALL)
    model.fit(rows, np.isin(rows[:, 0], [0, 4]) * 5.0 + rows[:, 1], categorical_feature=[0])
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    np.testing.assert_allclose(outputs(tmp_path / "out.onnx", rows)[0].ravel(), model.predict(rows), rtol=1e-5)


def test_categories_beside_linear_leaves_are_refused(tmp_path: Path) -> None:
    rows = np.column_stack([RANDOM.integers(0, 6, 300), X[:, 1]])
    model = lightgbm.LGBMRegressor(linear_tree=True, min_data_per_group=1, cat_smooth=0.1, **SMALL)
    model.fit(rows, np.isin(rows[:, 0], [1, 4]) * 5.0, categorical_feature=[0])
    with pytest.raises(OnnxToolError, match="encode them before"):
        convert(model, tmp_path / "out.onnx")

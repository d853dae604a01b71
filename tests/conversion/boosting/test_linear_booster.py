"""XGBoost's linear booster, and numbers that stand for missing values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtool
from onnxtool.conversion.boosting.xgboost_trees import is_linear
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.answers import outputs

xgboost = pytest.importorskip("xgboost")
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((200, 3)).astype(np.float32)
TARGET = ROWS[:, 0] - 2 * ROWS[:, 1]
CLASSES = np.digitize(ROWS[:, 0], [-0.5, 0.5])
HOLED = np.where(RANDOM.random(ROWS.shape) < 0.2, np.nan, ROWS).astype(np.float32)


def answers(model: Any, rows: np.ndarray, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """What the file gives, and the model."""
    assert onnxtool.convert(model, path).ok
    found = np.asarray(outputs(path, rows)[-1])
    expected = model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)
    return found.reshape(expected.shape), expected


@pytest.mark.parametrize(
    ("kind", "target", "options"),
    [
        ("XGBRegressor", TARGET, {}),
        ("XGBRegressor", np.stack([TARGET, -TARGET], 1), {}),
        ("XGBRegressor", np.abs(TARGET), {"objective": "count:poisson", "base_score": 2.0}),
        ("XGBClassifier", (CLASSES > 0).astype(int), {}),
        ("XGBClassifier", CLASSES, {}),
    ],
)
def test_a_linear_booster_adds_up_what_is_there(
    kind: str, target: np.ndarray, options: dict[str, Any], tmp_path: Path
) -> None:
    model = getattr(xgboost, kind)(n_estimators=3, booster="gblinear", **options).fit(ROWS, target)
    assert is_linear(model)
    np.testing.assert_allclose(*answers(model, HOLED, tmp_path / "out.onnx"), rtol=1e-4, atol=1e-5)


def test_a_frame_it_was_fitted_on_has_names_that_it_asks_for(tmp_path: Path) -> None:
    frame = pytest.importorskip("pandas").DataFrame(ROWS, columns=["age", "income", "visits"])
    model = xgboost.XGBRegressor(n_estimators=3, booster="gblinear").fit(frame, TARGET)
    assert onnxtool.convert(model, tmp_path / "out.onnx").ok
    found = outputs(tmp_path / "out.onnx", ROWS)[-1]
    np.testing.assert_allclose(np.ravel(found), model.predict(frame), rtol=1e-4, atol=1e-5)


def test_a_native_linear_booster(tmp_path: Path) -> None:
    options = {"booster": "gblinear", "objective": "binary:logistic"}
    booster = xgboost.train(options, xgboost.DMatrix(ROWS, CLASSES > 0), 3)
    booster.save_model(tmp_path / "model.json")
    assert onnxtool.convert(tmp_path / "model.json", tmp_path / "out.onnx").ok


def test_another_objective_is_refused_by_its_name(tmp_path: Path) -> None:
    model = xgboost.XGBRegressor(n_estimators=2, booster="gblinear", objective="survival:cox").fit(ROWS, TARGET + 9)
    with pytest.raises(UnsupportedError, match="survival:cox"):
        onnxtool.convert(model, tmp_path / "out.onnx")


@pytest.mark.parametrize("booster", ["gbtree", "gblinear"])
def test_a_number_stands_for_a_missing_value(booster: str, tmp_path: Path) -> None:
    rows = np.round(ROWS)
    model = xgboost.XGBRegressor(n_estimators=3, missing=-1.0, booster=booster).fit(rows, TARGET)
    assert np.count_nonzero(rows == -1) > 20
    np.testing.assert_allclose(*answers(model, rows, tmp_path / "out.onnx"), rtol=1e-4, atol=1e-5)


def test_so_it_does_in_a_pipeline(tmp_path: Path) -> None:
    pipeline, preprocessing = pytest.importorskip("sklearn.pipeline"), pytest.importorskip("sklearn.preprocessing")
    rows = np.round(ROWS)
    model = xgboost.XGBRegressor(n_estimators=3, missing=-2.0)
    steps = pipeline.make_pipeline(preprocessing.MaxAbsScaler(), model)
    scaled = preprocessing.MaxAbsScaler().fit_transform(rows)
    model.set_params(missing=float(np.unique(scaled[:, 0])[1]))
    np.testing.assert_allclose(*answers(steps.fit(rows, TARGET), rows, tmp_path / "out.onnx"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("booster", ["gbtree", "gblinear"])
def test_what_is_rounded_to_the_missing_number_is_missing(booster: str, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    rows = np.round(ROWS).astype(np.float64)
    model = xgboost.XGBRegressor(n_estimators=3, missing=-1.0, booster=booster).fit(rows, TARGET)
    onnxtool.convert(model, tmp_path / "out.onnx", verify_result=False)
    beside = np.where(rows == -1, np.nextafter(-1.0, 0.0), rows)
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: beside}).values()
    np.testing.assert_allclose(found[:, 0], model.predict(beside), rtol=1e-4, atol=1e-5)


def test_columns_of_whole_numbers_and_of_booleans(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("skl2onnx")
    table = pandas.DataFrame({"count": np.arange(60) % 7, "flag": np.arange(60) % 2 == 0})
    model = xgboost.XGBRegressor(n_estimators=3).fit(table, table["count"] + 3.0 * table["flag"])
    onnxtool.convert(model, tmp_path / "out.onnx", verify_result=False)
    rows = np.array([[2.5, 0], [3.5, 1], [0, 1]])
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    (found,) = runner.run({runner.inputs[0].name: rows}).values()
    np.testing.assert_allclose(
        found[:, 0], model.get_booster().inplace_predict(rows, validate_features=False), rtol=1e-5
    )

"""Objectives, forests, dropout, names and categories of boosters: the file predicts the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtool
from tests.conversion.answers import outputs

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((300, 4)).astype(np.float32)
VALUES = ROWS[:, 0] * 3 + ROWS[:, 1] ** 2
CLASSES = np.digitize(VALUES, [-1, 1])
FOREST = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}
DROPOUT = {"booster": "dart", "rate_drop": 0.5, "n_estimators": 6, "max_depth": 3}


@pytest.mark.parametrize(
    ("kind", "target", "options"),
    [
        ("LGBMClassifier", CLASSES, FOREST),
        ("LGBMClassifier", (CLASSES > 0).astype(int), FOREST),
        ("LGBMRegressor", VALUES, FOREST),
        ("LGBMRegressor", VALUES + 20, {"objective": "mape"}),
        ("LGBMRegressor", CLASSES / 2, {"objective": "cross_entropy"}),
        ("LGBMRegressor", CLASSES / 2, {"objective": "cross_entropy_lambda"}),
        ("LGBMRegressor", VALUES, {"objective": "fair"}),
        ("LGBMClassifier", (CLASSES > 0).astype(int), {"sigmoid": 3.0}),
        ("LGBMClassifier", CLASSES, {"objective": "multiclassova"}),
        ("LGBMRegressor", VALUES, {"reg_sqrt": True}),
        ("LGBMRegressor", VALUES, FOREST | {"linear_tree": True}),
        ("XGBClassifier", CLASSES, {"objective": "multi:softmax", "n_estimators": 3}),
        ("XGBClassifier", (CLASSES > 0).astype(int), {"objective": "binary:logitraw", "base_score": 0.3}),
        ("XGBClassifier", (CLASSES > 0).astype(int), {"objective": "binary:hinge", "n_estimators": 30}),
        ("XGBRegressor", np.abs(VALUES) + 1, {"objective": "reg:gamma", "n_estimators": 3}),
        ("XGBRegressor", np.abs(VALUES) + 1, {"objective": "survival:cox", "n_estimators": 3}),
        ("XGBRegressor", CLASSES / 3, {"objective": "reg:logistic", "n_estimators": 3}),
        ("XGBRegressor", CLASSES > 0, {"objective": "binary:logistic", "n_estimators": 3}),
        ("XGBRegressor", VALUES, DROPOUT),
        ("XGBClassifier", CLASSES, DROPOUT),
        ("XGBClassifier", CLASSES > 0, {"num_parallel_tree": 2, "subsample": 0.5, "n_estimators": 4}),
        ("XGBClassifier", CLASSES, DROPOUT | {"num_parallel_tree": 3, "subsample": 0.5}),
        ("XGBRFClassifier", CLASSES, {"n_estimators": 6, "max_depth": 3}),
        ("XGBRegressor", np.c_[VALUES, -VALUES, VALUES + 9], {"n_estimators": 3}),
    ],
)
def test_predicts_the_same(kind: str, target: np.ndarray, options: dict[str, Any], tmp_path: Path) -> None:
    package = lightgbm if kind.startswith("LGBM") else xgboost
    usual = {"n_estimators": 5, "verbose": -1, "min_child_samples": 5} if package is lightgbm else {}
    booster = getattr(package, kind)(**usual | options).fit(ROWS, target)
    assert onnxtool.convert(booster, tmp_path / "out.onnx", effort="quick").ok
    found = outputs(tmp_path / "out.onnx", ROWS)[-1]
    expected = booster.predict_proba(ROWS) if "Classifier" in kind else booster.predict(ROWS)
    np.testing.assert_allclose(found, expected.reshape(len(ROWS), -1), rtol=1e-4, atol=1e-5)


def test_rounds_of_several_trees_that_count(tmp_path: Path) -> None:
    settings = {"num_parallel_tree": 2, "subsample": 0.5, "n_estimators": 40, "early_stopping_rounds": 2}
    for kind, target in (("XGBClassifier", CLASSES > 0), ("XGBClassifier", CLASSES), ("XGBRegressor", VALUES)):
        model = getattr(xgboost, kind)(**settings)
        model.fit(ROWS[:200], target[:200], eval_set=[(-ROWS[200:], target[200:])], verbose=False)
        assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
        assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
        expected = model.predict_proba(ROWS) if "Classifier" in kind else model.predict(ROWS)[:, None]
        np.testing.assert_allclose(outputs(tmp_path / "out.onnx", ROWS)[-1], expected, rtol=1e-4, atol=1e-5)


def test_labels_of_raw_sums(tmp_path: Path) -> None:
    model = xgboost.XGBClassifier(objective="binary:logitraw", n_estimators=4).fit(ROWS, CLASSES > 0)
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    np.testing.assert_array_equal(outputs(tmp_path / "out.onnx", ROWS)[0], model.predict(ROWS))


def test_times_until_something_ends(tmp_path: Path) -> None:
    data = xgboost.DMatrix(ROWS, label_lower_bound=np.abs(VALUES) + 1, label_upper_bound=np.abs(VALUES) + 2)
    booster = xgboost.train({"objective": "survival:aft"}, data, 3)
    assert onnxtool.convert(booster, tmp_path / "out.onnx", effort="quick").ok
    np.testing.assert_allclose(outputs(tmp_path / "out.onnx", ROWS)[-1][:, 0], booster.predict(data), rtol=1e-5)


def test_a_native_booster_too(tmp_path: Path) -> None:
    booster = xgboost.XGBRegressor(**DROPOUT).fit(ROWS, VALUES).get_booster()
    booster.save_model(tmp_path / "model.json")
    assert onnxtool.convert(tmp_path / "model.json", tmp_path / "out.onnx", effort="quick").ok
    found = outputs(tmp_path / "out.onnx", ROWS)[-1]
    np.testing.assert_allclose(found[:, 0], booster.predict(xgboost.DMatrix(ROWS)), rtol=1e-4, atol=1e-5)


def run(model: Any, folder: Path, rows: np.ndarray, *, prove: bool = False) -> np.ndarray:
    report = onnxtool.convert(model, folder / "out.onnx", verify_result=prove, effort="quick")
    assert report.ok
    return outputs(folder / "out.onnx", rows)[-1]


@pytest.mark.parametrize("kind", ["XGBRegressor", "XGBClassifier"])
def test_columns_with_names(kind: str, tmp_path: Path) -> None:
    table = pytest.importorskip("pandas").DataFrame(ROWS, columns=["age", "city", "x y", "f9"])
    model = getattr(xgboost, kind)(n_estimators=3).fit(table, CLASSES)
    expected = model.predict_proba(table) if "Classifier" in kind else model.predict(table).reshape(-1, 1)
    np.testing.assert_allclose(run(model, tmp_path, ROWS), expected, rtol=1e-4, atol=1e-5)
    assert model.get_booster().feature_names == list(table.columns)


def test_missing_values_apart_from_all_others(tmp_path: Path) -> None:
    holed = np.where(RANDOM.random(ROWS.shape) < 0.3, np.nan, ROWS).astype(np.float32)
    target = np.where(np.isnan(holed[:, 0]), 5.0, 0.0)
    model = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1).fit(holed, target)
    rows = np.repeat(np.array([[np.inf], [-np.inf], [3.4e38], [np.nan], [0]], np.float32), 4, axis=1)
    np.testing.assert_allclose(run(model, tmp_path, rows)[:, 0], model.predict(rows.astype(float)), rtol=1e-5)


def test_categories_without_their_fraction(tmp_path: Path) -> None:
    rows = np.c_[RANDOM.integers(0, 9, 300), ROWS[:, :2]].astype(np.float32)
    target = np.isin(rows[:, 0], [1, 4, 6]) * 3.0 + rows[:, 1]
    model = lightgbm.LGBMRegressor(n_estimators=4, verbose=-1, min_data_per_group=5, cat_smooth=1)
    model.fit(rows, target, categorical_feature=[0])
    tried = np.c_[np.array([0, 1, 4.7, -0.5, -1, 6.9, 40, np.nan, 1.5]), np.zeros((9, 2))].astype(np.float32)
    found = run(model, tmp_path, tried, prove=True)[:, 0]
    np.testing.assert_allclose(found, model.predict(tried.astype(float)), rtol=1e-5)


def test_categories_of_a_table_are_told(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    cities = pandas.Categorical(np.where(VALUES > 1, "Rome", "Oslo"), ordered=True)
    # Of two columns of zeros and ones LightGBM does not say which has the ordered categories.
    table = pandas.DataFrame({"city": cities, "x": ROWS[:, 0], "one": np.arange(len(ROWS)) % 2})
    model = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(table, VALUES)
    report = onnxtool.convert(model, tmp_path / "out.onnx", effort="quick")
    assert any("Oslo is 0, Rome is 1" in note for note in report.notes)


def test_an_objective_of_the_users_own_gives_the_sums(tmp_path: Path) -> None:
    model = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1, objective=lambda y, p: (p - y, np.ones_like(y)))
    model.fit(ROWS, VALUES)
    np.testing.assert_allclose(run(model, tmp_path, ROWS)[:, 0], model.predict(ROWS), rtol=1e-4, atol=1e-5)

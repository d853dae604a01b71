"""Boosters that the exporters refuse or get wrong predict the same in ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnxtool
from onnxtool.conversion.boosting.equivalent_booster import equivalent

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
pytest.importorskip("onnxmltools")
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
        ("XGBRegressor", VALUES, DROPOUT),
        ("XGBClassifier", CLASSES, DROPOUT),
        ("XGBRFClassifier", CLASSES, {"n_estimators": 6, "max_depth": 3}),
        ("XGBRegressor", np.c_[VALUES, -VALUES, VALUES + 9], {"n_estimators": 3}),
    ],
)
def test_predicts_the_same(kind: str, target: np.ndarray, options: dict[str, Any], tmp_path: Path) -> None:
    package = lightgbm if kind.startswith("LGBM") else xgboost
    usual = {"n_estimators": 5, "verbose": -1, "min_child_samples": 5} if package is lightgbm else {}
    booster = getattr(package, kind)(**usual | options).fit(ROWS, target)
    assert onnxtool.convert(booster, tmp_path / "out.onnx", effort="quick").ok
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    found = session.run(None, {session.get_inputs()[0].name: ROWS})[-1]
    expected = booster.predict_proba(ROWS) if "Classifier" in kind else booster.predict(ROWS)
    np.testing.assert_allclose(found, expected.reshape(len(ROWS), -1), rtol=1e-4, atol=1e-5)


def test_a_native_booster_too(tmp_path: Path) -> None:
    booster = xgboost.XGBRegressor(**DROPOUT).fit(ROWS, VALUES).get_booster()
    booster.save_model(tmp_path / "model.json")
    assert onnxtool.convert(tmp_path / "model.json", tmp_path / "out.onnx", effort="quick").ok
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    found = session.run(None, {session.get_inputs()[0].name: ROWS})[-1]
    np.testing.assert_allclose(found[:, 0], booster.predict(xgboost.DMatrix(ROWS)), rtol=1e-4, atol=1e-5)


def test_what_needs_no_change_is_not_copied() -> None:
    for booster in (
        xgboost.XGBRegressor(n_estimators=2).fit(ROWS, VALUES),
        lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(ROWS, VALUES),
    ):
        assert equivalent(booster) is booster

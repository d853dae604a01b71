"""Options of LightGBM's models are named, and stand in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtool
from onnxtool.conversion.boosting.dropped_options import dropped_options
from tests.conversion.answers import outputs

lightgbm = pytest.importorskip("lightgbm")
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((200, 3)).astype(np.float32)
CLASSES = np.digitize(ROWS[:, 0], [-0.5, 0.5])
FEW = {"n_estimators": 3, "verbose": -1, "min_child_samples": 5}


def fitted(kind: str, target: Any, rows: np.ndarray = ROWS, **options: Any) -> Any:
    return getattr(lightgbm, kind)(**FEW, **options).fit(rows, target)


@pytest.mark.parametrize(
    ("kind", "target", "options"),
    [
        ("LGBMClassifier", (CLASSES > 0).astype(int), {"sigmoid": 3.0}),
        ("LGBMClassifier", CLASSES, {"objective": "multiclassova"}),
        ("LGBMRegressor", ROWS[:, 0], {"reg_sqrt": True}),
    ],
)
def test_is_completed(kind: str, target: np.ndarray, options: dict[str, Any], tmp_path: Path) -> None:
    booster = fitted(kind, target, **options)
    assert onnxtool.convert(booster, tmp_path / "out.onnx").ok
    found = outputs(tmp_path / "out.onnx", ROWS)[-1]
    expected = booster.predict_proba(ROWS) if kind == "LGBMClassifier" else booster.predict(ROWS).reshape(-1, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("zero_as_missing", {"zero_as_missing": True}),
        ("linear_tree", {"linear_tree": True}),
    ],
)
def test_is_named(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    rows = np.where(np.abs(ROWS) < 0.3, np.float32(0), ROWS)
    booster = fitted("LGBMRegressor", ROWS[:, 0], rows, **options)
    assert name in dropped_options(booster)
    assert onnxtool.convert(booster, tmp_path / "out.onnx", effort="quick").ok  # by our own form
    np.testing.assert_allclose(
        outputs(tmp_path / "out.onnx", rows)[0].ravel(), booster.predict(rows), rtol=1e-5, atol=1e-6
    )


def test_a_plain_booster_has_only_its_objective() -> None:
    assert dropped_options(fitted("LGBMRegressor", ROWS[:, 0])) == ["objective=regression"]


def test_gradient_boosting_that_begins_at_zero(tmp_path: Path) -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    model = ensemble.GradientBoostingClassifier(n_estimators=3, init="zero").fit(ROWS, CLASSES)
    assert onnxtool.convert(model, tmp_path / "out.onnx").ok
    found = outputs(tmp_path / "out.onnx", ROWS)[-1]
    np.testing.assert_allclose(found, model.predict_proba(ROWS), rtol=1e-4, atol=1e-6)

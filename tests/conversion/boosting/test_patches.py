"""Every correction of the exporters of boosted trees is needed by the versions that are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")
pytest.importorskip("catboost")
pytest.importorskip("onnxmltools")
import catboost
import lightgbm
import xgboost
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingRegressor

from onnxtool.conversion.boosting.patches import equivalent_booster, exported_trees
from onnxtool.conversion.patches import Patch
from tests.conversion.patched import hold_needed, patches_of
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((200, 3)).astype(np.float32)
Y = X[:, 0] * 3 + X[:, 1] ** 2
CLASSES = np.digitize(Y, [-1, 1])
CATEGORIES = np.column_stack([RANDOM.integers(0, 6, 200), X[:, 1]]).astype(np.float32)
LIGHT: dict[str, Any] = {"n_estimators": 3, "verbose": -1, "min_child_samples": 5}
CAT: dict[str, Any] = {"iterations": 3, "verbose": False, "allow_writing_files": False}
Case = tuple[Any, np.ndarray, Callable[[Any, np.ndarray], np.ndarray]]


def predicted(model: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict(rows))


def chances(model: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict_proba(rows))


def light(kind: str, target: Any, compute: Any = predicted, **options: Any) -> Case:
    return getattr(lightgbm, kind)(**LIGHT | options).fit(X, target), X, compute


def of_categories() -> Case:
    fractions = CATEGORIES + np.array([0.4, 0], np.float32)
    target = np.isin(CATEGORIES[:, 0], [1, 4]) * 5.0
    return (
        lightgbm.LGBMRegressor(**LIGHT, min_data_per_group=1, cat_smooth=0.1).fit(
            CATEGORIES, target, categorical_feature=[0]
        ),
        fractions,
        predicted,
    )


def of_a_table() -> Case:
    pandas = pytest.importorskip("pandas")
    model = xgboost.XGBRegressor(n_estimators=3).fit(pandas.DataFrame(X, columns=["age", "city", "x y"]), Y)
    return model, X, lambda model, rows: model.predict(pandas.DataFrame(rows, columns=["age", "city", "x y"]))


CASES: dict[Patch[..., object], Callable[[], Case]] = {
    equivalent_booster.DROPOUT: lambda: (
        xgboost.XGBRegressor(booster="dart", rate_drop=0.5, n_estimators=6).fit(X, Y), X, predicted,
    ),
    equivalent_booster.SINGLE: lambda: (
        xgboost.XGBClassifier(num_parallel_tree=2, subsample=0.5, n_estimators=3).fit(X, CLASSES > 0), X, chances,
    ),
    equivalent_booster.NAMES: of_a_table,
    equivalent_booster.CHANCES: lambda: (
        xgboost.XGBClassifier(objective="multi:softmax", n_estimators=3).fit(X, CLASSES), X, chances,
    ),
    equivalent_booster.OBJECTIVE: lambda: light("LGBMRegressor", Y + 20, objective="mape"),
    equivalent_booster.MEAN: lambda: light(
        "LGBMClassifier", CLASSES > 0, chances, boosting_type="rf", bagging_freq=1, bagging_fraction=0.5
    ),
    exported_trees.ZERO_BASE: lambda: (
        GradientBoostingClassifier(n_estimators=2, init="zero").fit(X, CLASSES), X, chances,
    ),
    exported_trees.CATEGORIES: of_categories,
    exported_trees.LINK: lambda: light("LGBMClassifier", CLASSES > 0, chances, sigmoid=3.0),
    exported_trees.TARGETS: lambda: (
        xgboost.XGBRegressor(n_estimators=3).fit(X, np.c_[Y, -Y, Y + 9]), X, predicted,
    ),
    exported_trees.LABELS: lambda: (
        catboost.CatBoostClassifier(**CAT).fit(X, np.where(CLASSES > 0, 7, 3)), X, predicted,
    ),
    exported_trees.EXPONENTIAL: lambda: (
        catboost.CatBoostRegressor(loss_function="Poisson", **CAT).fit(X, np.exp(X[:, 0])), X, predicted,
    ),
    exported_trees.BOOSTING_EXPONENTIAL: lambda: (
        HistGradientBoostingRegressor(loss="poisson", max_iter=3).fit(X, np.exp(X[:, 0])), X, predicted,
    ),
}  # fmt: skip


def test_every_correction_has_a_case() -> None:
    assert set(CASES) == set(patches_of("onnxtool.conversion.boosting.patches"))


@pytest.mark.parametrize("patch", CASES, ids=lambda p: p.upstream)
def test_is_needed(patch: Patch[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows, compute = CASES[patch]()
    expected = compute(model, rows)

    def is_right() -> bool:
        found = run_converted(model, tmp_path, rows)
        alike = [array for array in found if np.size(array) == np.size(expected)]
        return any(np.allclose(array.reshape(np.shape(expected)), expected, rtol=1e-4, atol=1e-5) for array in alike)

    hold_needed(patch, is_right, monkeypatch)

"""CatBoost's trees that are not symmetric, and its several targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner

catboost = pytest.importorskip("catboost")

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((150, 4)).astype(np.float32)
HOLED = np.where(RANDOM.random(X.shape) < 0.1, np.nan, X).astype(np.float32)
THREE = np.digitize(X[:, 0], [-0.5, 0.5])
QUIET = {"iterations": 6, "verbose": 0, "allow_writing_files": False, "random_seed": 0, "thread_count": 1}


def run(model: Any, folder: Path, rows: np.ndarray) -> list[np.ndarray]:
    assert convert(model, folder / "out.onnx", verify_result=False).ok
    runner = OnnxRunner.open(folder / "out.onnx")
    return list(runner.run({runner.inputs[0].name: rows}).values())


@pytest.mark.parametrize(
    ("loss", "growth"),
    [
        ("RMSE", {"grow_policy": "Depthwise"}),
        ("Poisson", {"grow_policy": "Lossguide"}),
        ("MultiRMSE", {}),
        ("MultiQuantile:alpha=0.2,0.8", {}),
        ("RMSEWithUncertainty", {}),
    ],
)
def test_regressors(loss: str, growth: dict[str, Any], tmp_path: Path) -> None:
    target = np.stack([X[:, 0], X[:, 1] * X[:, 2]], 1) if loss == "MultiRMSE" else np.abs(X[:, 0])
    model = catboost.CatBoostRegressor(**QUIET, loss_function=loss, **growth).fit(HOLED, target)
    (found,) = run(model, tmp_path, HOLED)
    expected = model.predict(HOLED).reshape(len(HOLED), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise"])
def test_a_scale_of_the_users(policy: str, tmp_path: Path) -> None:
    model = catboost.CatBoostRegressor(**QUIET, grow_policy=policy).fit(HOLED, X[:, 0])
    model.set_scale_and_bias(2.0, 1.0)
    np.testing.assert_allclose(run(model, tmp_path, HOLED)[0][:, 0], model.predict(HOLED), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (THREE, {}),
        (THREE, {"loss_function": "MultiClassOneVsAll"}),
        (np.array(["no", "yes"])[(THREE > 0).astype(int)], {"nan_mode": "Max"}),
        ((THREE > 0).astype(int) * 5 + 2, {}),
    ],
    ids=["three", "one against all", "texts, gaps are largest", "2 and 7"],
)
@pytest.mark.parametrize("policy", ["SymmetricTree", "Lossguide"])
def test_classifiers(policy: str, target: np.ndarray, options: dict[str, Any], tmp_path: Path) -> None:
    model = catboost.CatBoostClassifier(**QUIET, grow_policy=policy, **options).fit(HOLED, target)
    labels, chances = run(model, tmp_path, HOLED)
    np.testing.assert_allclose(chances, model.predict_proba(HOLED), atol=1e-5)
    assert labels.reshape(-1).tolist() == model.predict(HOLED).reshape(-1).tolist()


def test_splits_on_categories_are_refused(tmp_path: Path) -> None:
    rows = np.column_stack([np.where(X[:, 0] > 0, "a", "b"), np.where(X[:, 1] > 0, "c", "d")]).astype(object)
    model = catboost.CatBoostRegressor(**QUIET, grow_policy="Depthwise", cat_features=[0, 1], one_hot_max_size=1)
    model.fit(rows, X[:, 0])
    with pytest.raises(UnsupportedError, match=r"categor"):
        convert(model, tmp_path / "out.onnx")


def test_several_labels(tmp_path: Path) -> None:
    labels = np.column_stack([X[:, 0] > 1, X[:, 1] > X[:, 2]]).astype(int)
    model = catboost.CatBoostClassifier(loss_function="MultiLogloss", **QUIET).fit(X, labels)
    found, chances = run(model, tmp_path, X)
    np.testing.assert_array_equal(found, model.predict(X))
    np.testing.assert_allclose(chances, model.predict_proba(X), rtol=1e-4, atol=1e-5)


def test_a_chosen_bound_of_the_probability(tmp_path: Path) -> None:
    model = catboost.CatBoostClassifier(**QUIET).fit(X, (X[:, 0] > 0).astype(int))
    model.set_probability_threshold(0.7)
    found, chances = run(model, tmp_path, X)
    np.testing.assert_array_equal(found, model.predict(X))
    assert ((chances[:, 1] > 0.5) & (found == 0)).any()

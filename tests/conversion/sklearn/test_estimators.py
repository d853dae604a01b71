"""Estimators that skl2onnx alone gets wrong or refuses: discriminants, selectors, searches, labels of odd shapes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.feature_selection import RFE, SelectFwe, VarianceThreshold
from sklearn.impute import MissingIndicator
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import RandomizedSearchCV
from sklearn.multiclass import OneVsOneClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler, TargetEncoder
from sklearn.semi_supervised import LabelPropagation
from sklearn.svm import LinearSVC

from onnxtool.conversion.convert import convert
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner

X = np.random.default_rng(0).normal(size=(90, 4))
ROWS = np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)
TWO = (X[:, 0] > 0).astype(int)
THREE = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.4, 0.4])


def converted(model: Any, folder: Path) -> dict[str, np.ndarray]:
    """What the ONNX file gives for ROWS."""
    skops.io.dump(model, folder / "model.skops")
    report = convert(folder / "model.skops", folder / "out.onnx")
    assert report.ok
    return OnnxRunner.open(folder / "out.onnx").run({"X": ROWS})


@pytest.mark.parametrize("target", [TWO, THREE])
@pytest.mark.parametrize(
    "model",
    [
        LinearDiscriminantAnalysis(),
        make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()),
        QuadraticDiscriminantAnalysis(),
        RFE(LogisticRegression(), n_features_to_select=2),
        RandomizedSearchCV(LogisticRegression(), {"C": [1.0]}, n_iter=1, cv=2),
        HistGradientBoostingClassifier(max_iter=4),
    ],
    ids=lambda m: type(m).__name__ if not isinstance(m, np.ndarray) else f"{len(set(m))}",
)
def test_labels_and_probabilities_are_those_of_the_estimator(model: Any, target: np.ndarray, tmp_path: Path) -> None:
    found = converted(model.fit(X, target), tmp_path)
    assert found["label"].shape == (len(ROWS),)
    assert found["label"].tolist() == model.predict(ROWS.astype(float)).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(ROWS.astype(float)), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("target", [TWO, THREE])
def test_without_probabilities_there_are_scores(target: np.ndarray, tmp_path: Path) -> None:
    model = LinearSVC().fit(X, target)
    found = converted(model, tmp_path)
    scores = model.decision_function(ROWS)
    expected = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("target", [TWO, THREE])
def test_votes_between_pairs_of_classes(target: np.ndarray, tmp_path: Path) -> None:
    model = OneVsOneClassifier(LogisticRegression()).fit(X, target)
    found = converted(model, tmp_path)
    assert found["label"].tolist() == model.predict(ROWS).tolist()
    scores = model.decision_function(ROWS.astype(float))
    shown = found["scores"][:, 1] if scores.ndim == 1 else found["scores"]  # scikit-learn gives the second class's only
    np.testing.assert_allclose(shown, scores, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (SelectFwe(alpha=1e-30), "SelectFwe: it selects no column"),
        (TargetEncoder(cv=2, random_state=0), "TargetEncoder: 80 of its categories .* float32 cannot hold"),
    ],
)
def test_what_cannot_come_out_right_is_refused_with_the_reason(model: Any, reason: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(5).normal(size=(80, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of the empty selection
        skops.io.dump(model.fit(rows, np.arange(80) % 2), tmp_path / "model.skops")
    with pytest.raises(UnsupportedError, match=reason):
        convert(tmp_path / "model.skops", tmp_path / "out.onnx", trust=True)


@pytest.mark.parametrize("model", [GaussianMixture(2, random_state=0), IsolationForest(n_estimators=5, random_state=0)])
def test_labels_without_a_target_are_one_for_each_row(model: Any, tmp_path: Path) -> None:
    found = converted(model.fit(X), tmp_path)
    assert found["label"].tolist() == model.predict(ROWS.astype(float)).tolist()


def test_a_clusterer_fitted_on_doubles_gives_labels_and_distances(tmp_path: Path) -> None:
    model = KMeans(3, n_init=1, random_state=0).fit(X)
    found = converted(model, tmp_path)
    assert found["label"].tolist() == model.predict(ROWS.astype(float)).tolist()
    np.testing.assert_allclose(found["scores"], model.transform(ROWS.astype(float)), rtol=1e-3, atol=1e-4)


def test_several_targets_keep_a_column_each(tmp_path: Path) -> None:
    targets = (X[:, :2] > 0).astype(int)
    model = MultiOutputClassifier(LogisticRegression()).fit(X, targets)
    assert converted(model, tmp_path)["label"].tolist() == model.predict(ROWS.astype(float)).tolist()


def test_an_estimator_without_a_converter_is_named(tmp_path: Path) -> None:
    skops.io.dump(LabelPropagation().fit(X, TWO), tmp_path / "model.skops")
    with pytest.raises(UnsupportedError, match=r"no converter for .*LabelPropagation"):
        convert(tmp_path / "model.skops", tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("chosen", [[0], [1], [0, 2]])
def test_the_first_column_may_be_the_only_one_that_is_selected(chosen: list[int], tmp_path: Path) -> None:
    rows = np.where(np.isin(np.arange(4), chosen), X, 1.0)
    selector = VarianceThreshold().fit(rows)
    assert converted(selector, tmp_path)["transformed"].tolist() == ROWS[:, chosen].tolist()


def test_bins_in_a_sparse_matrix_are_columns(tmp_path: Path) -> None:
    step = KBinsDiscretizer(3, strategy="uniform").fit(X)
    assert converted(step, tmp_path)["transformed"].tolist() == step.transform(ROWS.astype(float)).toarray().tolist()


def test_an_indicator_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no column at all"):
        converted(MissingIndicator().fit(X), tmp_path)

"""Members vote as in scikit-learn: by rows, by weights, and for the classes that they have seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("skl2onnx")
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    IsolationForest,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.multiclass import OneVsOneClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from onnxtool.errors import UnsupportedError
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((90, 3))
NUMBER = X[:, 0] + X[:, 1] ** 2
THREE = np.array(["low", "mid", "high"])[np.digitize(NUMBER, [0.3, 1.2])]
TWO = np.where(NUMBER > 0.7, "yes", "no")
PAIR = [("a", LinearDiscriminantAnalysis()), ("b", LogisticRegression())]
HARD = [("a", SVC()), ("b", RidgeClassifier()), ("c", NearestCentroid())]


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize(
    "model",
    [
        VotingClassifier(PAIR, voting="soft", weights=[2, 1]),
        VotingClassifier(HARD),
        VotingClassifier(HARD, weights=[1, 3, 1]),
        BaggingClassifier(LinearDiscriminantAnalysis(), 3, random_state=0),
        BaggingClassifier(LogisticRegression(), 4, max_samples=4, random_state=1),
        StackingClassifier([("c", make_pipeline(KMeans(3, random_state=0), LogisticRegression())), PAIR[0]], cv=2),
        StackingClassifier([*PAIR, HARD[2]], cv=2, stack_method="predict"),
        StackingClassifier(PAIR, LinearSVC(random_state=0), cv=2),
    ],
    ids=["soft", "hard", "weighted", "discriminants", "few classes", "clusters", "labels", "scores"],
)
def test_votes(model: Any, labels: np.ndarray, tmp_path: Path) -> None:
    model.fit(X, labels)
    found, *chances = run_converted(model, tmp_path, X)
    assert found.tolist() == model.predict(X).tolist()
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(chances[0], model.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("member", [LogisticRegression(), LinearSVC(random_state=0)])
def test_one_against_one_of_two_classes_gives_the_classes(member: Any, tmp_path: Path) -> None:
    model = OneVsOneClassifier(member).fit(X, TWO)
    assert run_converted(model, tmp_path, X, prove=True)[0].tolist() == model.predict(X).tolist()


def test_discriminants_for_several_labels(tmp_path: Path) -> None:
    model = MultiOutputClassifier(LinearDiscriminantAnalysis()).fit(X, np.column_stack([NUMBER > 1, X[:, 2] > 0]))
    chances = run_converted(model, tmp_path, X)[1]
    np.testing.assert_allclose(chances, np.stack(model.predict_proba(X)), atol=1e-12)


def test_the_label_is_that_of_the_largest_score_where_several_chances_are_one(tmp_path: Path) -> None:
    model = SGDClassifier(loss="log_loss", random_state=0).fit(X, THREE)
    far = X * 1e4
    labels, chances = run_converted(model, tmp_path, far)
    assert labels.tolist() == model.predict(far).tolist()
    assert (model.predict_proba(far).max(axis=1) < 0.6).any()
    np.testing.assert_allclose(chances, model.predict_proba(far), atol=1e-12)


def test_clusters_as_the_last_step_keep_their_labels(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), KMeans(3, random_state=0)).fit(X)
    labels, distances = run_converted(model, tmp_path, X)
    assert labels.tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(distances, model.transform(X), atol=1e-6)


@pytest.mark.parametrize("labels", [TWO, THREE], ids=["two", "three"])
def test_trees_vote_with_weights_in_doubles(labels: np.ndarray, tmp_path: Path) -> None:
    model = AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=30, random_state=0).fit(X, labels)
    rows = np.concatenate([X, 3 * X])
    found, chances = run_converted(model, tmp_path, rows)
    assert found.tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(
        chances, model.predict_proba(rows).astype(chances.dtype), rtol=1e-12
    )  # not float32's 6e-8
    assert len(onnx.load(tmp_path / "out.onnx").graph.node) < 20


def test_others_than_trees_vote_one_by_one(tmp_path: Path) -> None:
    model = AdaBoostClassifier(LogisticRegression(), n_estimators=3).fit(X, THREE)
    found, chances = run_converted(model, tmp_path, X)
    assert found.tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(chances, model.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    # A tenth of 91 rows: the offset is a row's own score, whose label hangs on the last digit.
    [{}, {"contamination": 0.1}, {"max_features": 0.5}, {"bootstrap": True, "max_samples": 20}],
    ids=str,
)
def test_isolation_is_one_ensemble(options: dict[str, Any], tmp_path: Path) -> None:
    rows = np.concatenate([X, 3 * X[:1]])
    model = IsolationForest(n_estimators=30, random_state=0, **options).fit(rows)
    tried = np.concatenate([rows, 4 * X])
    label, scores = run_converted(model, tmp_path, tried)
    np.testing.assert_array_equal(label, model.predict(tried))
    np.testing.assert_allclose(scores[:, 0], model.decision_function(tried), rtol=0, atol=1e-13)
    nodes = onnx.load(tmp_path / "out.onnx").graph.node
    assert [n.op_type for n in nodes].count("TreeEnsembleRegressor") == 1


def test_isolation_of_single_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="one row"):
        run_converted(IsolationForest(n_estimators=3, max_samples=1).fit(X), tmp_path, X)

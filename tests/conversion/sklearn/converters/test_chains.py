"""In a chain, each estimator sees what those before it predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, RegressorChain
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from onnxtool.errors import UnsupportedError
from tests.conversion.sklearn.converted_model import run_converted

X = np.random.default_rng(0).standard_normal((90, 3)).astype(np.float32)
NUMBERS = np.stack([X[:, 0] + X[:, 1], X[:, 0] * X[:, 1], X[:, 2]], 1)
LABELS = (NUMBERS > 0.3).astype(int)


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
@pytest.mark.parametrize("member", [Ridge(), DecisionTreeRegressor(max_depth=3)], ids=["ridge", "tree"])
def test_numbers(order: list[int] | None, member: Any, tmp_path: Path) -> None:
    chain = RegressorChain(member, order=order).fit(X, NUMBERS)
    (found,) = run_converted(chain, tmp_path, X)
    np.testing.assert_allclose(found, chain.predict(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"order": [2, 0, 1]}, {"chain_method": "predict_proba"}], ids=str)
@pytest.mark.parametrize("member", [LogisticRegression(), DecisionTreeClassifier(max_depth=3)], ids=["linear", "tree"])
def test_labels(options: dict[str, Any], member: Any, tmp_path: Path) -> None:
    chain = ClassifierChain(member, **options).fit(X, LABELS)
    labels, chances = run_converted(chain, tmp_path, X)
    np.testing.assert_allclose(chances, chain.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(labels, chain.predict(X))


def test_other_labels_than_no_and_yes_are_refused(tmp_path: Path) -> None:
    chain = ClassifierChain(LogisticRegression()).fit(X, LABELS + 1)
    with pytest.raises(UnsupportedError, match="0 and 1"):
        run_converted(chain, tmp_path, X)


@pytest.mark.parametrize("count", [2, 3])
def test_several_labels_of_a_network(count: int, tmp_path: Path) -> None:
    network = MLPClassifier((4,), max_iter=3, random_state=0)
    with pytest.warns(match="Maximum iterations"):
        network.fit(X, LABELS[:, :count])
    labels, chances = run_converted(network, tmp_path, X)
    np.testing.assert_allclose(chances, network.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(labels, network.predict(X))


UNEVEN = np.stack([LABELS[:, 0], np.digitize(X[:, 1], [-0.5, 0.5])], 1)


@pytest.mark.parametrize(
    "model",
    [MultiOutputClassifier(LogisticRegression()), RandomForestClassifier(3, random_state=0), DecisionTreeClassifier()],
    ids=lambda model: type(model).__name__,
)
def test_targets_with_different_numbers_of_classes(model: Any, tmp_path: Path) -> None:
    model.fit(X, UNEVEN)
    labels, chances = run_converted(model, tmp_path, X.astype(np.float64), prove=True)
    np.testing.assert_array_equal(labels, model.predict(X))
    for found, expected in zip(chances, model.predict_proba(X), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_neighbours_of_targets_with_different_numbers_of_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="different numbers of classes"):
        run_converted(KNeighborsClassifier().fit(X, UNEVEN), tmp_path, X)


def test_several_labels_of_a_linear_classifier(tmp_path: Path) -> None:
    model = RidgeClassifier().fit(X, LABELS)
    labels, scores = run_converted(model, tmp_path, X.astype(np.float64))
    np.testing.assert_array_equal(labels, model.predict(X))
    np.testing.assert_allclose(scores, model.decision_function(X), atol=1e-6)


def test_several_numbers_of_a_network(tmp_path: Path) -> None:
    network = make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(4,), max_iter=30, random_state=0, tol=1e9)
    )
    rows = X.astype(np.float64)
    network.fit(rows, NUMBERS)
    (found,) = run_converted(network, tmp_path, rows)
    np.testing.assert_allclose(found, network.predict(rows), rtol=1e-9)

"""Every correction of skl2onnx is needed by the version that is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    StackingClassifier,
    VotingRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.feature_selection import RFE, SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import RegressorChain
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    OneHotEncoder,
    QuantileTransformer,
    SplineTransformer,
)
from sklearn.svm import SVC, SVR, LinearSVC

from onnxtool.conversion.patches import Patch
from onnxtool.conversion.sklearn.patches import (
    character_ngrams,
    chosen_columns,
    chosen_threshold,
    exact_columns,
    gradient_boosting,
    hashed_words,
    imputers,
    infrequent_categories,
    inner_estimators,
    isotonic,
    kernel_features,
    likelihoods,
    linear_classifiers,
    neighbours,
    networks,
    numpy_functions,
    one_against_rest,
    quantiles,
    several_targets,
    splines,
    stacking,
    support_vectors,
    transformed_target,
    votes,
    word_counts,
)
from tests.conversion.patched import hold_needed, patches_of
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((80, 3)).astype(np.float32)
Y = X[:, 0] + X[:, 1] ** 2
LABEL = (Y > 0.8).astype(int)
FAR = X + np.float32([0, 3000, 0])
HOLED = np.where(RANDOM.random(X.shape) < 0.3, np.nan, X).astype(np.float32)
TEXTS = np.array(["the cat  sat", "a dog ate a cat", "dog dog dog cat", "x y z"], object)
Case = Callable[[], tuple[Any, np.ndarray, Callable[[Any, np.ndarray], np.ndarray]]]


def predicted(model: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict(rows))


def likelihoods_of(model: Any, rows: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict_proba(rows))


def transformed(model: Any, rows: np.ndarray) -> np.ndarray:
    found = model.transform(rows)
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found)


CASES: dict[Patch[..., object], Case] = {
    votes.PATCH: lambda: (
        BaggingClassifier(LinearSVC(), 4, max_features=0.7, random_state=0).fit(X, 9 - 2 * X.argmax(1)),
        X, predicted,
    ),
    character_ngrams.PATCH: lambda: (
        CountVectorizer(analyzer="char", ngram_range=(1, 2)).fit(TEXTS), TEXTS, transformed,
    ),
    chosen_threshold.PATCH: lambda: (
        FixedThresholdClassifier(LogisticRegression(), threshold=0.05).fit(X, LABEL), X, predicted,
    ),
    gradient_boosting.PATCH: lambda: (
        HistGradientBoostingRegressor(loss="poisson", max_iter=3).fit(X, np.exp(X[:, 0])), X, predicted,
    ),
    exact_columns.IN_DOUBLES: lambda: (Binarizer(threshold=float(X[0, 0])).fit(X), X, transformed),
    chosen_columns.PATCH: lambda: (SelectKBest(k=1).fit(X, (X[:, 0] > 0)), X, transformed),
    hashed_words.PATCH: lambda: (HashingVectorizer(n_features=8), TEXTS, transformed),
    infrequent_categories.PATCH: lambda: (
        OneHotEncoder(min_frequency=3, handle_unknown="infrequent_if_exist").fit(np.array([[1]] * 5 + [[2], [3]])),
        np.array([[1], [2], [3]]), transformed,
    ),
    inner_estimators.PATCH: lambda: (
        make_pipeline(RFE(LinearSVC(random_state=0), n_features_to_select=2), SVC()).fit(X, LABEL), X,
        lambda model, rows: np.outer(model.decision_function(rows), [-1, 1]),
    ),
    isotonic.PATCH: lambda: (
        CalibratedClassifierCV(LogisticRegression(), method="isotonic", cv=2).fit(X, LABEL), X,
        lambda model, rows: model.predict_proba(rows),
    ),
    kernel_features.PATCH: lambda: (RBFSampler(n_components=4, random_state=0).fit(X), X, transformed),
    imputers.PATCH: lambda: (SimpleImputer(add_indicator=True).fit(HOLED), HOLED, transformed),
    linear_classifiers.PATCH: lambda: (
        SGDClassifier(loss="modified_huber", random_state=0).fit(100 * X, X.argmax(1)), 100 * X, predicted,
    ),
    chosen_columns.ORDER: lambda: (
        ColumnTransformer([("all", "passthrough", [2, 0, 1])]).fit(X), X, transformed,
    ),
    likelihoods.PATCH: lambda: (GaussianMixture(2, random_state=0).fit(FAR.astype(float)), FAR, likelihoods_of),
    support_vectors.PATCH: lambda: (SVR(kernel="linear", C=100).fit(FAR, Y), FAR, predicted),
    numpy_functions.PATCH: lambda: (FunctionTransformer(np.exp).fit(X), X, transformed),
    one_against_rest.PATCH: lambda: (OneVsRestClassifier(LinearSVC(random_state=0)).fit(X, LABEL), X, predicted),
    quantiles.PATCH: lambda: (
        QuantileTransformer(n_quantiles=20, output_distribution="normal").fit(X), X[1:-1], transformed,
    ),
    several_targets.PATCH: lambda: (RegressorChain(LinearRegression()).fit(X, np.stack([Y, Y**2], 1)), X, predicted),
    networks.PATCH: lambda: (
        MLPClassifier((4,), max_iter=300, random_state=0, tol=1.0).fit(X, np.stack([LABEL, 1 - LABEL], 1)), X,
        lambda model, rows: model.predict_proba(rows),
    ),
    splines.PATCH: lambda: (SplineTransformer().fit(X), X, transformed),
    stacking.PATCH: lambda: (
        StackingClassifier([("a", LinearSVC(random_state=0)), ("b", GaussianNB())], LogisticRegression(), cv=2)
        .fit(X, LABEL), X, lambda model, rows: model.predict_proba(rows),
    ),
    transformed_target.PATCH: lambda: (
        TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp, check_inverse=False)
        .fit(X, np.exp(Y)), X, predicted,
    ),
    neighbours.PATCH: lambda: (KNeighborsRegressor(weights="distance").fit(X, Y), X, predicted),
    word_counts.PATCH: lambda: (TfidfVectorizer(sublinear_tf=True).fit(TEXTS), TEXTS, transformed),
}  # fmt: skip


def test_every_correction_has_a_case() -> None:
    assert set(CASES) == set(patches_of("onnxtool.conversion.sklearn.patches"))


@pytest.mark.parametrize("patch", CASES, ids=lambda p: p.upstream)
def test_is_needed(patch: Patch[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows, compute = CASES[patch]()
    expected = compute(model, rows.astype(np.float64) if rows.dtype == np.float32 else rows)

    def is_right() -> bool:
        found = run_converted(model, tmp_path, rows)
        alike = [array for array in found if np.size(array) == np.size(expected)]
        return any(np.allclose(array.reshape(np.shape(expected)), expected, rtol=1e-4, atol=1e-5) for array in alike)

    hold_needed(patch, is_right, monkeypatch)


def test_missing_values_go_their_way_in_members(tmp_path: Path) -> None:
    target = np.where(np.isnan(HOLED[:, 0]), 3, np.nan_to_num(X[:, 1]))
    forests = [(name, RandomForestRegressor(count, random_state=0)) for name, count in (("few", 2), ("more", 3))]
    model = VotingRegressor(forests).fit(HOLED, target)
    (found,) = run_converted(model, tmp_path, HOLED)
    np.testing.assert_allclose(found[:, 0], model.predict(HOLED), rtol=1e-5)


def test_chances_of_one_class_against_the_rest_are_shares_far_from_all_classes(tmp_path: Path) -> None:
    axes = np.eye(3)
    model = OneVsRestClassifier(LogisticRegression(C=100)).fit(np.vstack([axes, 0 * axes]), [0, 1, 2, 3, 3, 3])
    rows = np.array([[-30, -31, -29], [-20, -20, 80]], float)
    del model.estimators_[3]
    model.classes_, model.label_binarizer_.classes_ = np.arange(3), np.arange(3)
    expected = model.predict_proba(rows)
    (_, found) = run_converted(model, tmp_path, rows)
    assert 0 < max(member.predict_proba(rows[:1])[0, 1] for member in model.estimators_) < 1e-46
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)

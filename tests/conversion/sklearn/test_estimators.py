"""Estimators that skl2onnx alone gets wrong or refuses: discriminants, selectors, searches, labels of odd shapes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.cluster import AffinityPropagation, Birch, KMeans, MeanShift
from sklearn.compose import ColumnTransformer
from sklearn.covariance import EllipticEnvelope
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    IsolationForest,
)
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_selection import RFE, SelectFwe, VarianceThreshold
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import RandomizedSearchCV
from sklearn.multiclass import OneVsOneClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler, TargetEncoder
from sklearn.semi_supervised import LabelPropagation, SelfTrainingClassifier
from sklearn.svm import LinearSVC

from onnxtool.conversion.convert import convert
from onnxtool.errors import UnsupportedError
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.sklearn.converted_model import run_converted

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
        GradientBoostingClassifier(n_estimators=4, init=LogisticRegression()),
        DummyClassifier(),
        DummyClassifier(strategy="most_frequent"),
        DummyClassifier(strategy="constant", constant=1),
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


def test_what_taught_itself_is_the_estimator_inside(tmp_path: Path) -> None:
    model = SelfTrainingClassifier(LogisticRegression()).fit(X, np.where(X[:, 1] > 0, THREE, -1))
    found = converted(model, tmp_path)
    assert found["label"].tolist() == model.predict(ROWS.astype(float)).tolist()
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(ROWS.astype(float)), atol=1e-6)


@pytest.mark.parametrize("model", [MeanShift(bandwidth=1.5), AffinityPropagation(random_state=0)], ids=str)
def test_clusters_are_those_of_the_nearest_centre(model: Any, tmp_path: Path) -> None:
    found = converted(model.fit(X), tmp_path)
    assert list(found) == ["label"]
    assert found["label"].tolist() == model.predict(ROWS.astype(float)).tolist()


def test_exponential_loss_halves_the_logarithm_of_the_odds_that_boosting_begins_with(tmp_path: Path) -> None:
    model = GradientBoostingClassifier(n_estimators=4, loss="exponential", init=LogisticRegression()).fit(X, TWO)
    found = converted(model, tmp_path)
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(ROWS.astype(float)), atol=1e-7)


def test_boosted_labels_may_be_booleans(tmp_path: Path) -> None:
    model = AdaBoostClassifier(n_estimators=3, random_state=0).fit(X, TWO.astype(bool))
    assert converted(model, tmp_path)["label"].tolist() == model.predict(ROWS.astype(float)).astype(int).tolist()


def test_boosting_begins_with_what_an_estimator_predicts_of_rows_in_float32(tmp_path: Path) -> None:
    first = GradientBoostingRegressor(n_estimators=2, init=LinearRegression()).fit(X, X[:, 0])
    first.init_.coef_, first.learning_rate = np.array([2.0**40, -(2.0**40), 0.0, 0.0]), 1e-9
    rows = np.repeat(X[:, :1], 4, axis=1) * [1, 1 + 1e-9, 1, 1]  # the same in float32, mostly
    (found,) = run_converted(first, tmp_path, rows)
    np.testing.assert_allclose(found[:, 0], first.predict(rows), atol=1e-3)


def test_a_dummy_that_draws_its_predictions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="predicts at random"):
        converted(DummyClassifier(strategy="stratified").fit(X, TWO), tmp_path)


def test_a_dummy_predicts_its_constants_of_missing_values_too(tmp_path: Path) -> None:
    model = DummyRegressor(strategy="median").fit(X, np.stack([TWO + 0.5, THREE], 1))
    (found,) = run_converted(model, tmp_path, np.full((3, 4), np.nan))
    assert found.tolist() == np.broadcast_to(model.constant_, (3, 2)).tolist()


@pytest.mark.parametrize(
    "model",
    [EllipticEnvelope(contamination=0.3, random_state=0), make_pipeline(StandardScaler(), Birch(n_clusters=3))],
    ids=["ellipse", "subclusters"],
)
def test_labels_and_scores_of_estimators_without_classes(model: Any, tmp_path: Path) -> None:
    rows = ROWS.astype(float)
    label, *found = run_converted(model.fit(X), tmp_path, rows)
    assert label.tolist() == model.predict(rows).tolist()
    assert len(set(label.tolist())) > 1
    scores = model.decision_function(rows)[:, None] if hasattr(model, "decision_function") else model.transform(rows)
    np.testing.assert_allclose(found[0], scores, rtol=1e-9)


@pytest.mark.parametrize("target", [X[:, 0], TWO, THREE], ids=["numbers", "two classes", "three classes"])
def test_means_of_the_target_stand_for_categories(target: np.ndarray, tmp_path: Path) -> None:
    rows = np.random.default_rng(4).choice(["a", "b", "", "d"], (90, 2)).astype(object)
    table = np.where(rows == "", np.nan, rows)
    encoder = TargetEncoder(random_state=0).fit(table, target)
    rows[0] = "unknown", "d"
    (found,) = run_converted(encoder, tmp_path, rows)
    np.testing.assert_allclose(found, encoder.transform(np.where(rows == "", np.nan, rows)), rtol=1e-7)


def test_a_lone_category_that_is_dropped_leaves_no_column(tmp_path: Path) -> None:
    rows = np.array([["x", "a"], ["x", "b"], ["x", "a"]], object)
    encoder = OneHotEncoder(drop="first").fit(rows)
    assert run_converted(encoder, tmp_path, rows)[0].tolist() == [[0], [1], [0]]


def test_dicts_are_refused_with_what_to_do(tmp_path: Path) -> None:
    model = make_pipeline(DictVectorizer(), LogisticRegression()).fit([{"a": 1.0}, {"a": 2.0, "b": 1.0}], [0, 1])
    with pytest.raises(UnsupportedError, match=r"takes dicts.*DataFrame"):
        convert(model, tmp_path / "out.onnx")


def test_a_clusterer_fitted_on_doubles_gives_labels_and_distances(tmp_path: Path) -> None:
    model = KMeans(3, n_init=1, random_state=0).fit(X)
    found = converted(model, tmp_path)
    assert found["label"].tolist() == model.predict(ROWS.astype(float)).tolist()
    np.testing.assert_allclose(found["scores"], model.transform(ROWS.astype(float)), rtol=1e-3, atol=1e-4)


def test_the_distance_from_a_centre_is_a_number(tmp_path: Path) -> None:
    """By the formula with squares, rounding leaves less than nothing there."""
    rows = np.random.default_rng(1).normal(size=(60, 4)) * [1e-2, 1.0, 30.0, 1e3]
    model = KMeans(8, n_init=1, random_state=0).fit(rows)
    assert convert(model, tmp_path / "out.onnx").ok
    centres = model.cluster_centers_
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": centres})
    assert found["label"].tolist() == list(range(8))
    assert np.isfinite(found["scores"]).all()
    np.testing.assert_allclose(found["scores"], model.transform(centres), atol=1e-4)


@pytest.mark.usefixtures("normal_effort")
def test_boosting_takes_the_second_of_two_classes_where_its_sum_is_zero(tmp_path: Path) -> None:
    rows, classes = np.array([[0.0], [1.0], [2.0], [3.0]] * 10), np.array([0, 1, 0, 1] * 10)
    model = GradientBoostingClassifier(n_estimators=1, max_depth=1, init="zero").fit(rows, classes)
    tree = model.estimators_[0, 0].tree_
    tree.value[:] = 0.5
    tree.value[tree.children_left[0]] = 0.0
    assert model.decision_function(rows).min() == 0
    assert convert(model, tmp_path / "out.onnx").ok
    assert OnnxRunner.open(tmp_path / "out.onnx").run({"X": rows})["label"].all()


def test_what_passes_beside_categories_stays_in_doubles(tmp_path: Path) -> None:
    """An imputer behind them was refused in doubles, so that all was rounded to float32."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"city": ["Oslo", "Rome"] * 20, "size": np.arange(40) + 2.0**25})
    parts = ColumnTransformer([("city", OneHotEncoder(drop="first"), ["city"])], remainder="passthrough")
    model = make_pipeline(parts, SimpleImputer(), StandardScaler()).fit(frame)
    assert convert(model, tmp_path / "out.onnx").ok
    given = {"city": frame.city.to_numpy(object).reshape(-1, 1), "size": frame[["size"]].to_numpy()}
    found = OnnxRunner.open(tmp_path / "out.onnx").run(given)["transformed"]
    np.testing.assert_allclose(found, model.transform(frame), rtol=1e-12)


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

"""Estimators around pipelines: calibrated, stacked, one for each pair of classes; columns go to members by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtool
from tests.conversion.sklearn.converted_model import run_converted

pytest.importorskip("skl2onnx")
pytest.importorskip("pandas")
import pandas
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

RANDOM = np.random.default_rng(0)
TABLE = pandas.DataFrame(
    {
        "kind": RANDOM.choice(["a", "b", "c"], 90),
        "size": RANDOM.normal(5, 2, 90),
        "count": RANDOM.integers(0, 6, 90),
        "spare": RANDOM.normal(size=90),
    }
)
NUMBERS = TABLE[["size", "count", "spare"]]
VALUE = (TABLE["size"] + TABLE["count"] + (TABLE["kind"] == "a")).to_numpy()
TWO = np.where(VALUE > 8, "much", "little")
THREE = np.array(["low", "middle", "high"])[np.digitize(VALUE, [6, 9])]


def columns(last: Any, *numbers: str) -> Pipeline:
    """A pipeline that takes columns by name: categories and some numbers."""
    head = make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), list(numbers)))
    return make_pipeline(head, last)


def hold_equal(model: Any, rows: Any, folder: Path) -> None:
    """The file gives what the estimator gives, on all rows."""
    assert onnxtool.convert(model, folder / "out.onnx", effort="quick").ok
    first, *more = onnxtool.run(folder / "out.onnx", data=rows).values.values()
    expected = model.predict(rows)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(first.ravel(), expected, rtol=1e-6)
        return
    assert first.tolist() == expected.tolist()
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(more[0], model.predict_proba(rows), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (CalibratedClassifierCV(columns(LogisticRegression(), "size"), cv=2), TWO),
        (
            VotingClassifier(
                [("a", columns(LogisticRegression(), "size")), ("b", columns(DecisionTreeClassifier(), "count"))],
                voting="soft",
            ),
            THREE,
        ),
        (
            StackingClassifier(
                [("a", columns(SVC(), "size", "count")), ("b", columns(DecisionTreeClassifier(), "spare"))],
                LogisticRegression(),
                cv=2,
            ),
            TWO,
        ),
        (
            StackingRegressor(
                [("a", columns(Ridge(), "size")), ("b", columns(DecisionTreeRegressor(), "count"))], cv=2
            ),
            VALUE,
        ),
        (TransformedTargetRegressor(columns(Ridge(), "size"), func=np.log1p, inverse_func=np.expm1), VALUE),
        (OneVsRestClassifier(columns(LogisticRegression(), "size")), THREE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_members_take_columns_by_name(model: Any, target: np.ndarray, tmp_path: Path) -> None:
    hold_equal(model.fit(TABLE, target), TABLE, tmp_path)


@pytest.mark.parametrize("member", [Ridge(), DecisionTreeRegressor(max_depth=3)], ids=lambda m: type(m).__name__)
def test_one_pipeline_for_each_target(member: Any, tmp_path: Path) -> None:
    targets = np.stack([VALUE, TABLE["count"] - VALUE], axis=1)
    model = MultiOutputRegressor(columns(member, "size", "count")).fit(TABLE, targets)
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    (found,) = onnxtool.run(tmp_path / "out.onnx", data=TABLE).values.values()
    np.testing.assert_allclose(found, model.predict(TABLE), rtol=1e-6)


def test_one_classifier_with_columns_by_name_for_each_target(tmp_path: Path) -> None:
    model = MultiOutputClassifier(columns(LogisticRegression(), "size")).fit(TABLE, np.stack([TWO, THREE], axis=1))
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    labels, *chances = onnxtool.run(tmp_path / "out.onnx", data=TABLE).values.values()
    assert labels.tolist() == model.predict(TABLE).tolist()
    for found, expected in zip(chances, model.predict_proba(TABLE), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_frozen_estimators_are_what_they_hold(tmp_path: Path) -> None:
    frozen = FrozenEstimator(StandardScaler().fit(NUMBERS))
    model = make_pipeline(frozen, DecisionTreeRegressor(max_depth=3)).fit(NUMBERS, VALUE)
    hold_equal(model, NUMBERS, tmp_path)


def test_boosters_in_a_stack_and_of_some_columns_each(tmp_path: Path) -> None:
    catboost, xgboost = pytest.importorskip("catboost"), pytest.importorskip("xgboost")
    cats = catboost.CatBoostRegressor(iterations=3, verbose=0, allow_writing_files=False)
    trees = xgboost.XGBRegressor(n_estimators=3, max_depth=2)
    rows = NUMBERS.to_numpy()
    hold_equal(StackingRegressor([("c", cats), ("r", Ridge())], Ridge(), cv=2).fit(NUMBERS, VALUE), NUMBERS, tmp_path)
    bag = BaggingRegressor(trees, 3, max_features=2, random_state=0).fit(rows, VALUE)
    np.testing.assert_allclose(run_converted(bag, tmp_path, rows)[0].ravel(), bag.predict(rows), rtol=1e-6)
    bag = BaggingRegressor(make_pipeline(StandardScaler(), Ridge()), 3, max_features=2, random_state=0).fit(rows, VALUE)
    np.testing.assert_allclose(run_converted(bag, tmp_path, rows)[0].ravel(), bag.predict(rows), rtol=1e-9)


def test_members_that_do_nothing_are_left_out(tmp_path: Path) -> None:
    idle = [("same", "passthrough"), ("nothing", None)]
    union = FeatureUnion([("all", "passthrough"), ("none", "drop"), ("scaled", StandardScaler())])
    inner = Pipeline([idle[0], ("wide", union), idle[1]])
    head = make_column_transformer((Pipeline(idle), ["size"]), (inner, ["count", "spare"]))
    model = Pipeline([*idle, ("head", head), ("model", DecisionTreeRegressor(max_depth=3))]).fit(NUMBERS, VALUE)
    hold_equal(model, NUMBERS, tmp_path)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("target", [TWO, THREE])
def test_a_pipeline_without_chances_is_calibrated(method: str, target: np.ndarray, tmp_path: Path) -> None:
    model = CalibratedClassifierCV(make_pipeline(StandardScaler(), LinearSVC(random_state=0)), method=method, cv=2)
    hold_equal(model.fit(NUMBERS, target), NUMBERS, tmp_path)


def test_chances_far_from_all_classes_are_shares_of_what_is_left(tmp_path: Path) -> None:
    """All sigmoids are tiny there; in float32 they are nothing."""
    model = CalibratedClassifierCV(LinearSVC(random_state=0), cv=2).fit(NUMBERS, THREE)
    hold_equal(model, NUMBERS * 100, tmp_path)


@pytest.mark.parametrize(
    "member",
    [
        BaggingClassifier(LogisticRegression(), 3, max_features=2, random_state=0),
        OneVsRestClassifier(LogisticRegression()),
        FixedThresholdClassifier(LogisticRegression(), threshold=0.4, response_method="predict_proba"),
        NearestCentroid(),
        QuadraticDiscriminantAnalysis(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_decision_functions_are_calibrated(member: Any, tmp_path: Path) -> None:
    """Of these skl2onnx has chances alone; far from all classes some of their sigmoids are exactly nothing."""
    for target in (TWO, THREE):
        if target is TWO or not isinstance(member, FixedThresholdClassifier):
            model = CalibratedClassifierCV(member, cv=2).fit(NUMBERS, target)
            hold_equal(model, pandas.concat([NUMBERS, NUMBERS * 10, NUMBERS * 1000]), tmp_path)


@pytest.mark.parametrize("member", [SVC(), LinearSVC(random_state=0), LogisticRegression()])
def test_pairs_and_rest_with_texts(member: Any, tmp_path: Path) -> None:
    for around in (OneVsOneClassifier, OneVsRestClassifier):
        hold_equal(around(member).fit(NUMBERS, THREE), NUMBERS, tmp_path)


def test_rows_whose_imputed_neighbours_tie_are_said(tmp_path: Path) -> None:
    table = pandas.DataFrame({"a": RANDOM.integers(0, 3, 90) * 1.0, "b": RANDOM.normal(size=90)})
    table.loc[::4, "b"] = np.nan  # all that is left of these rows is one of three numbers
    model = make_pipeline(KNNImputer(n_neighbors=2), RandomForestRegressor(5, random_state=0)).fit(table, VALUE)
    report = onnxtool.convert(model, tmp_path / "out.onnx", effort="quick", sample=table)
    assert report.ok
    assert any("tie" in note for note in report.notes)
    (count,) = re.findall(r"not compared where classes or neighbours tie \((\d+) of 90 rows\)", report.untested)
    assert 0 < int(count) <= 23
    rare = table.assign(b=np.where(np.arange(90) > 0, RANDOM.normal(size=90), table["b"]))  # one of the rows at most
    model.fit(rare, VALUE)
    assert "of 90 rows" not in onnxtool.convert(model, tmp_path / "b.onnx", effort="quick", sample=rare[1:]).untested


def test_even_votes_of_bagged_trees_are_decided_by_the_last_digit_of_doubles(tmp_path: Path) -> None:
    rows, labels = np.arange(14.0).reshape(-1, 1), np.arange(14) % 7
    model = BaggingClassifier(DecisionTreeClassifier(max_depth=1), 3, bootstrap=False, random_state=0).fit(rows, labels)
    for member, (first, second) in zip(model.estimators_, [(0.3, 0.1), (0.2, 0.2), (0.1, 0.3)], strict=True):
        member.tree_.value[:] = [first, second, *[0.12] * 5]
    assert 0.3 + 0.2 + 0.1 < 0.1 + 0.2 + 0.3 and set(model.predict(rows)) == {1}
    (found, _) = run_converted(model, tmp_path, rows)
    assert set(found.tolist()) == {1}


@pytest.mark.parametrize("forest", [{}, {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}])
@pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])
def test_lightgbms_own_scores_are_calibrated(target: np.ndarray, forest: dict[str, Any], tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    member = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1, min_child_samples=3, sigmoid=2.0, **forest)
    model = CalibratedClassifierCV(member, cv=2).fit(NUMBERS.to_numpy(), target)
    (_, found) = run_converted(model, tmp_path, NUMBERS.to_numpy())
    np.testing.assert_allclose(found, model.predict_proba(NUMBERS.to_numpy()), atol=1e-6)


def test_links_of_boosters_inside_another(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    members = [
        ("a", HistGradientBoostingRegressor(max_iter=3, loss="poisson")),
        ("b", lightgbm.LGBMRegressor(n_estimators=3, verbose=-1, objective="cross_entropy")),
    ]
    rows = NUMBERS.to_numpy()
    model = VotingRegressor(members).fit(rows, (VALUE - VALUE.min()) / np.ptp(VALUE))
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(found[:, 0], model.predict(rows), atol=1e-6)


def test_codes_of_classes(tmp_path: Path) -> None:
    rows = NUMBERS.to_numpy()
    model = OutputCodeClassifier(LogisticRegression(), random_state=0).fit(rows, THREE)
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_array_equal(found, model.predict(rows))

"""Boosters on frames with columns of categories: the ONNX file takes the categories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, StackingClassifier, VotingClassifier
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import onnxtool
from onnxtool.conversion.boosting.category_columns import category_columns, category_notes, numbered_categories
from onnxtool.errors import InputError, UnsupportedError
from onnxtool.runtime.data.frames import as_table
from tests.conversion.sklearn.converted_model import run_converted

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
RANDOM = np.random.default_rng(0)
TOWNS = RANDOM.choice(["Rome", "Oslo", "Bern"], 300)
ZONES = RANDOM.choice([7, 3, 20], 300)
FRAME = pandas.DataFrame({"size": RANDOM.normal(size=300), "town": pandas.Categorical(TOWNS), "far": TOWNS == "Oslo"})
FRAME["zone"] = pandas.Categorical(ZONES)
TARGET = (FRAME["size"] + 2.0 * (TOWNS == "Bern") - (ZONES == 3) > 0.5).to_numpy().astype(int)


@pytest.mark.parametrize("searched", [False, True])
def test_categories_are_looked_up_and_new_or_missing_ones_are_missing_values(searched: bool, tmp_path: Path) -> None:
    model: Any = lightgbm.LGBMClassifier(n_estimators=15, verbose=-1)
    model = GridSearchCV(model, {"num_leaves": [7]}, cv=2) if searched else model
    frame = FRAME.copy()
    frame.loc[:40, "town"] = np.nan
    model.fit(frame, TARGET)
    frame["town"] = frame["town"].cat.add_categories("Lima")
    frame.loc[30:60, "town"] = "Lima"
    texts = frame["town"].astype(object).fillna("").to_numpy()
    columns = (frame["size"].to_numpy(), texts, frame["far"].to_numpy(float), ZONES)
    label, chances = run_converted(model, tmp_path, *(c.reshape(-1, 1) for c in columns), prove=True)
    np.testing.assert_allclose(chances, model.predict_proba(frame), atol=1e-6)
    assert label.tolist() == model.predict(frame).tolist()


@pytest.mark.parametrize(
    "towns",
    [
        pandas.Categorical(TOWNS == "Rome"),
    ],
    ids=["truth values"],
)
def test_other_categories_stay_numbers(towns: Any) -> None:
    frame = FRAME[["size"]].assign(town=towns)
    assert category_columns(lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(frame, TARGET)) == {}
    assert category_columns(lightgbm.LGBMClassifier(n_estimators=2, verbose=-1).fit(FRAME, TARGET)) == {
        "town": ["Bern", "Oslo", "Rome"],
        "zone": [3, 7, 20],
    }


@pytest.mark.parametrize(
    ("library", "order"),
    [
        ("lightgbm", [20, 3, 7]),
        ("xgboost", [20, 3, 7]),
        ("lightgbm", ["b", "c", "a"]),
        ("xgboost", ["b", "c", "a"]),
        ("lightgbm", [2.5, 0.1, 7.0]),
        ("xgboost", np.array([-3, 7, 20], np.int8)),
        ("xgboost", np.array([20, -3, 7], np.int32)),
    ],
)
def test_categories_in_an_order_of_their_own_are_looked_up(library: str, order: Any, tmp_path: Path) -> None:
    kinds = pandas.Categorical.from_codes(RANDOM.integers(0, 3, 300), order)
    frame = FRAME[["size"]].assign(kind=kinds)
    target = frame["size"] + 3.0 * (kinds == order[0]) - (kinds == order[1])
    boosted = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1)
    model = xgboost.XGBRegressor(n_estimators=5, enable_categorical=True) if library == "xgboost" else boosted
    model.fit(frame, target)
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    (found,) = onnxtool.run(tmp_path / "out.onnx", data=frame).values.values()
    np.testing.assert_allclose(found.ravel(), model.predict(frame), rtol=1e-5)


def test_ordered_categories_of_lightgbm_are_looked_up_where_their_column_is_known(tmp_path: Path) -> None:
    frame = FRAME[["size", "town"]].assign(zone=pandas.Categorical(ZONES, [20, 3, 7], ordered=True))
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(frame, TARGET + frame.zone.cat.codes)
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    (found,) = onnxtool.run(tmp_path / "out.onnx", data=frame).values.values()
    np.testing.assert_allclose(found.ravel(), model.predict(frame), rtol=1e-5)
    frame["rooms"] = RANDOM.integers(0, 3, 300)  # which may as well be the numbers of three categories
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(frame, TARGET + frame.zone.cat.codes)
    assert category_columns(model) == {}
    assert category_columns(model, as_table(frame.assign(rooms=frame.zone))) == {}  # nor does such a table tell
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick", sample=frame).ok
    (found,) = onnxtool.run(tmp_path / "out.onnx", data=frame).values.values()
    np.testing.assert_allclose(found.ravel(), model.predict(frame), rtol=1e-5)


XGBOOST = [{}, {"max_cat_to_onehot": 50}, {"booster": "dart", "rate_drop": 0.5}]


@pytest.mark.parametrize("options", XGBOOST, ids=["sets", "one-hot", "dropout"])
def test_xgboost_looks_categories_up(options: dict[str, Any], tmp_path: Path) -> None:
    frame = FRAME.copy()
    frame.loc[:40, "town"] = frame.loc[30:60, "size"] = np.nan
    model = xgboost.XGBClassifier(n_estimators=15, max_depth=4, enable_categorical=True, **options).fit(frame, TARGET)
    assert category_columns(model) == {"town": ["Bern", "Oslo", "Rome"], "zone": [3, 7, 20]}
    texts = frame["town"].astype(object).fillna("").to_numpy()
    columns = (frame["size"].to_numpy(), texts, frame["far"].to_numpy(float), ZONES)
    _, chances = run_converted(model, tmp_path, *(c.reshape(-1, 1) for c in columns), prove=True)
    np.testing.assert_allclose(chances, model.predict_proba(frame), atol=1e-6)
    assert np.ptp(chances) > 0.5


def test_numbers_of_categories_are_decided_as_xgboost_decides_them(tmp_path: Path) -> None:
    """Fractions are dropped, what is below zero or too large is in no set, and missing ones have a way of their own."""
    rows = np.column_stack([RANDOM.integers(0, 40, 600), RANDOM.normal(size=600)]).astype(np.float32)
    rows[:60, 0] = np.nan
    target = np.isin(rows[:, 0], [0, 3, 7, 31, 32, 39]) * 3 + np.isnan(rows[:, 0]) + rows[:, 1]
    model = xgboost.XGBRegressor(n_estimators=10, enable_categorical=True, feature_types=["c", "q"]).fit(rows, target)
    odd = [-1, -0.5, -0.0, 0.5, 3.999, 7.5, 31.5, 39.9, 40, 64, 5e6, 1e9, np.inf, -np.inf, np.nan]
    tried = np.array([[a, b] for a in odd for b in (-1.0, 0.0, 1.0)], np.float32)
    for inputs in (rows, tried):
        (found,) = run_converted(model, tmp_path, inputs)
        np.testing.assert_allclose(found.reshape(-1), model.predict(inputs), atol=1e-5)


def test_leaves_of_several_numbers(tmp_path: Path) -> None:
    rows = RANDOM.normal(size=(300, 4)).astype(np.float32)
    targets = np.column_stack([rows[:, 0] > 0, 5 + 3 * rows[:, 1], -rows[:, 2]])
    model = xgboost.XGBRegressor(n_estimators=8, max_depth=3, multi_strategy="multi_output_tree").fit(rows, targets)
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(found, model.predict(rows), atol=1e-5)


def test_texts_that_xgboost_cuts_short_are_taken_from_a_sample(tmp_path: Path) -> None:
    towns = np.array(["Åre", "Rome", "Zürich", "北京", "", None], object)[RANDOM.integers(0, 6, 300)]
    town = pandas.Categorical(np.where(towns == "", None, towns), ["北京", "Rome", "Åre", "Zürich"])
    frame = pandas.DataFrame({"town": town, "size": FRAME["size"]})
    model = xgboost.XGBRegressor(n_estimators=5, enable_categorical=True).fit(frame, (towns == "Åre") + frame["size"])
    assert numbered_categories(model) == [[None]] and category_columns(model) == {}
    assert "beyond ASCII" in category_notes(model)[0]
    report = onnxtool.convert(model, tmp_path / "out.onnx", effort="quick", sample=frame)
    assert report.ok and any("cut short are those of the sample" in note for note in report.notes)
    (found,) = onnxtool.run(tmp_path / "out.onnx", data=frame).values.values()
    np.testing.assert_allclose(found.ravel(), model.predict(frame), rtol=1e-5)


@pytest.mark.parametrize(
    ("fitted", "cells", "known"),
    [
        (["ab", "é", "à"], ["à", "ab"], True),
        (["ab", "é", "à"], ["ab", "é"], False),
        (["ab", "é", "à"], ["ab", "é", "à", "café"], False),
        (["ab", "北京", "上海"], ["ab", "北京", "上海"], False),
        (["ab", "北京", "上海"], ["北京"], False),
    ],
    ids=["one fits", "none fits", "another", "two fit", "one fits twice"],
)
def test_texts_that_are_cut_short_are_known_where_one_cell_fits(
    fitted: list[str], cells: list[str], known: bool
) -> None:
    frame = pandas.DataFrame({"town": pandas.Categorical(fitted * 20, fitted)})
    model = xgboost.XGBRegressor(n_estimators=2, enable_categorical=True).fit(frame, np.arange(len(frame)))
    found = category_columns(model, as_table(pandas.DataFrame({"town": cells})))
    assert found == ({"town": fitted} if known else {})


def few(seed: int = 0) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=4, verbose=-1, random_state=seed, subsample=0.5, subsample_freq=1)


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(few()),
        CalibratedClassifierCV(few(), cv=2),
        VotingClassifier(
            [("a", few()), ("b", xgboost.XGBClassifier(n_estimators=3, enable_categorical=True))], voting="soft"
        ),
        StackingClassifier([("a", few()), ("b", few(1))], cv=2),
        OneVsRestClassifier(few()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_estimators_that_give_their_rows_to_boosters_alone_look_categories_up(model: Any, tmp_path: Path) -> None:
    model.fit(FRAME, TARGET)
    columns = (FRAME["size"].to_numpy(), TOWNS.astype(object), FRAME["far"].to_numpy(float), ZONES)
    label, chances = run_converted(model, tmp_path, *(c.reshape(-1, 1) for c in columns), prove=True)
    np.testing.assert_allclose(chances, model.predict_proba(FRAME), atol=1e-6)
    assert label.tolist() == model.predict(FRAME).tolist()


def test_a_note_tells_what_new_categories_become_where_xgboost_refuses_them(tmp_path: Path) -> None:
    votes = VotingClassifier([("a", xgboost.XGBClassifier(n_estimators=2, enable_categorical=True))], voting="soft")
    report = onnxtool.convert(votes.fit(FRAME, TARGET), tmp_path / "out.onnx", effort="quick")
    assert any("XGBoost raises an error" in note for note in report.notes)


def xgboosted() -> Any:
    return xgboost.XGBClassifier(n_estimators=3, enable_categorical=True)


@pytest.mark.parametrize(
    "model",
    [
        StackingClassifier([("a", few())], lightgbm.LGBMClassifier(n_estimators=2, verbose=-1), cv=2, passthrough=True),
        VotingClassifier([("a", few()), ("b", DecisionTreeClassifier(max_depth=2))], voting="soft"),
        VotingClassifier(
            [("a", few()), ("b", xgboosted()), ("c", HistGradientBoostingClassifier(max_iter=2))], voting="soft"
        ),
        TunedThresholdClassifierCV(xgboosted(), cv=2),
    ],
    ids=["rows for the last", "not boosters alone", "three libraries", "a threshold"],
)
def test_each_booster_among_others_has_a_step_of_its_own(model: Any, tmp_path: Path) -> None:
    frame = FRAME[["size", "zone"]]
    model.fit(frame, TARGET)
    label, chances = run_converted(model, tmp_path, frame[["size"]].to_numpy(), ZONES.reshape(-1, 1), prove=True)
    np.testing.assert_allclose(chances, model.predict_proba(frame), atol=1e-6)
    assert label.tolist() == model.predict(frame).tolist()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_categories_behind_another_step_are_refused(library: str, tmp_path: Path) -> None:
    """The file would take the categories for their numbers."""
    options: dict[str, Any] = {"xgboost": {"enable_categorical": True}, "lightgbm": {"verbose": -1}}[library]
    kind = xgboost.XGBClassifier if library == "xgboost" else lightgbm.LGBMClassifier
    scaled = ColumnTransformer([("size", StandardScaler(), ["size"])], remainder="passthrough")
    scaled.set_output(transform="pandas")
    model = make_pipeline(scaled, kind(n_estimators=3, **options)).fit(FRAME[["size", "zone"]], TARGET)
    with pytest.raises(UnsupportedError, match="behind or inside other steps"):
        run_converted(model, tmp_path)


def test_categories_that_are_looked_up_are_not_asked_for_as_numbers(tmp_path: Path) -> None:
    model = xgboost.XGBClassifier(n_estimators=2, enable_categorical=True).fit(FRAME, TARGET)
    with pytest.raises(InputError) as caught:
        run_converted(model, tmp_path, sample=FRAME.assign(size="big"))
    assert str(caught.value).endswith("float64.")

"""Trees decide in ONNX as in their source, on the thresholds and for missing values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxtool
from onnxtool.conversion.sklearn.prepare import category_advice
from onnxtool.conversion.sklearn.raw_thresholds import rounded_down
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.answers import outputs

ensemble = pytest.importorskip("sklearn.ensemble")
tree = pytest.importorskip("sklearn.tree")
calibration, compose = pytest.importorskip("sklearn.calibration"), pytest.importorskip("sklearn.compose")
model_selection, pipeline = pytest.importorskip("sklearn.model_selection"), pytest.importorskip("sklearn.pipeline")
preprocessing = pytest.importorskip("sklearn.preprocessing")
FrozenEstimator = pytest.importorskip("sklearn.frozen").FrozenEstimator
pytest.importorskip("skl2onnx")
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("threshold", [0.1, -0.1, 0.30000001192092896, 1e-50, -1e-50, 1e300, 20001.025, 0.0])
def test_every_float32_decides_as_against_the_double(threshold: float) -> None:
    low = np.float32(rounded_down(threshold))
    assert float(low) <= threshold
    with np.errstate(over="ignore"):
        assert float(np.nextafter(low, np.float32(np.inf))) > threshold


def test_infinity_stays() -> None:
    assert rounded_down(np.inf) == np.inf


def converted(estimator: object, folder: Path) -> Path:
    report = onnxtool.convert(estimator, folder / "out.onnx")
    assert report.ok
    assert not [n for n in report.notes if "differ" in n]
    return folder / "out.onnx"


def test_missing_values_go_the_way_that_was_learned(tmp_path: Path) -> None:
    rows = RANDOM.standard_normal((200, 3)).astype(np.float32)
    rows[RANDOM.random(rows.shape) < 0.2] = np.nan
    target = np.where(np.isnan(rows[:, 0]), 3.0, np.nan_to_num(rows[:, 1]))
    forest = ensemble.RandomForestRegressor(3, random_state=0).fit(rows, target)
    found = outputs(converted(forest, tmp_path), rows)[0].reshape(-1)
    np.testing.assert_allclose(found, forest.predict(rows), rtol=1e-5, atol=1e-6)


def test_histogram_boosting_decides_exactly_on_its_thresholds(tmp_path: Path) -> None:
    rows = RANDOM.standard_normal((300, 2))
    booster = ensemble.HistGradientBoostingRegressor(max_iter=3).fit(rows, rows[:, 0] ** 2)
    nodes = booster._predictors[0][0].nodes
    splits = nodes[nodes["is_leaf"] == 0]
    near = np.zeros((len(splits), 2), np.float32)
    near[np.arange(len(splits)), splits["feature_idx"]] = splits["num_threshold"].astype(np.float32)
    found = outputs(converted(booster, tmp_path), near)[0].reshape(-1)
    np.testing.assert_allclose(found, booster.predict(near.astype(np.float64)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_logarithmic_links_are_undone(loss: str, tmp_path: Path) -> None:
    rows = RANDOM.standard_normal((100, 2)).astype(np.float32)
    booster = ensemble.HistGradientBoostingRegressor(loss=loss, max_iter=3).fit(rows, np.exp(rows[:, 0]))
    found = outputs(converted(booster, tmp_path), rows)[0].reshape(-1)
    np.testing.assert_allclose(found, booster.predict(rows), rtol=1e-4)


def test_gradient_boosting_that_begins_at_zero(tmp_path: Path) -> None:
    rows = RANDOM.standard_normal((200, 3)).astype(np.float32)
    model = ensemble.GradientBoostingClassifier(n_estimators=3, init="zero")
    model.fit(rows, np.digitize(rows[:, 0], [-0.5, 0.5]))
    found = outputs(converted(model, tmp_path), rows)[-1]
    np.testing.assert_allclose(found, model.predict_proba(rows), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("behind_a_scaler", [False, True])
def test_splits_on_categories_of_a_matrix(behind_a_scaler: bool, tmp_path: Path) -> None:
    kinds = RANDOM.integers(0, 40, 900) * 1.5
    rows = np.column_stack([RANDOM.standard_normal(900), kinds])
    rows[:50, 1] = np.nan
    target = np.isin(kinds, [1.5, 6, 48]) * 3.0 + np.isnan(rows[:, 1]) + rows[:, 0]
    booster = ensemble.HistGradientBoostingRegressor(max_iter=20, categorical_features=[1])
    scaler = [preprocessing.StandardScaler()] * behind_a_scaler
    model = pipeline.make_pipeline(*scaler, booster).fit(rows, target)
    unseen = np.array([[0.0, v] for v in (-1.5, 0.75, 60.0, 59.9999, 1e9, np.nan, 48.0)])
    tried = np.concatenate([rows, unseen])
    report = onnxtool.convert(model, tmp_path / "out.onnx", effort="quick", input_dtypes={"X": "float64"})
    assert report.ok
    (found,) = OnnxRunner.open(tmp_path / "out.onnx").run({"X": tried}).values()
    np.testing.assert_allclose(found.reshape(-1), model.predict(tried), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_a_frame_of_categories_that_histograms_split(classes: int, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    cities, zones = RANDOM.choice(["Zürich", "Paris", "Rome"], 400), RANDOM.integers(3, 9, 400)
    frame = pandas.DataFrame({"age": RANDOM.standard_normal(400), "city": pandas.Categorical(cities)})
    frame["zone"] = pandas.Categorical(zones)
    frame.loc[:60, "city"] = np.nan
    score = frame["age"] + 2 * (cities == "Rome") + 3 * np.isin(zones, [3, 7])
    target = np.digitize(score, np.linspace(1, 4, classes)[1:]) if classes else score
    kind = ensemble.HistGradientBoostingClassifier if classes else ensemble.HistGradientBoostingRegressor
    model = kind(max_iter=15).fit(frame, target)
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    texts = np.where(frame["city"].isna(), "", cities)
    texts[70:80] = "Lima"
    frame["city"] = pandas.Categorical(np.where(texts == "", np.nan, texts.astype(object)))
    feeds = {"age": frame["age"].to_numpy(), "city": texts.astype(object), "zone": zones}
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    found = list(runner.run({name: values.reshape(-1, 1) for name, values in feeds.items()}).values())
    expected = model.predict_proba(frame) if classes else model.predict(frame).reshape(-1, 1)
    np.testing.assert_allclose(found[-1], expected, rtol=1e-5, atol=1e-6)
    if classes:
        assert found[0].tolist() == model.predict(frame).tolist()


def test_dates_as_categories_are_refused(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    days = pandas.Timestamp("2026-01-01") + pandas.to_timedelta(np.arange(60) % 5, "D")
    frame = pandas.DataFrame({"day": pandas.Categorical(days), "age": RANDOM.standard_normal(60)})
    booster = ensemble.HistGradientBoostingRegressor(max_iter=2).fit(frame, frame["age"])
    with pytest.raises(onnxtool.errors.UnsupportedError, match="splits on categories"):
        onnxtool.convert(booster, tmp_path / "out.onnx")


@pytest.mark.parametrize(
    "kind", ["votes of rows", "votes", "calibration", "frozen", "a threshold", "a target", "names"]
)
def test_categories_inside_another_estimator(kind: str, tmp_path: Path) -> None:
    pandas, rows = pytest.importorskip("pandas"), RANDOM.standard_normal(200)
    classes = kind in ("calibration", "frozen", "a threshold")
    histograms = ensemble.HistGradientBoostingClassifier if classes else ensemble.HistGradientBoostingRegressor
    booster = histograms(max_iter=4, categorical_features="from_dtype")
    numbers = RANDOM.integers(0, 6, 200)
    frame = pandas.DataFrame({"size": rows, "town": pandas.Categorical(np.array(list("bdface"))[numbers])})
    data, target = frame, rows + 3.0 * np.isin(numbers, [1, 4])
    model: Any = ensemble.VotingRegressor([("one", booster), ("two", histograms(max_iter=2))])
    if kind == "votes of rows":
        data = np.column_stack([numbers, rows])
        model = ensemble.VotingRegressor([("one", booster.set_params(categorical_features=[0]))])
    elif kind == "calibration":
        model = calibration.CalibratedClassifierCV(booster, cv=2)
    elif kind == "frozen":
        model = calibration.CalibratedClassifierCV(FrozenEstimator(booster.fit(data, target > 1)))
    elif kind == "a threshold":
        model = model_selection.FixedThresholdClassifier(booster, threshold=0.3)
    elif kind == "a target":
        model = compose.TransformedTargetRegressor(booster, func=np.exp, inverse_func=np.log)
    elif kind == "names":  # of what an encoder gives
        encoder = compose.make_column_transformer(
            (preprocessing.OrdinalEncoder(), ["town"]), remainder="passthrough", verbose_feature_names_out=False
        )
        booster.set_params(categorical_features=["town"])
        model = pipeline.make_pipeline(encoder.set_output(transform="pandas"), booster)
    model.fit(data, target > 1 if classes else target)
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    found = list(onnxtool.run(tmp_path / "out.onnx", data=data).values.values())[-1]
    expected = model.predict_proba(data) if classes else model.predict(data).reshape(-1, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_histograms_that_were_fitted_before_decide_in_doubles(tmp_path: Path) -> None:
    rows = RANDOM.standard_normal((300, 3))
    booster = ensemble.HistGradientBoostingClassifier(max_iter=5).fit(rows, rows[:, 0] > 0)
    model = calibration.CalibratedClassifierCV(FrozenEstimator(booster)).fit(rows, rows[:, 0] > 0)
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    found = list(onnxtool.run(tmp_path / "out.onnx", data={"X": rows}).values.values())[-1]
    np.testing.assert_allclose(found, model.predict_proba(rows), atol=1e-6)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_frame_of_categories_is_refused_with_what_to_do(library: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    package = pytest.importorskip(library)
    cities = RANDOM.choice(["Zürich", "Paris", "Rome"], 200)  # XGBoost 3.2 cuts letters beyond ASCII
    known = pandas.Categorical(cities, ordered=library == "lightgbm")  # of which others are taken as they are
    rooms = RANDOM.integers(0, 3, 200)  # which might be the numbers of three ordered categories
    frame = pandas.DataFrame({"city": known, "age": RANDOM.standard_normal(200), "rooms": rooms})
    make = {
        "xgboost": lambda: package.XGBClassifier(n_estimators=3, enable_categorical=True),
        "lightgbm": lambda: package.LGBMClassifier(n_estimators=3, verbose=-1),
    }
    booster = make[library]().fit(frame, (cities == "Paris") ^ (frame["age"] > 0))
    with pytest.raises(onnxtool.errors.InputError, match=r"'city': .* is not a number.*numbers the categories"):
        onnxtool.convert(booster, tmp_path / "out.onnx", sample=frame.assign(city="Lima"))
    plain = make[library]().fit(frame[["age"]], frame["age"] > 0)
    with pytest.raises(onnxtool.errors.InputError) as caught:
        onnxtool.convert(plain, tmp_path / "out.onnx", sample=pandas.DataFrame({"age": ["old"] * 3}))
    assert str(caught.value).endswith("float64.")


def test_a_booster_that_others_were_copied_from_has_no_categories() -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = RANDOM.standard_normal((40, 2))
    bag = ensemble.BaggingRegressor(xgboost.XGBRegressor(n_estimators=2), 2).fit(rows, rows[:, 0])
    assert category_advice(bag) == ""


def test_what_the_exporter_may_leave_out_is_named(tmp_path: Path) -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    rows = RANDOM.standard_normal((50, 3))
    report = onnxtool.convert(preprocessing.Normalizer("max").fit(rows), tmp_path / "out.onnx")
    if not report.ok:
        assert any("norm='max'" in note for note in report.notes)


def test_how_texts_are_cut_is_named() -> None:
    from onnxtool.conversion.sklearn.prepare import chosen_options

    text = pytest.importorskip("sklearn.feature_extraction.text")
    (found,) = chosen_options(text.CountVectorizer().fit(["a cat"]))
    assert "token_pattern" in found
    assert chosen_options(text.CountVectorizer(analyzer="char").fit(["a"])) == ["CountVectorizer(analyzer='char')"]


def test_a_booster_that_cannot_be_converted_is_named_with_its_kind(tmp_path: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    rows = RANDOM.standard_normal((50, 2))
    booster = xgboost.XGBRegressor(n_estimators=2, booster="gblinear", objective="survival:cox")
    booster.fit(rows, np.abs(rows[:, 0]))
    with pytest.raises(onnxtool.errors.UnsupportedError, match="booster=gblinear"):
        onnxtool.convert(booster, tmp_path / "out.onnx")


def test_lightgbm_takes_what_is_next_to_zero_for_zero(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rows = np.where(RANDOM.random((300, 2)) < 0.4, 0.0, RANDOM.standard_normal((300, 2)))
    booster = lightgbm.LGBMRegressor(n_estimators=3, verbose=-1, min_child_samples=5).fit(rows, np.sign(rows[:, 0]))
    near = np.array([[s * 1e-35, 0.0] for s in (-1, 1)] + [[s * 2e-35, 0.0] for s in (-1, 1)], np.float32)
    assert "-1.0000000180025095e-35" in booster.booster_.model_to_string()
    found = outputs(converted(booster, tmp_path), near)[0].reshape(-1)
    np.testing.assert_allclose(found, booster.predict(near.astype(np.float64)), rtol=1e-5, atol=1e-6)

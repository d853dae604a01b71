"""Trees behind steps that change each column by itself: they compare the inputs, and decide as their source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

from onnxtool.conversion.convert import convert
from onnxtool.conversion.sklearn.raw_thresholds import compared_in_float32
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((120, 3)).round(2) * [1.0, 0.01, 1000.0]
Y = X[:, 0] + np.sin(300 * X[:, 1]) + (X[:, 2] > 0)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def answers(model: Any, folder: Path, rows: np.ndarray, **options: Any) -> list[np.ndarray]:
    convert(model, folder / "out.onnx", verify_result=False, **options)
    return list(OnnxRunner.open(folder / "out.onnx").run({"X": rows}).values())


def beside(model: Any, path: Path) -> np.ndarray:
    """Rows with each threshold of a file, its neighbours, and a missing value."""
    (trees,) = [n for n in onnx.load(path).graph.node if n.op_type.startswith("TreeEnsemble")]
    given = {a.name: onnx.helper.get_attribute_value(a) for a in trees.attribute}
    numbers = onnx.numpy_helper.to_array(given["nodes_values_as_tensor"])
    inner = [i for i, mode in enumerate(given["nodes_modes"]) if mode != b"LEAF"]
    rows = np.repeat(X[:1], 4 * len(inner), axis=0)
    for place, node in enumerate(inner):
        number = numbers[node]
        values = (number, np.nextafter(number, np.inf), np.nextafter(number, -np.inf), np.nan)
        rows[4 * place : 4 * place + 4, given["nodes_featureids"][node]] = values
    return rows if isinstance(model[0], SimpleImputer) else rows[np.isfinite(rows).all(axis=1)]


@pytest.mark.parametrize("trees", [DecisionTreeRegressor(max_depth=6), HistGradientBoostingRegressor(max_iter=4)])
@pytest.mark.parametrize(
    "steps",
    [
        (StandardScaler(),),
        (SimpleImputer(strategy="median"), RobustScaler(), MinMaxScaler((-3, 0.1))),
        (QuantileTransformer(n_quantiles=33),),
    ],
)
def test_both_neighbours_of_every_threshold_are_decided_as_in_the_source(
    steps: tuple[Any, ...], trees: Any, tmp_path: Path
) -> None:
    model = make_pipeline(*steps, trees).fit(X, Y)
    convert(model, tmp_path / "out.onnx", verify_result=False)
    rows = beside(model, tmp_path / "out.onnx")
    found = OnnxRunner.open(tmp_path / "out.onnx").run({"X": rows})["prediction"]
    np.testing.assert_allclose(np.asarray(found)[:, 0], model.predict(rows), rtol=1e-6)


@pytest.mark.parametrize(
    "steps",
    [
        (PowerTransformer(),),
        (QuantileTransformer(n_quantiles=40, output_distribution="normal"), RobustScaler()),
        (Normalizer(),),
        (PCA(2),),
    ],
    ids=["power", "normal quantiles", "rows", "axes"],
)
def test_rows_that_are_thresholds_themselves_fall_as_in_the_source(steps: tuple[Any, ...], tmp_path: Path) -> None:
    rows = np.repeat(X, 5, axis=0) + np.arange(5 * len(X))[:, None] * [1e-4, 1e-6, 1e-1]  # more rows than bins
    model = make_pipeline(*steps, HistGradientBoostingRegressor(max_iter=10)).fit(rows, np.resize(Y, len(rows)))
    (found,) = answers(model, tmp_path, rows)
    np.testing.assert_allclose(found[:, 0], model.predict(rows), rtol=1e-6, atol=1e-7)


def test_float32_inputs_are_decided_as_the_source_decides_them(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), HistGradientBoostingRegressor(max_iter=20)).fit(X, Y)
    rows = X.astype(np.float32)
    (found,) = answers(model, tmp_path, rows, input_dtypes={"X": "float32"})
    np.testing.assert_allclose(found[:, 0], model.predict(rows.astype(np.float64)), rtol=1e-6)


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
@pytest.mark.parametrize("classes", [2, 3])
def test_votes_that_are_even_are_counted_as_in_the_source(kind: Any, classes: int, tmp_path: Path) -> None:
    rows = np.round(RANDOM.standard_normal((300, 2)))
    model = kind(30, random_state=0, max_depth=4).fit(rows, np.arange(300) % classes)
    label, chances = answers(model, tmp_path, rows)
    np.testing.assert_array_equal(label, model.predict(rows))
    np.testing.assert_allclose(chances, model.predict_proba(rows), rtol=1e-6)


@settings(deadline=None)
@given(FLOATS, FLOATS, st.sampled_from(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]))
@example(float(np.finfo(np.float32).max), 0.0, "BRANCH_LEQ")
@example(float(np.finfo(np.float32).min), 0.0, "BRANCH_GTE")
def test_doubles_are_parted_where_their_float32_is(threshold: float, other: float, mode: str) -> None:
    number = compared_in_float32(threshold, mode)
    compare = {"BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal}
    decide = compare.get(mode, np.greater)
    with np.errstate(over="ignore"):
        near = [number, np.nextafter(number, np.inf), np.nextafter(number, -np.inf), other]
        assert [decide(x, number) for x in near] == [decide(np.float32(x), np.float32(threshold)) for x in near]


@pytest.mark.filterwarnings("ignore:Bins whose width")
@pytest.mark.parametrize("encode", ["ordinal", "onehot-dense"])
@pytest.mark.parametrize(
    "steps",
    [
        (QuantileTransformer(n_quantiles=40, output_distribution="normal"),),
        (SplineTransformer(4),),
        (SimpleImputer(), StandardScaler(), PowerTransformer()),
        (Normalizer(),),
    ],
)
def test_bins_hold_the_rows_that_made_their_edges(steps: tuple[Any, ...], encode: str, tmp_path: Path) -> None:
    rows = X if not isinstance(steps[0], SimpleImputer) else np.where(X[7] == X, np.nan, X)
    bins = KBinsDiscretizer(4, encode=encode, strategy="quantile", quantile_method="inverted_cdf")
    model = make_pipeline(*steps, bins).fit(rows)
    (found,) = answers(model, tmp_path, rows)
    np.testing.assert_array_equal(found, model.transform(rows))


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
@pytest.mark.parametrize(
    "before", [QuantileTransformer(n_quantiles=20, output_distribution="normal"), PowerTransformer()]
)
def test_quantiles_that_are_equal_hold_the_rows_that_made_them(before: Any, distribution: str, tmp_path: Path) -> None:
    """The share of a number jumps there, at the least and the largest of them too; one gap stays one."""
    rows = np.concatenate([np.round(RANDOM.standard_normal((300, 2)) * 2).clip(-3, 3), [[np.nan, 9], [-9, np.nan]]])
    model = make_pipeline(before, QuantileTransformer(n_quantiles=40, output_distribution=distribution)).fit(rows)
    (found,) = answers(model, tmp_path, rows)
    np.testing.assert_allclose(found, model.transform(rows), rtol=1e-9, atol=1e-9)


def test_a_binarizer_asks_the_column_itself(tmp_path: Path) -> None:
    scaled = StandardScaler().fit(X)
    model = make_pipeline(scaled, Binarizer(threshold=float(scaled.transform(X)[5, 0]))).fit(X)
    rows = np.repeat(X[5:6], 41, axis=0)
    rows[:, 0] += np.spacing(rows[0, 0]) * np.arange(-20, 21)
    (found,) = answers(model, tmp_path, rows)
    np.testing.assert_array_equal(found, model.transform(rows))
    names = [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node]
    assert "Div" not in names  # the scaler is left out


def test_gaps_that_are_told_of_are_filled_in_doubles(tmp_path: Path) -> None:
    rows = np.where(RANDOM.random(X.shape) < 0.2, np.nan, X)
    rows[:, 2] += 1e10 / 3
    model = make_pipeline(SimpleImputer(add_indicator=True), HistGradientBoostingRegressor(max_iter=4, max_bins=100))
    model.fit(rows, Y)
    (found,) = answers(model, tmp_path, rows)
    np.testing.assert_allclose(found[:, 0], model.predict(rows), rtol=1e-6)


def test_lightgbms_border_of_zero_stays_where_it_is(tmp_path: Path) -> None:
    """Quantiles of the middle value are next to zero there, and LightGBM takes no number above 1e-35 for zero."""
    lightgbm = pytest.importorskip("lightgbm")
    rows = load_wine().data[:, [2]]
    scaled = QuantileTransformer(n_quantiles=50, output_distribution="normal").fit(rows[::2])
    beside = scaled.transform(rows)[:, 0]
    assert ((beside > 1e-35) & (beside < 1e-14)).any()
    model = lightgbm.LGBMRegressor(n_estimators=2, min_child_samples=1, min_data_in_bin=1, verbose=-1)
    model.fit(scaled.transform(rows), (beside > 0) * 5.0)
    assert (model.booster_.trees_to_dataframe().threshold.abs() < 1e-30).any()
    (found,) = run_converted(make_pipeline(scaled, model), tmp_path, rows)
    np.testing.assert_allclose(found.ravel(), model.predict(scaled.transform(rows)), rtol=1e-6)


def test_a_column_that_two_steps_change(tmp_path: Path) -> None:
    model = make_pipeline(
        make_union("passthrough", MinMaxScaler(), StandardScaler()), ExtraTreesClassifier(3, random_state=0)
    )
    model.fit(X, Y > 0.5)
    np.testing.assert_allclose(answers(model, tmp_path, X)[1], model.predict_proba(X), atol=1e-6)

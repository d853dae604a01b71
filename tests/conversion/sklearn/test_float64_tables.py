"""Pipelines whose answers jump are written in the precision of their source: every row of float64 decides as there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor, VotingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer, KBinsDiscretizer, QuantileTransformer, StandardScaler

from onnxtool.conversion.convert import convert
from onnxtool.runtime.runner import OnnxRunner
from tests.conversion.sklearn.converted_model import run_converted

X, Y = load_diabetes(return_X_y=True)
FOREST = RandomForestRegressor(5, random_state=0)
HISTOGRAM = HistGradientBoostingRegressor(max_iter=10, random_state=0)


def answers(model: Any, folder: Path, rows: np.ndarray) -> np.ndarray:
    convert(model, folder / "out.onnx", verify_result=False)
    runner = OnnxRunner.open(folder / "out.onnx")
    assert runner.inputs[0].dtype == np.float64
    return np.asarray(runner.run({"X": rows})["prediction"])[:, 0]


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), HISTOGRAM),
        make_pipeline(PCA(5, whiten=True), HISTOGRAM),
        make_pipeline(SimpleImputer(), StandardScaler(), FOREST),
        make_pipeline(QuantileTransformer(n_quantiles=50), FOREST),
        make_pipeline(KBinsDiscretizer(encode="onehot-dense", strategy="uniform"), FOREST),
        make_pipeline(StandardScaler(), VotingRegressor([("forest", FOREST), ("histogram", HISTOGRAM)])),
    ],
    ids=["histogram", "axes", "imputer", "quantiles", "bins", "both kinds of trees"],
)
def test_all_rows_of_the_training_data_are_answered_as_by_the_source(model: Any, tmp_path: Path) -> None:
    expected = model.fit(X, Y).predict(X)
    np.testing.assert_allclose(answers(model, tmp_path, X), expected, rtol=1e-5)


def test_lightgbm_compares_in_float64_and_xgboost_in_float32(tmp_path: Path) -> None:
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    leaves = lightgbm.LGBMRegressor(n_estimators=10, verbose=-1)
    for trees in (leaves, xgboost.XGBRegressor(n_estimators=10, n_jobs=1)):
        model = make_pipeline(StandardScaler(), trees).fit(X, Y)
        np.testing.assert_allclose(answers(model, tmp_path, X), model.predict(X), rtol=1e-5)


def test_numbers_beside_an_edge_and_on_it_fall_into_their_bins(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 40).reshape(-1, 1)
    bins = KBinsDiscretizer(4, encode="ordinal", strategy="uniform").fit(values)
    edges = bins.bin_edges_[0]
    for step, near in ((bins, edges[1:-1]), (Binarizer(threshold=0.1), np.array([0.1]))):
        rows = np.concatenate([near, np.nextafter(near, 9), np.nextafter(near, -9)]).reshape(-1, 1)
        model = make_pipeline(step, LinearRegression()).fit(values, values[:, 0])
        np.testing.assert_allclose(answers(model, tmp_path, rows), model.predict(rows), rtol=1e-6)


def test_constants_of_steps_behind_texts_keep_all_their_digits(tmp_path: Path) -> None:
    texts = ["a cat", "the dog sat", "a dog and a cat", "the cat sat on the mat", "a mat"]
    frame = pandas.DataFrame({"text": texts, "x": np.arange(5.0)})
    projected = make_pipeline(TfidfVectorizer(), TruncatedSVD(2, random_state=0))
    model = ColumnTransformer([("text", projected, "text"), ("x", "passthrough", ["x"])]).fit(frame)
    given = np.array(texts, object)[:, None], frame[["x"]].to_numpy()
    (found,) = run_converted(model, tmp_path, *given)
    np.testing.assert_allclose(found, model.transform(frame), rtol=1e-14)

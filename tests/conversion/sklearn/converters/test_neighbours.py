"""Neighbours that count by their distance, also where a row is a fitted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("skl2onnx")
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    LocalOutlierFactor,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer

from onnxtool.conversion.convert import convert, open_source
from onnxtool.conversion.sklearn.tied_neighbours import tied_rows
from onnxtool.errors import InputError, UnsupportedError
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
FITTED = RANDOM.standard_normal((80, 3)).astype(np.float32)
ROWS = np.concatenate([FITTED[30:50], RANDOM.standard_normal((20, 3)).astype(np.float32)])
THREE = np.digitize(FITTED[:, 0] + RANDOM.standard_normal(80), [-0.5, 0.5])


@pytest.mark.parametrize(
    "options",
    [{}, {"metric": "manhattan"}, {"p": 3}, {"metric": "chebyshev"}, {"metric": "cosine"}, {"n_neighbors": 1}],
    ids=["euclidean", "manhattan", "third power", "chebyshev", "cosine", "one"],
)
def test_chances_by_distance(options: dict[str, Any], tmp_path: Path) -> None:
    model = KNeighborsClassifier(weights="distance", **options).fit(FITTED, np.array(["low", "mid", "high"])[THREE])
    rows = ROWS[20:] if options.get("metric") == "cosine" else ROWS  # a cosine of 1 is not met exactly
    labels, chances = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(chances, model.predict_proba(rows.astype(np.float64)), atol=1e-5)
    assert labels.tolist() == model.predict(rows.astype(np.float64)).tolist()


def test_fitted_rows_that_are_met_count_alike(tmp_path: Path) -> None:
    fitted = np.array([[1, 2], [1, 2], [5, 5], [1, 2.5]], np.float32)
    model = KNeighborsClassifier(weights="distance", n_neighbors=4).fit(fitted, [0, 1, 2, 1])
    labels, chances = run_converted(model, tmp_path, fitted[:1])
    np.testing.assert_allclose(chances, [[0.5, 0.5, 0]])
    assert labels.tolist() == [0]


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_where_there_is_no_search_tree_rows_are_multiplied(weights: str, tmp_path: Path) -> None:
    wide = RANDOM.standard_normal((60, 20)) + 3
    model = KNeighborsRegressor(weights=weights, n_neighbors=3).fit(wide, wide[:, 0])
    assert model._fit_method == "brute"
    rows = np.concatenate([wide[:10], wide + 0.1])
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(found.reshape(-1), model.predict(rows), rtol=1e-6)
    assert "Scan" not in {node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node}


@pytest.mark.parametrize("targets", [1, 2])
def test_means_by_distance(targets: int, tmp_path: Path) -> None:
    wanted = FITTED[:, 0] if targets == 1 else FITTED[:, :2]
    model = KNeighborsRegressor(weights="distance", n_neighbors=4).fit(FITTED, wanted)
    (found,) = run_converted(model, tmp_path, ROWS, prove=targets == 1)
    expected = model.predict(ROWS.astype(np.float64)).reshape(len(ROWS), -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_another_metric_is_refused_by_its_name(tmp_path: Path) -> None:
    model = KNeighborsRegressor(weights="distance", metric="canberra").fit(FITTED, FITTED[:, 0])
    with pytest.raises(UnsupportedError, match="'canberra'"):
        run_converted(model, tmp_path, ROWS)


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_equal_distances_are_equal_in_the_file(weights: str, tmp_path: Path) -> None:
    fitted = np.array([[0.1, 0.7], [0.3, 0.5], [0.7, 0.1], [9, 9], [8, 9.0]])
    model = KNeighborsRegressor(weights=weights, n_neighbors=3).fit(fitted, [1.0, 20, 300, 4000, 50000])
    rows = np.array([[0.3, 0.7], [0.7, 0.3], [0.2, 0.2]])
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(found.reshape(-1), model.predict(rows), rtol=1e-12)


def test_rows_between_two_neighbours_are_no_proof(tmp_path: Path) -> None:
    model = KNeighborsRegressor(n_neighbors=1).fit([[0.0], [2.0], [5.0]], [1.0, 2.0, 3.0])
    rows = np.array([[1.0], [0.5], [3.5]])
    assert tied_rows(model, lambda: model.predict(rows), 3).tolist() == [True, False, True]
    assert "predict" not in vars(model)


def test_bins_in_a_sparse_matrix_are_neighbours_too(tmp_path: Path) -> None:
    model = make_pipeline(KBinsDiscretizer(3), KNeighborsRegressor(n_neighbors=80)).fit(FITTED, FITTED[:, 0])
    (found,) = run_converted(model, tmp_path, ROWS)
    np.testing.assert_allclose(found.reshape(-1), model.predict(ROWS), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:One or more samples have no neighbors", "ignore:Outlier label")
@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("options", [{}, {"metric": "manhattan"}, {"p": 3}], ids=["euclidean", "manhattan", "third"])
def test_all_rows_within_a_radius(weights: str, options: dict[str, Any], tmp_path: Path) -> None:
    fitted, names = np.round(2 * FITTED.astype(np.float64)), np.array(["a", "b", "c"])[THREE]
    rows = np.concatenate([fitted, [[90.0, 0, 0]]])  # distances of whole numbers lie on the edge
    model = RadiusNeighborsClassifier(2.0, weights=weights, outlier_label="b", **options).fit(fitted, names)
    labels, chances = run_converted(model, tmp_path, rows, prove=True)
    assert labels.tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(chances, model.predict_proba(rows), atol=1e-12)
    mean = RadiusNeighborsRegressor(2.0, weights=weights, **options).fit(fitted, fitted[:, :2])
    (found,) = run_converted(mean, tmp_path, rows)
    np.testing.assert_allclose(found, mean.predict(rows), atol=1e-12)
    assert np.isnan(found[-1]).all()


def test_a_row_without_a_neighbour(tmp_path: Path) -> None:
    rows = np.array([[0.0], [70.0]])
    other = RadiusNeighborsClassifier(1.0, outlier_label=7).fit([[0.0], [2.0]], [0, 1])
    labels, chances = run_converted(other, tmp_path, rows)
    assert labels.tolist() == [0, 7]
    assert chances.tolist() == [[1, 0], [0, 0]]
    refused = RadiusNeighborsClassifier(1.0).fit([[0.0], [2.0]], [0, 1])
    assert run_converted(refused, tmp_path, rows[:1])[0].tolist() == [0]
    with pytest.raises(InputError):
        run_converted(refused, tmp_path, rows)
    whole = RadiusNeighborsRegressor(1.0).fit([[0.0], [1.0], [5.0]], [0, 1, 2])  # its targets are integers
    (found,) = run_converted(whole, tmp_path, rows, prove=True)
    assert found.ravel().tolist() == [0.5, float(np.iinfo(np.int64).min)]


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_several_labels(weights: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows, names = generator.normal(size=(60, 3)), np.array(["a", "b"])
    targets = names[(rows[:, :2] > 0).astype(int)]
    model = KNeighborsClassifier(3, weights=weights).fit(rows, targets)
    apart = generator.normal(size=(20, 3))
    labels, chances = run_converted(model, tmp_path, apart, prove=True)
    np.testing.assert_array_equal(labels, model.predict(apart))
    np.testing.assert_allclose(chances, model.predict_proba(apart), atol=1e-12)


def test_rows_that_all_tie_are_left_to_clear_ones() -> None:
    fitted = np.array([[0.0], [1.0], [2.0], [5.0]])
    model = KNeighborsClassifier(1).fit(fitted, [0, 1, 0, 1])
    source = open_source(model)
    clear, tied = {"X": np.array([[0.1], [4.9]])}, {"X": np.array([[0.5], [1.5], [0.5]])}
    np.testing.assert_array_equal(source.drop_tied_rows(tied)["X"], tied["X"])
    source.drop_tied_rows(clear)
    np.testing.assert_array_equal(source.drop_tied_rows(tied)["X"], [[0.1], [4.9], [0.1]])
    narrow = source.drop_tied_rows({"X": tied["X"].astype(np.float32)})["X"]
    np.testing.assert_array_equal(narrow, np.array([[0.1], [4.9], [0.1]], np.float32), strict=True)


def test_ties_on_every_row_are_said_once(tmp_path: Path) -> None:
    grid = np.array(np.meshgrid(range(3), range(3))).reshape(2, -1).T.repeat(6, axis=0).astype(float)
    model = KNeighborsClassifier(5).fit(grid, grid[:, 0] > 0)
    report = convert(model, tmp_path / "out.onnx", effort="quick", sample={"X": grid})
    assert report.ok and report.untested.count("not compared where classes or neighbours tie") == 1


@pytest.mark.parametrize(
    "options",
    [{}, {"contamination": 0.1, "n_neighbors": 5}, {"algorithm": "brute"}, {"metric": "manhattan"}],
    ids=str,
)
def test_outliers_by_the_density_around_them(options: dict[str, Any], tmp_path: Path) -> None:
    fitted, rows = FITTED.astype(np.float64), np.concatenate([ROWS, 4 * ROWS]).astype(np.float64)
    model = LocalOutlierFactor(novelty=True, **options).fit(fitted)
    label, scores = run_converted(model, tmp_path, rows)
    np.testing.assert_array_equal(label, model.predict(rows))
    np.testing.assert_allclose(scores[:, 0], model.decision_function(rows), rtol=1e-6, atol=1e-9)

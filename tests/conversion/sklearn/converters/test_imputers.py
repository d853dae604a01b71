"""KNNImputer and IterativeImputer at all sizes of a batch, with and without anything missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import onnxtool
from onnxtool.errors import UnsupportedError
from onnxtool.model.io import read_proto
from tests.conversion.sklearn.converted_model import run_converted

impute = pytest.importorskip("sklearn.impute")
linear_model = pytest.importorskip("sklearn.linear_model")
iterative = pytest.importorskip("sklearn.impute._iterative")
pytest.importorskip("skl2onnx")
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((60, 3)).astype(np.float32)
HOLED = np.where(RANDOM.random(ROWS.shape) < 0.3, np.nan, ROWS).astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weights": "distance", "n_neighbors": 2},
        {"missing_values": -9.0},
        {"n_neighbors": 500},
        {"add_indicator": True},
    ],
    ids=["usual", "distance", "number", "more neighbours than rows", "indicator"],
)
def test_gaps_are_filled_as_scikit_learn_does(options: dict[str, Any], tmp_path: Path) -> None:
    gap = options.get("missing_values", np.nan)
    known = np.where(np.isnan(HOLED), np.float32(gap), HOLED)
    imputer = impute.KNNImputer(**options).fit(known.astype(np.float64))
    assert onnxtool.convert(imputer, tmp_path / "out.onnx").ok
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    name = session.get_inputs()[0].name
    for rows in (known, ROWS, known[:1], np.full((2, 3), gap, np.float32)):
        (found,) = session.run(None, {name: rows.astype(np.float64)})
        np.testing.assert_allclose(found, imputer.transform(rows.astype(np.float64)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_a_column_that_was_empty(keep: bool, tmp_path: Path) -> None:
    empty = HOLED.copy()
    empty[:, 1] = np.nan
    imputer = impute.KNNImputer(keep_empty_features=keep).fit(empty.astype(np.float64))
    assert onnxtool.convert(imputer, tmp_path / "out.onnx").ok
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: empty.astype(np.float64)})
    np.testing.assert_allclose(found, imputer.transform(empty.astype(np.float64)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"weights": lambda d: d}, {"metric": lambda a, b, missing_values: 1.0}])
def test_what_has_no_form_is_refused_with_the_reason(options: dict[str, Any], tmp_path: Path) -> None:
    imputer = impute.KNNImputer(**options).fit(HOLED.astype(np.float64))
    with pytest.raises(UnsupportedError, match="KNNImputer: "):
        onnxtool.convert(imputer, tmp_path / "out.onnx")


@pytest.mark.filterwarnings("ignore:.*IterativeImputer.*:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
@pytest.mark.parametrize(
    ("options", "filled"),
    [
        ({}, 0.0), ({"add_indicator": True, "initial_strategy": "median"}, 0.0), ({}, np.nan),
        ({"keep_empty_features": True}, np.nan), ({"n_nearest_features": 1, "min_value": -0.5, "max_value": 0.5}, 0.0),
        ({"estimator": linear_model.Ridge(), "skip_complete": True, "missing_values": -9.0}, 0.0),
    ],
    ids=str,
)  # fmt: skip
def test_gaps_are_filled_round_by_round(options: dict[str, Any], filled: float, tmp_path: Path) -> None:
    known = np.column_stack([HOLED, HOLED[:, 0] * 100 + ROWS[:, 1], np.full(60, filled)]).astype(np.float64)
    gap = options.get("missing_values", np.nan)
    known = np.where(np.isnan(known), gap, known)
    imputer = iterative.IterativeImputer(max_iter=3, random_state=0, **options).fit(known)
    for rows in (known, known[:1], np.full((2, 5), gap), np.vstack([known[:2], np.full((1, 5), gap)])):
        (found,) = run_converted(imputer, tmp_path, rows)
        np.testing.assert_allclose(found, imputer.transform(rows), rtol=1e-9, atol=1e-9)


def test_random_fillings_are_refused(tmp_path: Path) -> None:
    imputer = iterative.IterativeImputer(sample_posterior=True, max_iter=2, random_state=0).fit(
        HOLED.astype(np.float64)
    )
    with pytest.raises(UnsupportedError, match="draws at random"):
        onnxtool.convert(imputer, tmp_path / "out.onnx")


def test_a_number_of_the_users_and_where_it_stands(tmp_path: Path) -> None:
    model = impute.SimpleImputer(strategy="constant", fill_value=-1, add_indicator=True).fit(HOLED)
    (found,) = run_converted(model, tmp_path, HOLED)
    np.testing.assert_array_equal(found, model.transform(HOLED))


def test_neighbours_are_sought_for_gaps_alone(tmp_path: Path) -> None:
    """Of rows without a gap, too, and of a row that is nothing but gaps."""
    generator = np.random.default_rng(0)
    fitted = generator.standard_normal((60, 4))
    fitted[generator.random(fitted.shape) < 0.2] = np.nan
    imputer = impute.KNNImputer(n_neighbors=3, weights="distance").fit(fitted)
    whole = generator.standard_normal((5, 4))
    for rows in (whole, np.concatenate([whole, fitted, np.full((1, 4), np.nan)])):
        (found,) = run_converted(imputer, tmp_path, rows)
        np.testing.assert_allclose(found, imputer.transform(rows), rtol=1e-9)
    operators = [n.op_type for n in read_proto(tmp_path / "out.onnx").graph.node]
    assert operators.count("NonZero") == 4  # TopK of all rows took twenty times as long where one in twenty has a gap

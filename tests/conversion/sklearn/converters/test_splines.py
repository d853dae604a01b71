"""Splines are scikit-learn's, between their knots, at them and beyond; so are products of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

from onnxtool.errors import UnsupportedError
from onnxtool.model.io import read_proto
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((80, 3))
BEYOND = np.concatenate([X, 4 * X, np.zeros((1, 3))])


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("extrapolation", ["constant", "linear", "continue", "periodic"])
def test_splines_to_the_last_digit(degree: int, extrapolation: str, tmp_path: Path) -> None:
    if extrapolation == "linear" and degree < 2:
        with pytest.raises(UnsupportedError, match="one feature"):
            run_converted(SplineTransformer(5, degree=degree, extrapolation="linear").fit(X), tmp_path, X)
        return
    ones = (np.ones((len(X), 1)), np.linspace(0, 2, len(BEYOND))[:, None])  # a column that was constant
    fitted, beyond = (np.hstack(part) for part in zip((X, BEYOND), ones, strict=True))
    step = SplineTransformer(5, degree=degree, extrapolation=extrapolation).fit(fitted)
    rows = fitted if (extrapolation, degree) == ("constant", 0) else beyond  # scikit-learn fails beyond steps
    (found,) = run_converted(step, tmp_path, rows)
    np.testing.assert_array_equal(found, step.transform(rows))


def test_all_columns_share_the_nodes(tmp_path: Path) -> None:
    run_converted(SplineTransformer().fit(X), tmp_path, X)
    few = len(read_proto(tmp_path / "out.onnx").graph.node)
    many = np.tile(X, 10)
    run_converted(SplineTransformer().fit(many), tmp_path, many)
    assert len(read_proto(tmp_path / "out.onnx").graph.node) == few


@pytest.mark.parametrize(
    "options",
    [{}, {"degree": 1}, {"degree": 4}, {"degree": (2, 3), "include_bias": False}, {"interaction_only": True}],
    ids=str,
)
def test_products_of_columns_to_the_last_digit(options: dict[str, Any], tmp_path: Path) -> None:
    step = PolynomialFeatures(**options).fit(X)
    rows = np.concatenate([BEYOND, 1e60 * X[:5], 1e-60 * X[:5]])
    (found,) = run_converted(step, tmp_path, rows)
    np.testing.assert_array_equal(found, step.transform(rows).astype(found.dtype))


@pytest.mark.parametrize(
    "options",
    [
        {"include_bias": False},
        {"knots": "quantile"},
        {"n_knots": 2},
        {"include_bias": False, "degree": 1},
        {"handle_missing": "zeros"},
    ],
)
def test_options(options: dict[str, Any], tmp_path: Path) -> None:
    rows = np.where(BEYOND[3] == BEYOND, np.nan, BEYOND) if "handle_missing" in options else BEYOND
    step = SplineTransformer(**{"n_knots": 4, **options}).fit(rows)
    (found,) = run_converted(step, tmp_path, rows)
    np.testing.assert_array_equal(found, step.transform(rows))


def test_knots_that_coincide_and_a_feature_without_spread(tmp_path: Path) -> None:
    rows = np.stack([np.round(X[:, 0]), np.full(len(X), 7.0)], axis=1)
    for extrapolation in ("constant", "periodic"):
        step = SplineTransformer(9, knots="quantile", extrapolation=extrapolation)
        try:
            step.fit(rows)
        except ValueError:  # periodic knots have to differ
            step.set_params(knots="uniform").fit(rows)
        (found,) = run_converted(step, tmp_path, rows)
        np.testing.assert_array_equal(found, step.transform(rows))


def test_values_at_the_knots(tmp_path: Path) -> None:
    step = SplineTransformer(5, degree=1, extrapolation="linear").fit(np.arange(9.0)[:, None])
    rows = np.arange(-2.0, 12)[:, None]
    (found,) = run_converted(step, tmp_path, rows)
    np.testing.assert_array_equal(found, step.transform(rows))


def test_as_a_step(tmp_path: Path) -> None:
    model = make_pipeline(SplineTransformer(4), Ridge()).fit(X, X[:, 0] ** 2)
    (found,) = run_converted(model, tmp_path, BEYOND)
    np.testing.assert_allclose(found[:, 0], model.predict(BEYOND), rtol=1e-3, atol=1e-4)

"""Splines are scikit-learn's, between their knots, at them and beyond."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from onnxtool.errors import UnsupportedError
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((80, 3)).astype(np.float32)
BEYOND = np.concatenate([X, 4 * X, np.zeros((1, 3), np.float32)])


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("extrapolation", ["constant", "linear", "continue", "periodic"])
def test_splines(degree: int, extrapolation: str, tmp_path: Path) -> None:
    if extrapolation == "linear" and degree < 2:
        with pytest.raises(UnsupportedError, match="one feature"):
            run_converted(SplineTransformer(5, degree=degree, extrapolation="linear").fit(X), tmp_path, X)
        return
    step = SplineTransformer(5, degree=degree, extrapolation=extrapolation).fit(X.astype(np.float64))
    rows = X if (extrapolation, degree) == ("constant", 0) else BEYOND  # scikit-learn fails beyond steps
    (found,) = run_converted(step, tmp_path, rows)
    expected = step.transform(rows.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "options", [{"include_bias": False}, {"knots": "quantile"}, {"n_knots": 2}, {"include_bias": False, "degree": 1}]
)
def test_options(options: dict[str, Any], tmp_path: Path) -> None:
    step = SplineTransformer(**{"n_knots": 4, **options}).fit(X.astype(np.float64))
    (found,) = run_converted(step, tmp_path, BEYOND)
    np.testing.assert_allclose(found, step.transform(BEYOND.astype(np.float64)), rtol=1e-4, atol=1e-5)


def test_values_at_the_knots(tmp_path: Path) -> None:
    step = SplineTransformer(5, degree=1, extrapolation="linear").fit(np.arange(9.0)[:, None])
    rows = np.arange(-2, 12, dtype=np.float32)[:, None]
    (found,) = run_converted(step, tmp_path, rows)
    np.testing.assert_allclose(found, step.transform(rows.astype(np.float64)), atol=1e-6)


def test_as_a_step(tmp_path: Path) -> None:
    model = make_pipeline(SplineTransformer(4), Ridge()).fit(X, X[:, 0] ** 2)
    (found,) = run_converted(model, tmp_path, BEYOND)
    np.testing.assert_allclose(found[:, 0], model.predict(BEYOND), rtol=1e-3, atol=1e-4)

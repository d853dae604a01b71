"""Quantiles as normal numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.preprocessing import QuantileTransformer

from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_quantiles_are_scikit_learns(distribution: str, tmp_path: Path) -> None:
    rows = np.column_stack([RANDOM.standard_normal(3000), RANDOM.integers(0, 5, 3000), RANDOM.random(3000) * 1e3])
    rows = rows.astype(np.float32)
    step = QuantileTransformer(n_quantiles=2500, output_distribution=distribution).fit(rows.astype(np.float64))
    far = np.array([[-9, -1, -5], [9, 9, 2e3], [np.nan, 2, 500]], np.float32)
    tried = np.concatenate([rows[:500], np.sort(rows, axis=0)[[0, 1, 2, -3, -2, -1]], far])
    (found,) = run_converted(step, tmp_path, tried)
    np.testing.assert_allclose(found, step.transform(tried.astype(np.float64)), rtol=1e-4, atol=2e-4)

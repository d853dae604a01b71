"""Quantiles as normal numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.preprocessing import QuantileTransformer

from onnxtool.model.io import read_proto
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


@pytest.mark.parametrize("count", [2, 64, 65, 1000])
def test_shares_at_quantiles_and_beside_them_to_the_last_digit(count: int, tmp_path: Path) -> None:
    """In one go and block by block; of columns with equal quantiles, too."""
    rows = np.column_stack([RANDOM.standard_normal(2000), np.round(3 * RANDOM.standard_normal(2000)), np.ones(2000)])
    step = QuantileTransformer(n_quantiles=count).fit(rows)
    knots = np.nan_to_num(step.quantiles_)
    beside = [np.nextafter(knots, -np.inf), knots, np.nextafter(knots, np.inf), 3 * rows[:50], [[np.nan] * 3]]
    tried = np.concatenate(beside)
    (found,) = run_converted(step, tmp_path, tried)
    np.testing.assert_array_equal(found, step.transform(tried))


def test_all_columns_share_the_nodes(tmp_path: Path) -> None:
    counts = []
    for columns in (2, 20):
        rows = RANDOM.standard_normal((300, columns))
        run_converted(QuantileTransformer(n_quantiles=100).fit(rows), tmp_path, rows)
        counts.append(len(read_proto(tmp_path / "out.onnx").graph.node))
    assert counts[1] <= counts[0] + 2

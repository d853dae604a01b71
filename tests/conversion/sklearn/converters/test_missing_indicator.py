"""What was missing is told beside what is put in its place, as scikit-learn does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union

from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((60, 3))
HOLED = np.where(RANDOM.random(ROWS.shape) < [0.3, 0.2, 0.0], np.nan, ROWS)
EMPTY = np.column_stack([HOLED, np.full(60, np.nan)])


@pytest.mark.filterwarnings("ignore:Skipping features without any observed values")
@pytest.mark.parametrize(
    ("step", "rows"),
    [
        (SimpleImputer(add_indicator=True), HOLED),
        (SimpleImputer(add_indicator=True, strategy="median"), EMPTY),
        (SimpleImputer(add_indicator=True, keep_empty_features=True), EMPTY),
        (SimpleImputer(add_indicator=True, missing_values=-9.0), np.nan_to_num(HOLED, nan=-9.0)),
        (MissingIndicator(), HOLED),
        (MissingIndicator(features="all"), HOLED),
        (make_union(SimpleImputer(), MissingIndicator()), HOLED),
    ],
    ids=["mean", "empty column", "empty column kept", "number", "indicator", "all", "union"],
)
def test_indicators_are_scikit_learns(step: Any, rows: np.ndarray, tmp_path: Path) -> None:
    rows = rows.astype(np.float32)
    step.fit(rows.astype(np.float64))
    (found,) = run_converted(step, tmp_path, rows)
    np.testing.assert_allclose(found, step.transform(rows.astype(np.float64)), rtol=1e-6)


def test_the_proof_holds_with_a_model_behind_it(tmp_path: Path) -> None:
    model = make_pipeline(SimpleImputer(add_indicator=True), LogisticRegression(C=100))
    model.fit(HOLED, np.isnan(HOLED[:, 0]))
    chances = run_converted(model, tmp_path, HOLED.astype(np.float32), prove=True)[1]
    np.testing.assert_allclose(chances, model.predict_proba(HOLED), atol=1e-5)

"""Trees behind a scaler: whole numbers of the data are thresholds, and rounding puts them to either side."""

from __future__ import annotations

import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from onnxtool.conversion.convert import convert


@pytest.mark.parametrize("seed", [0, 1])
def test_are_no_difference(seed: int) -> None:
    x, y = load_digits(return_X_y=True)
    model = make_pipeline(MinMaxScaler(), GradientBoostingClassifier(n_estimators=8, random_state=0)).fit(x, y)
    assert convert(model, seed=seed).ok

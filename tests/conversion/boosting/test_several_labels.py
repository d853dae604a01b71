"""XGBoost's classifiers of several labels give every label and its probability."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxtool
from tests.conversion.answers import outputs

xgboost = pytest.importorskip("xgboost")
pytest.importorskip("skl2onnx")
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((200, 4)).astype(np.float32)
LABELS = np.column_stack([ROWS[:, 0] > 1, ROWS[:, 1] > ROWS[:, 2], ROWS[:, 3] > -1]).astype(int)


def fitted(labels: np.ndarray) -> xgboost.XGBClassifier:
    return xgboost.XGBClassifier(n_estimators=3, max_depth=3).fit(ROWS, labels)


def test_labels_and_probabilities(tmp_path: Path) -> None:
    model = fitted(LABELS)
    assert onnxtool.convert(model, tmp_path / "out.onnx", effort="quick").ok
    labels, chances = outputs(tmp_path / "out.onnx", ROWS)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, model.predict(ROWS))
    np.testing.assert_allclose(chances, model.predict_proba(ROWS), rtol=1e-4, atol=1e-5)

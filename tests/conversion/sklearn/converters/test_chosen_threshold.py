"""A threshold that was chosen decides the label, and leaves the probabilities alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((120, 3)).astype(np.float32)
NUMBERS = (X[:, 0] + RANDOM.standard_normal(120) > 0.8).astype(int)
TEXTS = np.array(["no", "yes"])[NUMBERS]


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (FixedThresholdClassifier(RandomForestClassifier(5, random_state=0), threshold=0.3), NUMBERS),
        (FixedThresholdClassifier(LogisticRegression(), threshold=0.2, pos_label="yes"), TEXTS),
        (FixedThresholdClassifier(LogisticRegression(), threshold=0.9, pos_label="no"), TEXTS),
        (FixedThresholdClassifier(LogisticRegression(), threshold=-0.7, response_method="decision_function"), NUMBERS),
        (
            FixedThresholdClassifier(
                LogisticRegression(), threshold=0.7, pos_label=0, response_method="decision_function"
            ),
            NUMBERS,
        ),
        (FixedThresholdClassifier(LogisticRegression()), NUMBERS),
        (TunedThresholdClassifierCV(LogisticRegression(), scoring="f1"), NUMBERS),
    ],
    ids=["forest", "texts", "the first label", "scores", "scores of the first", "auto", "tuned"],
)
def test_labels_by_the_threshold(model: Any, target: np.ndarray, tmp_path: Path) -> None:
    model.fit(X, target)
    labels, chances = run_converted(model, tmp_path, X)
    assert labels.tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(chances, model.predict_proba(X), atol=1e-5)

"""Lines between the steps of isotonic regression, alone and as calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((90, 4)).astype(np.float32)
NOISY = X[:, 0] + RANDOM.standard_normal(90)
TWO, THREE = np.array(["no", "yes"])[(NOISY > 0).astype(int)], np.digitize(NOISY, [-0.7, 0.7])


@pytest.mark.parametrize("outside", ["clip", "nan"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lines_between_steps(outside: str, dtype: Any, tmp_path: Path) -> None:
    model = IsotonicRegression(out_of_bounds=outside).fit(X[:, 0].astype(dtype), NOISY)
    rows = np.linspace(-4, 4, 101, dtype=np.float32).reshape(-1, 1)
    (found,) = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(found[:, 0], model.predict(rows.astype(dtype)), rtol=1e-4, atol=1e-5)


def test_one_step_alone(tmp_path: Path) -> None:
    model = IsotonicRegression(out_of_bounds="clip").fit([1.0, 1.0], [2.0, 4.0])
    (found,) = run_converted(model, tmp_path, np.array([[0.0], [5.0]], np.float32))
    assert found.tolist() == [[3.0], [3.0]]


@pytest.mark.parametrize(
    ("member", "target"),
    [
        (LogisticRegression(), TWO),
        (LinearSVC(), THREE),
        (GaussianNB(), THREE),
        (RandomForestClassifier(4, random_state=0), THREE),
        (GradientBoostingClassifier(n_estimators=3, random_state=0), TWO),
    ],
    ids=lambda m: type(m).__name__,
)
def test_calibrated_chances(member: Any, target: np.ndarray, tmp_path: Path) -> None:
    model = CalibratedClassifierCV(member, method="isotonic", cv=2).fit(X, target)
    rows = RANDOM.standard_normal((40, 4)).astype(np.float32)
    labels, chances = run_converted(model, tmp_path, rows)
    expected = model.predict_proba(rows)
    np.testing.assert_allclose(chances, expected, atol=2e-4)
    clear = np.diff(np.sort(expected, axis=1)[:, -2:])[:, 0] > 1e-3
    assert labels[clear].tolist() == model.predict(rows)[clear].tolist()


@pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("member", [LogisticRegression(), GaussianNB()], ids=lambda m: type(m).__name__)
def test_temperatures(member: Any, target: np.ndarray, tmp_path: Path) -> None:
    model = CalibratedClassifierCV(member, method="temperature", cv=2).fit(X, target)
    rows = RANDOM.standard_normal((40, 4)).astype(np.float32)
    labels, chances = run_converted(model, tmp_path, rows)
    np.testing.assert_allclose(chances, model.predict_proba(rows), atol=1e-5)
    assert labels.tolist() == model.predict(rows).tolist()

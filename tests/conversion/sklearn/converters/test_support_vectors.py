"""Support vector machines give what libsvm gives, to the digits of doubles, where float32 has none left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from scipy.sparse import csr_matrix
from sklearn.calibration import CalibratedClassifierCV
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

from onnxtool.errors import UnsupportedError
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
# One column is large beside what tells its rows apart.
X = RANDOM.standard_normal((90, 3)) * [1, 1, 5] + [0, 0, 3000]
ROWS = np.vstack([X[:30], RANDOM.standard_normal((10, 3)) * 40 + [0, 0, 3000]])
NUMBER = X[:, 0] + X[:, 1] ** 2
FOUR = np.array(["a", "b", "c", "d"])[np.digitize(NUMBER, np.quantile(NUMBER, [0.25, 0.5, 0.75]))]
TWO = np.where(np.median(NUMBER) < NUMBER, "yes", "no")
KERNELS: list[dict[str, Any]] = [
    {}, {"kernel": "linear"}, {"kernel": "poly", "degree": 2, "gamma": 1e-4, "coef0": 0.3},
    {"kernel": "sigmoid", "gamma": 1e-7},
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The `probability` parameter")
@pytest.mark.parametrize("labels", [TWO, FOUR], ids=["two", "four"])
@pytest.mark.parametrize("kind", [SVC, NuSVC])
def test_chances_are_libsvms(kind: Any, labels: np.ndarray, tmp_path: Path) -> None:
    model = kind(probability=True, random_state=0).fit(X, labels)
    found, chances = run_converted(model, tmp_path, ROWS)
    np.testing.assert_allclose(chances, model.predict_proba(ROWS), rtol=1e-9, atol=1e-12)
    assert found.tolist() == model.predict(ROWS).tolist()


@pytest.mark.parametrize("options", [*KERNELS, {"decision_function_shape": "ovo"}, {"break_ties": True}], ids=str)
@pytest.mark.parametrize("labels", [TWO, FOUR], ids=["two", "four"])
def test_scores_and_labels(options: dict[str, Any], labels: np.ndarray, tmp_path: Path) -> None:
    model = SVC(**options).fit(X, labels)
    found, scores = run_converted(model, tmp_path, ROWS)
    expected = model.decision_function(ROWS)
    expected = np.column_stack([-expected, expected]) if expected.ndim == 1 else expected
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-6)
    assert found.tolist() == model.predict(ROWS).tolist()


@pytest.mark.parametrize("options", KERNELS, ids=str)
@pytest.mark.parametrize("kind", [SVR, NuSVR, OneClassSVM])
def test_sums_of_kernels(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    outliers = kind is OneClassSVM
    model = kind(**options).fit(X) if outliers else kind(**options).fit(X, NUMBER)
    *label, found = run_converted(model, tmp_path, ROWS)
    expected = model.decision_function(ROWS) if outliers else model.predict(ROWS)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6, atol=1e-6)
    if outliers:
        assert label[0].tolist() == model.predict(ROWS).tolist()


def test_what_was_fitted_on_sparse_rows(tmp_path: Path) -> None:
    model = SVC().fit(csr_matrix(X), FOUR)
    labels, scores = run_converted(model, tmp_path, ROWS)
    np.testing.assert_allclose(scores, model.decision_function(csr_matrix(ROWS)), rtol=1e-6, atol=1e-6)
    assert labels.tolist() == model.predict(csr_matrix(ROWS)).tolist()


def test_scores_inside_another_estimator(tmp_path: Path) -> None:
    model = CalibratedClassifierCV(SVC(), cv=2).fit(X, FOUR)
    labels, chances = run_converted(model, tmp_path, ROWS, prove=True)
    np.testing.assert_allclose(chances, model.predict_proba(ROWS), rtol=1e-8, atol=1e-12)
    assert labels.tolist() == model.predict(ROWS).tolist()


def test_distances_that_are_given_are_refused_by_name(tmp_path: Path) -> None:
    model = SVR(kernel="precomputed").fit(X @ X.T, NUMBER)
    with pytest.raises(UnsupportedError, match="SVR: its kernel 'precomputed'"):
        run_converted(model, tmp_path, X @ X.T)

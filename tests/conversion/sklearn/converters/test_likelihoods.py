"""Mixtures and naive Bayes far from zero, where float32 has no digits left for what tells rows apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB

from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = np.vstack([RANDOM.normal(shift, [1, 10, 0.1], (40, 3)) for shift in ([0, 90_000, 7], [2, 90_020, 7.2])])
FAR = np.vstack([X, X[:10] + np.array([300, -9_000, 40])])
COUNTS = RANDOM.integers(0, 300, (60, 4)).astype(float)
THREE = np.array(["low", "mid", "high"])[np.digitize(COUNTS[:, 0] - COUNTS[:, 1], [-60, 60])]


@pytest.mark.parametrize("covariances", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("kind", [GaussianMixture, BayesianGaussianMixture])
def test_mixtures(kind: Any, covariances: str, tmp_path: Path) -> None:
    model = kind(n_components=3, covariance_type=covariances, random_state=0, max_iter=500).fit(X)
    labels, chances = run_converted(model, tmp_path, FAR)
    np.testing.assert_allclose(chances, model.predict_proba(FAR), atol=2e-6)
    assert labels.tolist() == model.predict(FAR).tolist()


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (GaussianNB(), X), (BernoulliNB(binarize=100), COUNTS), (BernoulliNB(binarize=None), COUNTS > 100.0),
        (MultinomialNB(), COUNTS), (MultinomialNB(fit_prior=False), COUNTS), (ComplementNB(norm=True), COUNTS),
    ],
    ids=str,
)  # fmt: skip
def test_naive_bayes(model: Any, rows: np.ndarray, tmp_path: Path) -> None:
    rows = rows[: len(THREE)].astype(float)
    model.fit(rows, THREE)
    labels, chances = run_converted(model, tmp_path, rows, prove=isinstance(model, GaussianNB))
    np.testing.assert_allclose(chances, model.predict_proba(rows), rtol=1e-7, atol=1e-9)
    assert labels.tolist() == model.predict(rows).tolist()

"""Features by kernels, and the nearest centroid, are scikit-learn's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.ensemble import RandomTreesEmbedding
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline

from onnxtool.errors import UnsupportedError
from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((60, 4)).astype(np.float32)
EVEN = np.repeat([0, 1, 2], 20)
UNEVEN = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-1.0, 0.2])]


@pytest.mark.parametrize(
    "step",
    [
        RBFSampler(n_components=7, gamma=0.3, random_state=0),
        Nystroem(n_components=9, random_state=0),
        Nystroem(kernel="poly", gamma=0.5, coef0=0.7, degree=2, n_components=9, random_state=0),
        Nystroem(kernel="sigmoid", n_components=9, random_state=0),
        Nystroem(kernel="laplacian", gamma=0.2, n_components=9, random_state=0),
        Nystroem(kernel="cosine", n_components=9, random_state=0),
        Nystroem(kernel="linear", n_components=9, random_state=0),
        PolynomialCountSketch(n_components=9, random_state=0),
        PolynomialCountSketch(n_components=12, degree=3, gamma=0.4, coef0=2, random_state=0),
        PolynomialCountSketch(n_components=5, degree=1, random_state=0),
    ],
    ids=lambda s: getattr(s, "kernel", "sampler"),
)
def test_features_of_a_kernel(step: Any, tmp_path: Path) -> None:
    step.fit(X.astype(np.float64))
    rows = np.concatenate([X[:5], RANDOM.standard_normal((9, 4)).astype(np.float32)])
    (found,) = run_converted(step, tmp_path, rows)
    expected = step.transform(rows.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_another_kernel_is_refused_by_its_name(tmp_path: Path) -> None:
    step = Nystroem(kernel="chi2", n_components=5, random_state=0).fit(np.abs(X))
    with pytest.raises(UnsupportedError, match="'chi2'"):
        run_converted(step, tmp_path, X)


@pytest.mark.parametrize(
    "step",
    [
        AdditiveChi2Sampler(),
        AdditiveChi2Sampler(sample_steps=4, sample_interval=0.3),
        AdditiveChi2Sampler(sample_steps=1),
        SkewedChi2Sampler(skewedness=0.4, n_components=7, random_state=0),
        BernoulliRBM(5, n_iter=2, random_state=0),
    ],
    ids=lambda step: type(step).__name__,
)
def test_features_of_parts(step: Any, tmp_path: Path) -> None:
    rows = np.where(X > 1, 0, np.abs(X)).astype(np.float64)  # of zero, the logarithm is not one of them
    (found,) = run_converted(step.fit(rows), tmp_path, rows)
    np.testing.assert_allclose(found, step.transform(rows), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_leaves_as_features(sparse: bool, tmp_path: Path) -> None:
    leaves = RandomTreesEmbedding(4, max_depth=3, sparse_output=sparse, random_state=0).fit(X)
    rows = RANDOM.standard_normal((50, 4))
    (found,) = run_converted(leaves, tmp_path, rows, prove=True)
    expected = leaves.transform(rows)
    np.testing.assert_array_equal(found, expected.toarray() if sparse else expected)
    model = make_pipeline(leaves, LogisticRegression()).fit(X, UNEVEN)
    labels, chances = run_converted(model, tmp_path, rows)
    assert labels.tolist() == model.predict(rows).tolist()
    np.testing.assert_allclose(chances, model.predict_proba(rows), atol=1e-6)


@pytest.mark.parametrize("target", [EVEN, UNEVEN], ids=["classes of one size", "of several"])
@pytest.mark.parametrize("options", [{}, {"metric": "manhattan"}, {"shrink_threshold": 0.1}, {"priors": "empirical"}])
def test_the_nearest_centroid(target: np.ndarray, options: dict[str, Any], tmp_path: Path) -> None:
    scaled = X * np.array([1, 5, 0.2, 1], np.float32)
    model = NearestCentroid(**options).fit(scaled, target)
    rows = RANDOM.standard_normal((50, 4)).astype(np.float32) * np.array([1, 5, 0.2, 1], np.float32)
    labels, *scores = run_converted(model, tmp_path, rows)
    assert labels.tolist() == model.predict(rows.astype(np.float64)).tolist()
    assert len(scores) == hasattr(model, "predict_proba")
    for chances in scores:
        np.testing.assert_allclose(chances, model.predict_proba(rows.astype(np.float64)), atol=1e-5)

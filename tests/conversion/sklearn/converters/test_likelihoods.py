"""Mixtures and naive Bayes far from zero, where float32 has no digits left for what tells rows apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor, kernels
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB

from onnxtool.errors import UnsupportedError
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
def test_naive_bayes(model: Any, rows: np.ndarray, tmp_path: Path, normal_effort: None) -> None:
    rows = rows[: len(THREE)].astype(float)
    model.fit(rows, THREE)
    labels, chances = run_converted(model, tmp_path, rows, prove=isinstance(model, GaussianNB))
    np.testing.assert_allclose(chances, model.predict_proba(rows), rtol=1e-7, atol=1e-9)
    assert labels.tolist() == model.predict(rows).tolist()


KERNELS = {
    "default": None,
    "widths": kernels.ConstantKernel(2.0) * kernels.RBF([1.0, 2.0, 3.0]) + kernels.WhiteKernel(0.1),
    "rough": kernels.Matern(nu=0.5),
    "once": kernels.Matern(nu=1.5),
    "twice": kernels.Matern(2.0, nu=2.5),
    "smooth": kernels.Matern(nu=np.inf),
    "rational": kernels.RationalQuadratic(alpha=0.7),
    "waves": 1.5 + kernels.ExpSineSquared(2.0, 60.0),
    "products": kernels.DotProduct(0.5) ** 2 * kernels.RBF(4.0),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("count", [2, 3])
def test_classes_by_gaussian_processes(name: str, count: int, tmp_path: Path) -> None:
    rows = RANDOM.normal(size=(60, 3))
    target = np.array(["low", "mid", "high"])[np.digitize(rows[:, 0] + rows[:, 1] ** 2, [0.3, 1.5][: count - 1])]
    model = GaussianProcessClassifier(KERNELS[name], optimizer=None).fit(rows, target)
    others = np.vstack([2 * RANDOM.normal(size=(50, 3)), [[300.0, 0, 0]]])  # far from all, where classes may tie
    labels, chances = run_converted(model, tmp_path, others)
    np.testing.assert_allclose(chances, model.predict_proba(others), rtol=1e-6)  # given as float32
    assert labels.tolist() == model.predict(others).tolist()


@pytest.mark.parametrize(
    ("options", "told"),
    [({"multi_class": "one_vs_one"}, "one_vs_one"), ({"kernel": kernels.Matern(nu=0.7)}, "nu=0.7"),
     ({"kernel": kernels.PairwiseKernel()}, "PairwiseKernel")],
)  # fmt: skip
def test_other_gaussian_processes_are_refused(options: dict[str, Any], told: str, tmp_path: Path) -> None:
    rows = RANDOM.normal(size=(30, 2))
    model = GaussianProcessClassifier(optimizer=None, **options).fit(rows, np.arange(30) % 3)
    with pytest.raises(UnsupportedError, match=told):
        run_converted(model, tmp_path, rows)


@pytest.mark.parametrize(
    "kernel",
    [
        None, kernels.ConstantKernel(2.0) * kernels.RBF([1.0, 2.0, 3.0]) + kernels.WhiteKernel(0.1),
        kernels.Matern(nu=1.5) + kernels.DotProduct(), kernels.RationalQuadratic(),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("targets", [1, 2])
def test_means_of_a_gaussian_process(kernel: Any, targets: int, tmp_path: Path) -> None:
    """To the digits of a double, whatever the targets' scale; no step for each fitted row."""
    rows = RANDOM.standard_normal((70, 3))
    y = 1e4 + 300 * np.stack([np.sin(rows[:, 0]), rows[:, 1] ** 2], axis=1)
    y = y[:, 0] if targets == 1 else y
    model = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.1, normalize_y=True).fit(rows, y)
    tried = np.concatenate([rows, 3 * rows])
    (found,) = run_converted(model, tmp_path, tried)
    np.testing.assert_allclose(found.reshape(model.predict(tried).shape), model.predict(tried), 1e-12)

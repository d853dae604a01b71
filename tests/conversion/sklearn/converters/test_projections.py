"""Steps that take off a mean and multiply by a matrix, and vectorizers side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.decomposition import PCA, FactorAnalysis, FastICA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union

from tests.conversion.sklearn.converted_model import run_converted

RANDOM = np.random.default_rng(1)
LABELS = RANDOM.integers(0, 3, 90)
ROWS = RANDOM.normal(size=(90, 4)) + np.eye(4)[LABELS] * 3


@pytest.mark.parametrize(
    "step",
    [
        LinearDiscriminantAnalysis(),
        LinearDiscriminantAnalysis(n_components=1),
        LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1),
        FactorAnalysis(2),
        FastICA(3, random_state=0, max_iter=2000),
        FastICA(whiten=False, random_state=0, tol=10),
        make_union(LinearDiscriminantAnalysis(), PCA(2)),
    ],
    ids=["lda", "one axis", "eigen", "factors", "ica", "ica as it is", "side by side"],
)
def test_before_a_classifier(step: Any, tmp_path: Path) -> None:
    model = make_pipeline(step, LogisticRegression()).fit(ROWS, LABELS)
    labels, chances = run_converted(model, tmp_path, ROWS)
    assert labels.tolist() == model.predict(ROWS).tolist()
    np.testing.assert_allclose(chances, model.predict_proba(ROWS), atol=1e-12)


@pytest.mark.parametrize("step", [FactorAnalysis(2), FastICA(3, random_state=0)], ids=["factors", "ica"])
def test_alone(step: Any, tmp_path: Path) -> None:
    (found,) = run_converted(step.fit(ROWS), tmp_path, ROWS, prove=True)
    np.testing.assert_allclose(found, step.transform(ROWS), atol=1e-12)


def test_discriminants_that_decide_after_discriminants(tmp_path: Path) -> None:
    model = make_pipeline(LinearDiscriminantAnalysis(n_components=1), LinearDiscriminantAnalysis()).fit(ROWS, LABELS)
    labels, chances = run_converted(model, tmp_path, ROWS)
    assert labels.tolist() == model.predict(ROWS).tolist()
    np.testing.assert_allclose(chances, model.predict_proba(ROWS), atol=1e-12)


def test_vectorizers_side_by_side(tmp_path: Path) -> None:
    texts = ["the cat sat", "a dog ran", "cats and dogs", "red birds", "The Cat! on 7 mats", "", "hill-cat"] * 5
    parts = make_union(CountVectorizer(), TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 3)))
    model = make_pipeline(parts, LogisticRegression()).fit(texts, [0, 1, 0, 2, 1, 2, 0] * 5)
    labels, chances = run_converted(model, tmp_path, np.array(texts, dtype=object), prove=True)
    assert labels.tolist() == model.predict(texts).tolist()
    np.testing.assert_allclose(chances, model.predict_proba(texts), atol=1e-6)

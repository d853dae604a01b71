"""Counts of words that are damped, and words of one letter, come out as scikit-learn has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.conversion.sklearn import prepare
from onnxtool.runtime.runner import OnnxRunner

pytest.importorskip("skl2onnx")

from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

TEXTS = ["the cat sat on the mat and the dog", "a dog ate a cat", "I love a dog dog dog dog", "x y z"] * 3


@pytest.mark.parametrize(
    "steps",
    [
        TfidfVectorizer(sublinear_tf=True),
        TfidfVectorizer(sublinear_tf=True, use_idf=False, norm=None, ngram_range=(1, 2)),
        make_pipeline(CountVectorizer(), TfidfTransformer(sublinear_tf=True)),
        TfidfVectorizer(token_pattern=r"(?u)\b\w+\b"),
        TfidfVectorizer(),
    ],
)
def test_features_are_scikit_learns(steps: Any, tmp_path: Path) -> None:
    steps.fit(TEXTS)
    assert convert(steps, tmp_path / "out.onnx", effort="quick").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    texts = np.array([["dog dog dog cat"], ["a a a x"], [""], ["the the the the the"]], dtype=object)
    found = next(iter(runner.run({runner.inputs[0].name: texts.reshape(runner_shape(runner))}).values()))
    np.testing.assert_allclose(found, steps.transform(texts[:, 0]).toarray(), rtol=1e-5, atol=1e-6)


def runner_shape(runner: OnnxRunner) -> tuple[int, ...]:
    return (4,) if len(runner.inputs[0].shape or ()) == 1 else (4, 1)


def test_what_stands_between_neighbours_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectorizer = TfidfVectorizer(ngram_range=(1, 2)).fit(["the cat sat on the mat", "dogs are great", "cat and dog"])
    assert convert(vectorizer, tmp_path / "out.onnx", effort="quick").ok
    monkeypatch.setattr(prepare, "_WORDS", {})  # as skl2onnx has it: words of one letter are words
    assert not convert(vectorizer, tmp_path / "out.onnx", effort="quick").ok

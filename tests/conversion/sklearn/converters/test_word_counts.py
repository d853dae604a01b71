"""Counts of words that are damped, and words of one letter, come out as scikit-learn has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxtool.conversion.convert import convert
from onnxtool.conversion.sklearn import prepare
from onnxtool.conversion.sklearn.cleanup import as_re2
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


@pytest.mark.parametrize("options", [{}, {"ngram_range": (1, 2)}, {"token_pattern": r"[\w-]+"}, {"lowercase": False}])
def test_letters_of_all_scripts_are_letters(options: dict[str, Any], tmp_path: Path) -> None:
    vectorizer = CountVectorizer(**options)
    vectorizer.fit(["Größe der Straße über Köln", "Äpfel und Öl", "café à Paris", "слово und 日本 Köln-Ost m²"])
    assert convert(vectorizer, tmp_path / "out.onnx", effort="quick").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    texts = np.array(["ÄPFEL öl", "Größe und café, Köln", "СЛОВО日本 à Paris", "Köln-Ost x m²"], dtype=object)
    found = next(iter(runner.run({runner.inputs[0].name: texts.reshape(runner_shape(runner))}).values()))
    np.testing.assert_array_equal(found, vectorizer.transform(texts).toarray())


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"\w\w+", r"[\p{L}\p{N}_][\p{L}\p{N}_]+"),
        (r"[\w-]+\d", r"[\p{L}\p{N}_-]+[\p{Nd}]"),
        (r"\\w[\]\d]", r"\\w[\]\p{Nd}]"),
        ("[a-z]+", "[a-z]+"),
    ],
)
def test_patterns_in_the_runtimes_own_kind(pattern: str, expected: str) -> None:
    assert as_re2(pattern) == expected


def test_the_greek_letter_that_differs_at_the_end_of_a_word_is_named(tmp_path: Path) -> None:
    report = convert(CountVectorizer().fit(["λόγος και"] * 2), tmp_path / "out.onnx", effort="quick")
    assert not report.ok
    assert any("Σ that ends a word" in note for note in report.notes)

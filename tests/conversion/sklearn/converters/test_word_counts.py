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

import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingRegressor
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
        TfidfVectorizer(stop_words=["the", "on"], ngram_range=(1, 3)),
        CountVectorizer(stop_words="english", ngram_range=(2, 2)),
        CountVectorizer(stop_words=["the"], vocabulary=["dog", "the"]),
    ],
)
def test_features_are_scikit_learns(steps: Any, tmp_path: Path) -> None:
    steps.fit(TEXTS)
    assert convert(steps, tmp_path / "out.onnx", effort="quick").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    texts = np.array([["dog dog dog cat"], ["a a a x"], [""], ["the the sat the on the mat dog the"]], dtype=object)
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


def test_trees_behind_words_decide_by_the_last_digit_of_their_shares(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    words = ["late", "bad", "great", "refund", "love"]
    notes = [" ".join(generator.choice(words, generator.integers(1, 8))) for _ in range(60)]
    notes += [" ".join([note] * 3) for note in notes]
    frame = pd.DataFrame({"note": notes})
    shares = ColumnTransformer([("words", TfidfVectorizer(), "note")], sparse_threshold=0)
    # A text said three times has the same shares but for their last digits, by which the trees tell it.
    columns = [np.unique(column, return_inverse=True) for column in shares.fit_transform(frame).T]
    values, ranks = min(columns, key=lambda found: np.diff(found[0]).min())
    assert np.diff(values).min() < 1e-15
    model = make_pipeline(shares, HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=1)).fit(frame, ranks % 2)
    assert convert(model, tmp_path / "out.onnx", effort="quick").ok
    runner = OnnxRunner.open(tmp_path / "out.onnx")
    found = next(iter(runner.run({"note": np.array(notes, object)[:, None]}).values()))
    np.testing.assert_allclose(found.ravel(), model.predict(frame), rtol=1e-5, atol=1e-6)

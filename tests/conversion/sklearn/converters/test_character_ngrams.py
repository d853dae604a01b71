"""Sequences of characters are counted as scikit-learn counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from onnxtool.errors import UnsupportedError
from tests.conversion.sklearn.converted_model import run_converted

TEXTS = ["the cat sat  on the mat", "a dog\nate a cat!", "Größe, naïve café", "x y z", "I love\tdogs"]
NEW = np.array(
    [" The  cat ", "", "dog dog dog", "x", "ca\u00a0\u2003t", "\x0b\x0ba\x85a", "naïve \n GRÖSSE", "a", "  "], object
)


@pytest.mark.parametrize("analyzer", ["char", "char_wb"])
@pytest.mark.parametrize(
    "options",
    [
        {"ngram_range": (1, 1)},
        {"ngram_range": (1, 3)},
        {"ngram_range": (2, 4)},
        {"ngram_range": (5, 6)},
        {"ngram_range": (1, 2), "binary": True, "lowercase": False},
        {"ngram_range": (2, 2), "vocabulary": ["at", "zz", "t ", "a", " ca", "t  a", "ghost "]},
    ],
    ids=["1", "1-3", "2-4", "longer than most words", "binary", "a vocabulary from elsewhere"],
)
def test_counts_are_scikit_learns(analyzer: str, options: dict[str, Any], tmp_path: Path) -> None:
    vectorizer = CountVectorizer(analyzer=analyzer, **options).fit(TEXTS)
    (found,) = run_converted(vectorizer, tmp_path, NEW)
    np.testing.assert_array_equal(found, vectorizer.transform(NEW).toarray())


@pytest.mark.parametrize("analyzer", ["char", "char_wb"])
def test_weighted_counts_are_proven(analyzer: str, tmp_path: Path) -> None:
    vectorizer = TfidfVectorizer(analyzer=analyzer, ngram_range=(1, 2), sublinear_tf=True).fit(TEXTS)
    (found,) = run_converted(vectorizer, tmp_path, NEW, prove=True)
    np.testing.assert_allclose(found, vectorizer.transform(NEW).toarray(), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"strip_accents": "unicode"}, "strip_accents"), ({"preprocessor": str.lower}, "preprocessor")],
)
def test_what_has_no_form_is_refused_by_its_name(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    vectorizer = CountVectorizer(analyzer="char", **options).fit(TEXTS)
    with pytest.raises(UnsupportedError, match=reason):
        run_converted(vectorizer, tmp_path, NEW)

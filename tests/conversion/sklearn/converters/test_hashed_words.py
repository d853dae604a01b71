"""Words fall into the columns, and with the signs, that scikit-learn's hash gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")
from sklearn.feature_extraction.text import HashingVectorizer

from onnxtool.errors import UnsupportedError
from tests.conversion.sklearn.converted_model import run_converted

NUMBERED = " ".join(map(str, range(99)))
TEXTS = np.array(
    ["the cat sat on the mat", "", "Größe, naïve café", "x yy", "слово и 日本 слово", "the the", NUMBERED], object
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": None, "alternate_sign": False},
        {"norm": "l1"},
        {"ngram_range": (1, 2)},
        {"ngram_range": (2, 3), "norm": None},
        {"binary": True, "norm": None},
        {"stop_words": ["the", "und"], "norm": None},
        {"stop_words": ["cat", "on"], "ngram_range": (2, 3), "norm": None},
        {"analyzer": "char", "ngram_range": (2, 3), "lowercase": False},
        {"token_pattern": r"(?u)\b\w+\b"},
    ],
    ids=lambda o: ",".join(o) or "usual",
)
def test_columns_are_scikit_learns(options: dict[str, Any], tmp_path: Path) -> None:
    vectorizer = HashingVectorizer(n_features=16, **options)
    (found,) = run_converted(vectorizer, tmp_path, TEXTS)
    np.testing.assert_allclose(found, vectorizer.transform(TEXTS).toarray(), rtol=1e-5, atol=1e-6)


def test_the_proof_holds(tmp_path: Path) -> None:
    run_converted(HashingVectorizer(n_features=64), tmp_path, TEXTS, prove=True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"n_features": 2**20}, "n_features=262144 or less"),
        ({"analyzer": "char_wb"}, "char_wb"),
    ],
)
def test_what_has_no_form_is_refused_with_the_reason(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        run_converted(HashingVectorizer(**options), tmp_path, TEXTS)

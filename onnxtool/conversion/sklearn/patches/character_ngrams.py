"""Vectorizers of characters, and of words without stop words.

Source: scikit-learn, `sklearn.feature_extraction.text._VectorizerMixin`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import FLOAT, STRING, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension
from onnxtool.conversion.sklearn.converters.text_tokens import (
    characters,
    needs_opset,
    padded_words,
    texts_of,
    without,
    word_counts,
)

_NONE = "\x00\x00"  # one token is one character, so none is this


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    vectorizer = write.step
    if vectorizer.analyzer not in ("char", "char_wb"):
        original()
        _leave_out_stop_words(write)
        return
    needs_opset(write)
    texts = texts_of(write)
    inside_words = vectorizer.analyzer == "char_wb"
    cut = padded_words(write, texts) if inside_words else characters(write, texts)
    grams = {gram: column for gram, column in vectorizer.vocabulary_.items() if _counted(vectorizer, gram)}
    single = grams.pop(" ", None) if inside_words else None
    width = max(vectorizer.vocabulary_.values()) + 1
    counts = write.add_of("", 9, "TfIdfVectorizer", cut, **_pool(grams, width))
    if single is not None:  # every word has one on either side
        twice = np.zeros((1, width), np.float32)
        twice[0, single] = 2
        counts = write.add("Add", counts, write.add("MatMul", word_counts(write, texts), twice))
    if vectorizer.binary:
        counts = write.cast(write.add("Less", np.zeros(1, np.float32), counts), FLOAT)
    write.give(counts)


def _leave_out_stop_words(write: NodeWriter) -> None:
    """Sequences of words, as skl2onnx wrote them, skip stop words: what stands around one are neighbours."""
    vectorizer = write.step
    stopped = frozenset(vectorizer.get_stop_words() or ())
    if stopped and (vectorizer.ngram_range[1] > 1 or stopped & vectorizer.vocabulary_.keys()):
        counted = next(node for node in reversed(write.container.nodes) if node.op_type == "TfIdfVectorizer")
        counted.input[0] = without(write, write.cast(counted.input[0], STRING), stopped)


def _counted(vectorizer: Estimator, gram: str) -> bool:
    """Whether a vectorizer ever finds it: a vocabulary may come from elsewhere."""
    least, most = vectorizer.ngram_range
    if vectorizer.analyzer == "char":
        return bool(least <= len(gram) <= most)
    if "  " in gram or not gram.strip(" "):
        return gram == " " and least == 1
    if " " in gram[1:-1]:
        return False
    whole = gram[0] == gram[-1] == " "  # a word that is shorter than the least is counted once
    return bool(least <= len(gram) <= most or (whole and len(gram) < least))


def _pool(grams: Mapping[str, int], width: int) -> dict[str, Any]:
    """The attributes of TfIdfVectorizer that say which sequences of characters are counted in which column."""
    found = sorted(((list(gram), column) for gram, column in grams.items()), key=lambda pair: len(pair[0]))
    if width - 1 not in grams.values():
        found.append(([_NONE] * max(len(found[-1][0]) if found else 1, 1), width - 1))
    sizes = [len(gram) for gram, _ in found]
    starts = [sum(size for size in sizes if size < number) for number in range(1, max(sizes) + 1)]
    return {
        "mode": "TF",
        "min_gram_length": min(sizes),
        "max_gram_length": max(sizes),
        "max_skip_count": 0,
        "ngram_counts": starts,
        "ngram_indexes": [column for _, column in found],
        "pool_strings": [character.encode() for gram, _ in found for character in gram],
    }


PATCH = converter_patch(
    "1.21",
    'skl2onnx 1.20 has vectorizers of characters wrong (analyzer="char") or refuses them ("char_wb"), and counts '
    "sequences of words with the stop words in them",
    extension("sklearn.feature_extraction.text:CountVectorizer", _convert),
)

"""HashingVectorizer, by the same hash of ONNX Runtime.

Source: scikit-learn, `sklearn.feature_extraction._hashing_fast`: MurmurHash3 (32 bits, seed 0) of the token in UTF-8;
its size is the column, its sign the sign.
"""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import FLOAT, INT64, NodeWriter, Operand
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.conversion.sklearn.converters.text_tokens import (
    characters,
    is_token,
    needs_opset,
    texts_of,
    tokens,
    without,
)
from onnxtool.conversion.sklearn.prepare import plain_pattern
from onnxtool.errors import UnsupportedError

MOST_FEATURES = 2**18  # in ONNX all of them are there in every row: a megabyte


def _convert(write: NodeWriter) -> None:
    vectorizer = write.step
    _refuse(vectorizer)
    needs_opset(write)
    texts = texts_of(write)
    words = vectorizer.analyzer == "word"
    cut = tokens(write, texts, plain_pattern(vectorizer.token_pattern)) if words else characters(write, texts)
    if words and (stopped := vectorizer.get_stop_words()):
        cut = without(write, cut, stopped)
    there = is_token(write, cut)
    least, most = vectorizer.ngram_range
    columns, signs = [], []
    for count in range(least, most + 1):
        column, sign = _hashed(
            write, vectorizer, _grams(write, cut, count, " " if words else ""), _from(write, there, count - 1)
        )
        columns.append(column)
        signs.append(sign)
    places, values = write.columns(columns), write.columns(signs)
    rows = write.add("Concat", write.add("Shape", texts), np.array([vectorizer.n_features]), axis=0)
    nothing = write.add("Expand", np.zeros((1, 1), np.float32), rows)
    if vectorizer.binary:  # where words of both signs add up to zero, scikit-learn has a one as well
        values = write.add("Abs", values)
    summed = write.add_of("", 18, "ScatterElements", nothing, places, values, axis=1, reduction="add")
    if vectorizer.binary:
        summed = write.cast(write.add("Less", np.zeros(1, np.float32), summed), FLOAT)
    write.give(_normed(write, summed, vectorizer.norm))


def _refuse(vectorizer: Estimator) -> None:
    if vectorizer.analyzer not in ("word", "char"):
        raise UnsupportedError(f"HashingVectorizer: analyzer={vectorizer.analyzer!r} has no ONNX form here.")
    if vectorizer.n_features > MOST_FEATURES:
        raise UnsupportedError(
            f"HashingVectorizer: its ONNX form has all of its {vectorizer.n_features:,} columns in every row. Fit the "
            f"model with n_features={MOST_FEATURES} or less."
        )


def _from(write: NodeWriter, value: str, first: int, last: int | None = None) -> str:
    """Columns of a matrix; `last` counts from the end."""
    if first == 0 and last is None:
        return value
    ends = np.array([np.iinfo(np.int64).max if last is None else last])
    return write.add("Slice", value, np.array([first]), ends, np.array([1]))


def _grams(write: NodeWriter, cut: str, count: int, between: str) -> str:
    """[rows, tokens - count + 1]: each `count` tokens that follow one another, as one text."""
    parts = [_from(write, cut, place, place - count + 1 or None) for place in range(count)]
    whole = parts[0]
    for part in parts[1:]:
        if between:
            whole = write.add_of("", 20, "StringConcat", whole, np.array([between]))
        whole = write.add_of("", 20, "StringConcat", whole, part)
    return whole


def _hashed(write: NodeWriter, vectorizer: Estimator, grams: str, there: str) -> tuple[str, str]:
    """The column of each text, and what it adds there: 1 or -1, or 0 behind the end."""
    number = write.cast(write.add_of("com.microsoft", 1, "MurmurHash3", grams, seed=0, positive=0), INT64)
    column = write.add("Mod", write.add("Abs", number), np.array([vectorizer.n_features]))
    zero, one, minus = (np.array([v], np.float32) for v in (0, 1, -1))
    sign: Operand = one
    if vectorizer.alternate_sign:
        sign = write.add("Where", write.add("Less", number, np.array([0])), minus, one)
    return column, write.add("Where", there, sign, zero)


def _normed(write: NodeWriter, value: str, norm: str | None) -> str:
    if norm is None:
        return value
    sized = write.add("Abs", value) if norm == "l1" else write.add("Mul", value, value)
    length = write.add("ReduceSum", sized, np.array([1]), keepdims=1)
    length = length if norm == "l1" else write.add("Sqrt", length)
    empty = write.add("Equal", length, np.zeros(1, np.float32))
    return write.add("Div", value, write.add("Where", empty, np.ones(1, np.float32), length))


PATCH = converter_patch(
    "",
    "skl2onnx 1.20 has no converter for it",
    transformer("sklearn.feature_extraction.text:HashingVectorizer", _convert, lambda step: int(step.n_features)),
)

"""Texts cut into words or characters in ONNX, as scikit-learn's vectorizers cut them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import BOOL, STRING, NodeWriter
from onnxtool.errors import UnsupportedError

# What Python's \s takes for white space; the \s of the runtime's patterns (RE2) is ASCII, without the vertical tab.
_SPACES = r"[\s\x0b\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]"
_CONTRIB = "com.microsoft"
PAD = ""  # after the tokens of a text that has fewer than another; no token is empty


def texts_of(write: NodeWriter) -> str:
    """[rows]: the texts that a vectorizer is given, in lower case where the vectorizer wants that.

    Raises:
        UnsupportedError: a function of the user's, or accents to be removed.
    """
    vectorizer = write.step
    for option in ("preprocessor", "tokenizer", "strip_accents"):
        if getattr(vectorizer, option) is not None:
            raise UnsupportedError(f"{type(vectorizer).__name__}: {option} has no ONNX form.")
    flat = write.add("Reshape", write.inputs[0].full_name, np.array([-1]))
    if not vectorizer.lowercase:
        return flat
    return write.add_of("", 10, "StringNormalizer", flat, case_change_action="LOWER", is_case_sensitive=1)


def tokens(write: NodeWriter, texts: str, pattern: str) -> str:
    """[rows, most tokens]: what a pattern of RE2 finds, with `PAD` behind it.

    Args:
        write: adds nodes.
        texts: [rows].
        pattern: \\w and \\d mean those of all scripts.
    """
    options: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": PAD, "tokenexp": pattern}
    # Shape inference of onnx 1.23 ends the process on operators for texts whose input has no known type.
    found = write.cast(write.add_of(_CONTRIB, 1, "Tokenizer", texts, **options), STRING)
    return write.add("Reshape", found, np.array([0, -1]))


def characters(write: NodeWriter, texts: str) -> str:
    """[rows, most characters], with one space for white space of two characters or more."""
    cut = tokens(write, texts, f"(?s){_SPACES}{{2,}}|.")
    return _with_spaces(write, cut, f"{_SPACES}{{2,}}")


def padded_words(write: NodeWriter, texts: str) -> str:
    """[rows, most characters and two]: characters, with a space for any white space, at both ends and behind them."""
    spaced = _with_spaces(write, tokens(write, texts, f"(?s){_SPACES}+|."), f"{_SPACES}*")
    edge = write.add("Expand", np.array([[" "]]), _column(write, texts))
    return write.add("Concat", edge, spaced, edge, axis=1)


def word_counts(write: NodeWriter, texts: str) -> str:
    """[rows, 1]: how many words there are between white space, as float32."""
    words = tokens(write, texts, _SPACES.replace("[", "[^", 1) + "+")
    there = write.cast(is_token(write, words), 1)
    return write.add("ReduceSum", there, np.array([1]), keepdims=1)


def without(write: NodeWriter, cut: str, words: Collection[str]) -> str:
    """[rows, most tokens]: tokens without some words; what follows them moves up, and `PAD` stands behind the rest."""
    keys = [word.encode() for word in sorted(words)]
    left_out = write.looked_up(cut, keys_strings=keys, values_int64s=[1] * len(keys), default_int64=0)
    kept = write.add("Where", write.cast(left_out, BOOL), np.array([PAD]), cut)
    width = write.add("Slice", write.add("Shape", cut), np.array([1]), np.array([2]))
    # Of equal numbers the first in the row is the first: what is kept stays in its order.
    _, places = write.add_several(2, "TopK", left_out, width, axis=1, largest=0, sorted=1)
    return write.add("GatherElements", kept, places, axis=1)


def is_token(write: NodeWriter, cut: str) -> str:
    """Which of the tokens are none of those that were put behind the end."""
    return write.add("Not", write.add_of("", 19, "Equal", cut, np.array([PAD])))


def needs_opset(write: NodeWriter) -> None:
    """What is here takes operators of opset 20.

    Raises:
        UnsupportedError: an older one was asked for.
    """
    if write.container.target_opset < 20:
        name = type(write.step).__name__
        raise UnsupportedError(f"{name}: its ONNX form takes operators of opset 20; give --opset 20 or more.")


def _with_spaces(write: NodeWriter, cut: str, pattern: str) -> str:
    blank = write.add_of("", 20, "RegexFullMatch", cut, pattern=pattern)
    return write.add("Where", blank, np.array([[" "]]), cut)


def _column(write: NodeWriter, texts: str) -> str:
    return write.add("Concat", write.add("Shape", texts), np.array([1]), axis=0)

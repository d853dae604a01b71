"""Texts that a regular expression matches, and others that it nearly matches."""

from __future__ import annotations

import re
import string
import warnings
from collections.abc import Callable, Iterable, Sequence
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np

_LETTERS, _DIGITS = string.ascii_letters, string.digits
_CLASSES = {
    "DIGIT": _DIGITS, "WORD": _LETTERS + _DIGITS + "_", "SPACE": " \t", "NOT_DIGIT": _LETTERS, "NOT_WORD": " -.",
    "NOT_SPACE": _LETTERS + _DIGITS,
}  # fmt: skip
# Classes of RE2 that Python's expressions lack.
_NAMED = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "lower": "a-z", "upper": "A-Z", "space": r"\s",
    "punct": "!-/:-@", "xdigit": "0-9a-fA-F",
}  # fmt: skip
_PRINTABLE = _LETTERS + _DIGITS + string.punctuation + " "
_REPEATED = 3  # so many times more than it must be, something is repeated at most
_LONGEST = 200


def matching(pattern: str, generator: np.random.Generator, count: int) -> list[str]:
    """Texts that a pattern of RE2's syntax matches; none where it has parts that are not known here.

    Args:
        pattern: a regular expression.
        generator: of random numbers.
        count: how many texts.
    """
    for name, letters in _NAMED.items():
        pattern = pattern.replace(f"[:{name}:]", letters)
    try:
        with warnings.catch_warnings(action="ignore"):  # of sets that later versions may read otherwise
            tree = _parser.parse(pattern)
        return [_sample(tree, generator)[:_LONGEST] for _ in range(count)]
    except (ValueError, LookupError, re.error, RecursionError, OverflowError):
        return []


def nearly(texts: Sequence[str], generator: np.random.Generator) -> list[str]:
    """The same texts with something before or behind them, in other letters, or with one letter less or another one."""
    changes: tuple[Callable[[str, int], str], ...] = (
        lambda text, _: f"x{text}",
        lambda text, _: f"{text}x",
        lambda text, _: text.swapcase(),
        lambda text, at: text[:at] + text[at + 1 :],
        lambda text, at: f"{text[:at]}~{text[at + 1 :]}",
    )
    places = [int(generator.integers(0, max(1, len(text)))) for text in texts]
    return [changes[i % len(changes)](text, at) for i, (text, at) in enumerate(zip(texts, places, strict=True))]


def _sample(tree: Iterable[tuple[Any, Any]], generator: np.random.Generator) -> str:
    """One text.

    Raises:
        ValueError: a part is not known.
    """
    found = ""
    for operator, what in tree:
        kind = str(operator)
        if kind == "LITERAL":
            found += chr(what)
        elif kind in ("ANY", "NOT_LITERAL", "IN"):
            letters = _letters([(operator, what)] if kind != "IN" else what)
            found += letters[int(generator.integers(len(letters)))]
        elif kind == "BRANCH":
            found += _sample(what[1][int(generator.integers(len(what[1])))], generator)
        elif kind == "SUBPATTERN" and not what[1] and not what[2]:  # flags of a group are not known here
            found += _sample(what[3], generator)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least = min(int(what[0]), _LONGEST)
            for _ in range(int(generator.integers(least, min(int(what[1]), least + _REPEATED) + 1))):
                found += _sample(what[2], generator) if len(found) < _LONGEST else ""
        elif kind != "AT":
            raise ValueError(kind)
    return found


def _letters(parts: Iterable[tuple[Any, Any]]) -> str:
    """The letters of a set that can be printed."""
    found, negated = "", False
    for operator, what in parts:
        kind = str(operator)
        if kind == "RANGE":
            found += "".join(map(chr, range(what[0], min(what[1], what[0] + 255) + 1)))
        elif kind == "CATEGORY":
            found += _CLASSES[str(what).removeprefix("CATEGORY_")]
        elif kind in ("LITERAL", "NOT_LITERAL"):
            found += chr(what)
        negated |= kind in ("NEGATE", "NOT_LITERAL", "ANY")
    found = "".join(c for c in _PRINTABLE if c not in found) if negated else found
    if not found:
        raise ValueError(parts)
    return found

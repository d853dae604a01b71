"""Texts at which two models may part: words that the graphs know, others, joined ones, numbers written out."""

from __future__ import annotations

import re
import string
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.trial import Changed
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds

_TEXTS = (
    ("unknown words", ("zzyzx", "qqq", "unseen", "Xylograph")),
    ("empty texts", ("", " ", "  ")),
    ("capitals and punctuation", ("ALPHA", "Alpha, beta!", "a-b", "it's")),
    ("accents", ("café", "naïve", "Ünïcödé", "Ελλάδα")),
    ("emoji", ("🙂", "👍🏽 ok", "日本語")),
)
_PARTS = ("alpha", "b", "", "12", "delta")  # of what is cut at a delimiter
_SAMPLES = 8  # texts of a pattern, at least
_MOST_PARTS, _KNOWN_PARTS = 9, 5
_MOST_CHANGED = 40  # known words of which others are made


def text_values(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """Words of all kinds; those that the graph knows each at least once, as far as they fit into a few runs."""
    own = [s for s in specs if s.dtype == "string"]
    joined = [dict(words) for words in facts.joined]
    whole = [dict.fromkeys((s.name for s in own), word) for word in facts.texts]
    changed = nearly([w for word in facts.texts[:_MOST_CHANGED] for w in [word] * len(_CHANGES)], generator)
    others = [dict.fromkeys((s.name for s in own), word) for word in changed]
    for label, known in (
        ("words that make known ones", joined), ("known words", whole), ("words next to known ones", others),
    ):  # fmt: skip
        words = generator.permutation(np.array(known, dtype=object)) if own else ()
        rows = max(1, np.size(feeds[own[0].name])) if own else 1
        for turn, place in enumerate(range(0, min(len(words), 16 * rows), rows)):
            some = words[place : place + rows]
            made = {
                s.name: np.resize(np.array([w[s.name] for w in some if s.name in w], object), np.shape(feeds[s.name]))
                for s in own
                if any(s.name in w for w in some)
            }
            yield f"{label}{'' if turn == 0 else f', part {turn + 1}'}", TrialKind.TEXT, {**feeds, **made}
    for pattern in facts.patterns if own else ():
        texts = matching(pattern, generator, max(_SAMPLES, *(np.size(feeds[s.name]) for s in own)))
        for label, found in (("that match", texts), ("that nearly match", nearly(texts, generator))):
            drawn = np.array(found, dtype=object)
            if len(drawn):
                made = {s.name: np.resize(drawn, np.shape(feeds[s.name])) for s in own}
                yield f"texts {label} {pattern!r}", TrialKind.TEXT, {**feeds, **made}
    for gap in facts.delimiters:
        made = {}
        for spec in own:
            shape = np.shape(feeds[spec.name])
            counts = generator.integers(0, _MOST_PARTS, size=int(np.prod(shape)))
            words = np.array([*facts.texts[:_KNOWN_PARTS], *_PARTS], dtype=object)
            texts = [gap.join(generator.choice(words, count)) for count in counts.tolist()]
            made[spec.name] = np.array(texts, dtype=object).reshape(shape)
        if made:
            yield f"texts of several parts with {gap!r} between", TrialKind.TEXT, {**feeds, **made}
    for label, drawn_from in _TEXTS if own else ():
        made = {}
        for spec in own:
            old = np.asarray(feeds[spec.name], dtype=object)
            drawn = generator.choice(np.array(drawn_from, dtype=object), np.shape(old))
            made[spec.name] = np.where(generator.random(np.shape(old)) < 0.7, drawn, old)
        yield label, TrialKind.TEXT, {**feeds, **made}


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


_CHANGES: tuple[Callable[[str, int], str], ...] = (
    lambda text, _: f"x{text}",
    lambda text, _: f"{text}x",
    lambda text, _: text.swapcase(),
    lambda text, at: text[:at] + text[at + 1 :],
    lambda text, at: f"{text[:at]}~{text[at + 1 :]}",
    lambda text, _: f"{text} ",
)


def nearly(texts: Sequence[str], generator: np.random.Generator) -> list[str]:
    """The same texts with something before or behind them, in other letters, or with one letter less or another one."""
    places = [int(generator.integers(0, max(1, len(text)))) for text in texts]
    return [_CHANGES[i % len(_CHANGES)](text, at) for i, (text, at) in enumerate(zip(texts, places, strict=True))]


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

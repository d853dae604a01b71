"""Texts that a regular expression matches, and others that it nearly matches."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

import numpy as np

Sample = Callable[[np.random.Generator], str]
_LETTERS, _DIGITS = string.ascii_letters, string.digits
_CLASSES = {"d": _DIGITS, "w": _LETTERS + _DIGITS + "_", "s": " \t", "D": _LETTERS, "W": " -.", "S": _LETTERS + _DIGITS}
_NAMED = {
    "alpha": _LETTERS, "digit": _DIGITS, "alnum": _LETTERS + _DIGITS, "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase, "space": " \t", "punct": string.punctuation, "xdigit": string.hexdigits,
}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_PRINTABLE = _LETTERS + _DIGITS + string.punctuation + " "
_NOWHERE = "bBAzZ"  # escapes that stand for a place and no letter
_REPEATED = 3  # so many times more than it must be, something is repeated at most
_LONGEST, _DEEPEST = 200, 20


def matching(pattern: str, generator: np.random.Generator, count: int) -> list[str]:
    """Texts that a pattern of RE2's syntax matches; none where it has parts that are not known here.

    Args:
        pattern: a regular expression.
        generator: of random numbers.
        count: how many texts.
    """
    try:
        sample = _Reader(pattern).whole()
    except (ValueError, IndexError, KeyError):
        return []
    return [sample(generator)[:_LONGEST] for _ in range(count)]


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


class _Reader:
    """Reads a pattern into what draws texts that it matches. An error where it cannot."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at, self._depth = pattern, 0, 0

    def whole(self) -> Sample:
        made = self._alternatives()
        if self._at < len(self._text):
            raise ValueError(self._text)
        return made

    @property
    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, token: str) -> bool:
        found = self._text.startswith(token, self._at)
        self._at += len(token) * found
        return found

    def _alternatives(self) -> Sample:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError(self._text)
        branches = [self._sequence()]
        while self._takes("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return lambda generator: branches[int(generator.integers(len(branches)))](generator)

    def _sequence(self) -> Sample:
        parts: list[Sample] = []
        while self._next not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return lambda generator: "".join(part(generator) for part in parts)

    def _repeated(self, part: Sample) -> Sample:
        least, most = 1, 1
        if self._takes("*"):
            least, most = 0, _REPEATED
        elif self._takes("+"):
            least, most = 1, 1 + _REPEATED
        elif self._takes("?"):
            least, most = 0, 1
        elif self._takes("{"):
            low, comma, high = self._until("}").partition(",")
            least = min(int(low or 0), _LONGEST)
            most = min(int(high), least + _REPEATED) if high else least + _REPEATED * bool(comma)
        if (least, most) != (1, 1):
            self._takes("?")  # as few as possible, which makes no other texts
        return lambda generator: "".join(part(generator) for _ in range(int(generator.integers(least, most + 1))))

    def _until(self, end: str) -> str:
        stop = self._text.index(end, self._at)
        found, self._at = self._text[self._at : stop], stop + len(end)
        return found

    def _atom(self) -> Sample:
        letter = self._take()
        if letter == "(":
            if self._takes("?P<"):
                self._until(">")
            elif self._takes("?") and not self._takes(":"):
                flags = self._until(")")  # for what follows; those of a group are not known here
                if not flags.isalpha():
                    raise ValueError(self._text)
                return lambda _: ""
            inner = self._alternatives()
            if not self._takes(")"):
                raise ValueError(self._text)
            return inner
        if letter in "^$":
            return lambda _: ""
        if letter == ".":
            return _one_of(_PRINTABLE)
        if letter == "[":
            return _one_of(self._class())
        if letter == "\\":
            escaped = self._escape()
            return _one_of(escaped) if escaped else lambda _: ""
        if letter in "*+?{":
            raise ValueError(self._text)
        return lambda _: letter

    def _escape(self) -> str:
        letter = self._take()
        if letter in _NOWHERE:
            return ""
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter.isalnum() and letter not in _ESCAPES:
            raise ValueError(self._text)
        return _ESCAPES.get(letter, letter)

    def _class(self) -> str:
        negated = self._takes("^")
        found = self._take() if self._next == "]" else ""
        while not self._takes("]"):
            if self._takes("[:"):
                found += _NAMED[self._until(":]")]
                continue
            letter = self._take()
            if letter == "\\":
                found += self._escape()
                continue
            if self._next == "-" and self._text[self._at + 1] != "]":
                self._take()
                last = self._take()
                found += "".join(map(chr, range(ord(letter), min(ord(last), ord(letter) + 255) + 1)))
                continue
            found += letter
        return "".join(c for c in _PRINTABLE if c not in found) if negated else found


def _one_of(letters: str) -> Sample:
    if not letters:
        raise ValueError(letters)
    return lambda generator: letters[int(generator.integers(len(letters)))]

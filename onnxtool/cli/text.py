"""Text from files made safe for a terminal, and numbers made readable."""

from __future__ import annotations

import math
import unicodedata

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(text: object, limit: int = 200) -> str:
    """Neutralise control characters and escape sequences, and cut to a sane length.

    Names, metadata and error texts come from files of strangers: a tensor called "\\x1b[2J" must not reach the
    terminal as such. Direction overrides and other invisible characters are shown as escapes too.
    """
    shown = str(text)
    cut = len(shown) > limit
    safe = "".join(c if unicodedata.category(c) not in _UNSAFE else _escape(c) for c in shown[:limit])
    return safe + ("…" if cut else "")


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def size(count: float) -> str:
    """Bytes for people: "1.6 MB" (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def cosine(value: float, digits: int = 5) -> str:
    """A cosine similarity, never rounded to 1 where it is less: "0.99312", "1 - 2.1e-07", "1.00000"."""
    if 0 < 1 - value < 0.5 * 10**-digits:
        return f"1 - {1 - value:.1e}"
    return f"{value:.{digits}f}"


def plural(number: int, noun: str, several: str = "") -> str:
    """A count with its noun: "1 core", "2 cores"; `several` where that is not the noun with an s."""
    return f"{number} {noun if number == 1 else several or noun + 's'}"


def count(number: float) -> str:
    """Counts for people: "122 k", "25.6 M"."""
    for unit in ("", " k", " M", " G", " T"):
        if abs(number) < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} P"


def duration(seconds: float) -> str:
    """Seconds for people: "0.42 ms", "1.3 s"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s"


def number(value: float) -> str:
    """A measurement for people: "1.2e-06", "0.98", "inf", "-"."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:.3g}"


def interval(value: float | None, low: float | None, high: float | None, digits: int = 2) -> str:
    """A ratio with its 95 % interval: "0.59 [0.57, 0.61]"; empty where there is none."""
    if value is None or low is None or high is None:
        return ""
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

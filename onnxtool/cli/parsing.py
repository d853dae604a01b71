"""Options that hold numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxtool.equality.rule.tolerance import Tolerance


def whole_numbers(option: str, text: str | None) -> tuple[int, ...]:
    """Parse "1,8" into (1, 8), each once; None is none.

    Raises:
        UsageError: something that is not a whole number from 1 up.
    """
    from onnxtool.errors import UsageError

    if text is None:
        return ()
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isascii() and p.isdigit() and 0 < int(p) < 1 << 20 for p in parts):
        raise UsageError(f"{option} {text}: write whole numbers from 1 up, with commas between them.")
    return tuple(dict.fromkeys(int(p) for p in parts))


def percentage(option: str, text: str) -> float:
    """Parse "5%" or "5" into 0.05.

    Raises:
        UsageError: no number from 0 up.
    """
    from onnxtool.errors import UsageError

    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{option} {text}: write a percentage, such as 5%.")
    return value / 100


def share(option: str, text: str | None) -> float | None:
    """Parse "0.01" or "1%" into 0.01; None is none.

    Raises:
        UsageError: no share from 0 to 1.
    """
    from onnxtool.errors import UsageError

    if text is None:
        return None
    plain = text.strip()
    try:
        value = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"{option} {text}: write a share from 0 to 1, such as 0.01, or a percentage, such as 1%.")
    return value


def parse_tolerances(texts: Sequence[str]) -> dict[str, Tolerance]:
    """Parse "NAME:rtol,atol" into a tolerance for each output.

    Raises:
        UsageError: another form.
    """
    from onnxtool.equality.rule.tolerance import Tolerance
    from onnxtool.errors import UsageError

    found = {}
    for text in texts:
        name, separator, numbers = text.rpartition(":")
        try:
            rtol, atol = (float(n) for n in numbers.split(","))
        except ValueError:
            rtol = atol = -1.0
        if not separator or not name or not (rtol >= 0 and atol >= 0):
            raise UsageError(f"--tolerance {text}: write NAME:rtol,atol, such as logits:1e-2,1e-4.")
        found[name] = Tolerance(rtol, atol, absolute=True)
    return found


def byte_count(option: str, text: str | None) -> int | None:
    """Parse "64MB", "1.5 GB" or plain bytes into a number of bytes (1 kB is 1000 bytes); None is none.

    Raises:
        UsageError: not such a size.
    """
    from onnxtool.model.byte_sizes import parse_bytes

    return None if text is None else parse_bytes(text, f"{option} {text}")

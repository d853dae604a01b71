"""Who may ask a server, and how often."""

from __future__ import annotations

import hmac
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path

from onnxtool.errors import InputError
from onnxtool.serving.faults import HttpError

_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)")
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_BURST = 1.0  # requests of so many seconds may come at once


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens of a file, one a line, each with its rate behind it or without; lines that begin with # are comments.

    Raises:
        InputError: cannot be read, or holds none.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise InputError(f"{path}: holds no token; write one a line.")
    return tokens


class Token:
    """A token, and the time by which the requests that it has sent would be over at its rate."""

    def __init__(self, text: str) -> None:
        """Take "TOKEN", or "TOKEN RATE" with a rate such as 10/s, 600/min or 1000/h.

        Raises:
            InputError: another rate.
        """
        token, _, rate = text.partition(" ")
        found = _RATE.fullmatch(rate.strip())
        if rate and (found is None or not float(found[1])):
            raise InputError(f"a token's rate must be such as 10/s, 600/min or 1000/h, not {rate.strip()[:40]!r}.")
        self.header = f"Bearer {token}".encode()
        self._interval = _UNITS[found[2]] / float(found[1]) if found else 0.0
        self._until = 0.0

    def take(self, now: float) -> float:
        """Take one request; the seconds until it may come, 0 when it may now.

        Source: the generic cell rate algorithm, ITU-T I.371.
        """
        until = max(self._until, now) + self._interval
        wait = until - now - max(_BURST, self._interval)
        if wait <= 0:
            self._until = until
        return max(wait, 0.0)


class TokenCheck:
    """Refuses requests without a token, and those of one that come too fast."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Take what `Token` takes; none for a server that asks for none."""
        self._tokens = [Token(text) for text in texts]

    def verify(self, given: bytes) -> None:
        """Hold the header Authorization of a request against the tokens.

        Raises:
            HttpError: 401 for no token, 429 for too many requests.
        """
        if not self._tokens:
            return
        # All are compared, each in constant time: how long it takes tells nothing.
        found = [token for token in self._tokens if hmac.compare_digest(given, token.header)]
        if not found:
            challenge = ((b"www-authenticate", b"Bearer"),)
            raise HttpError(401, "unauthorized", "the Authorization header has no valid token.", challenge)
        if wait := found[0].take(time.monotonic()):
            later = ((b"retry-after", str(math.ceil(wait)).encode()),)
            raise HttpError(429, "rate", "the requests of this token come too fast; try again.", later)

"""Who may ask a server, from which web pages, and how often.

A browser sends requests for any page, also to a server that only this machine reaches.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

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
        ahead = max(self._until - now, 0.0)  # the difference alone: sums with the clock's large number would round
        wait = ahead + self._interval - max(_BURST, self._interval)
        if wait <= 0:
            self._until = now + ahead + self._interval
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


_LOCAL = ("localhost", "127.0.0.1", "::1")


class OriginCheck:
    """Refuses requests of pages of other hosts, and of names that were made to lead to this machine (DNS rebinding)."""

    def __init__(self, host: str, allowed: Sequence[str]) -> None:
        """Take the names of this server.

        Args:
            host: that it is bound to. A local one is asked for by a local name or an address.
            allowed: further names; "*" for any.
        """
        self._allowed = {name.lower() for name in (*_LOCAL, host, *allowed)}
        self._any = "*" in allowed
        self._any_host = self._any or (host not in _LOCAL and not allowed)

    def verify(self, headers: Mapping[bytes, bytes]) -> None:
        """Hold the headers Host and Origin of a request against the names.

        Raises:
            HttpError: 403.
        """
        host = _name(f"//{headers.get(b'host', b'').decode('latin-1')}")
        if not self._any_host and host and not self._is_named(host) and not _is_address(host):
            raise HttpError(403, "host", f"the name {host[:100]!r} is not this server's; --allow-host adds it.")
        origin = headers.get(b"origin")
        if origin is None or self._any:
            return
        page = _name(origin.decode("latin-1"))
        if not page or (page != host and not self._is_named(page)):
            raise HttpError(403, "origin", f"pages of {page[:100] or 'unknown hosts'!r} may not ask; see --allow-host.")

    def _is_named(self, host: str) -> bool:
        return host in self._allowed


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return "?"


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

"""Which web pages may ask: a browser sends requests for any page, also to a server that only this machine reaches."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from onnxtool.serving.faults import HttpError

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
        if not self._any_host and host and not self._is_own(host):
            raise HttpError(403, "host", f"the name {host[:100]!r} is not this server's; --allow-host adds it.")
        origin = headers.get(b"origin")
        if origin is None or self._any:
            return
        page = _name(origin.decode("latin-1"))
        if not page or (page != host and not self._is_named(page)):
            raise HttpError(403, "origin", f"pages of {page[:100] or 'unknown hosts'!r} may not ask; see --allow-host.")

    def _is_own(self, host: str) -> bool:
        return self._is_named(host) or _is_address(host)

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

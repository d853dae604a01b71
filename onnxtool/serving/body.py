"""Reads the body of a request within limits of size, memory and time."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from onnxtool.options.serve import ServeLimits
from onnxtool.serving.faults import HttpError

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # by its header
Receive = Callable[[], Awaitable[dict[str, Any]]]


class ClientGoneError(Exception):
    """The client has closed the connection: nobody waits for an answer."""


class BodyReader:
    """Reads bodies; knows how many bytes are held by all requests together."""

    def __init__(self, limits: ServeLimits) -> None:
        self.limits = limits
        self.held = 0

    def hold(self, size: int) -> int:
        """Hold so many bytes until their `release`; gives them.

        Raises:
            HttpError: 503 too much is held already.
        """
        if self.held + size > self.limits.buffered_bytes:
            raise _too_much_held()
        self.held += size
        return size

    def release(self, size: int) -> None:
        """A body or an answer is no longer held."""
        self.held -= size

    async def read(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """The whole body; `release` its size when it is no longer needed.

        Raises:
            HttpError: 400 cut off, 408 too slow, 413 too large, 503 too much is held already.
            ClientGoneError: the client has gone.
        """
        limit = self.limits.request_bytes
        if int(headers.get(b"content-length", b"0")) > limit:  # a number, as the parser has seen to
            raise self._too_large()
        taken = 0
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    chunk = message.get("body", b"")
                    if chunk:
                        taken += len(chunk)
                        self.held += len(chunk)
                        if taken > limit:
                            raise self._too_large()
                        if self.held > self.limits.buffered_bytes:
                            raise _too_much_held()
                        chunks.append(chunk)
                    if not message.get("more_body", False):
                        break
            if scope.get("state", {}).get("cut"):
                raise HttpError(400, "bad_request", "the body ends before its declared length.")
        except TimeoutError:
            self.held -= taken
            raise HttpError(408, "slow_client", f"the body took longer than {self.limits.body_seconds:g} s.") from None
        except BaseException:
            self.held -= taken
            raise
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def expand(self, body: bytes) -> bytes:
        """What a body of gzip or deflate holds; `release` its size too.

        Raises:
            HttpError: 400 it is neither, 413 it holds more than a request may have, 503 too much is held already.
        """
        room = min(self.limits.request_bytes, self.limits.buffered_bytes - self.held)
        if room <= 0:
            raise _too_much_held()
        self.held += room  # all that may come, so that others that expand at the same time do not count on it
        size = 0
        try:
            found = await asyncio.to_thread(_expanded, body, room)
            if len(found) > room:
                raise self._too_large() if room == self.limits.request_bytes else _too_much_held()
            size = len(found)
            return found
        finally:
            self.held += size - room

    def _too_large(self) -> HttpError:
        return HttpError(413, "too_large", f"a request has at most {self.limits.request_bytes} bytes.")


def _expanded(body: bytes, most: int) -> bytes:
    """At most one byte more than `most` is expanded."""
    stream = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
    try:
        found = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise HttpError(400, "bad_request", "the body is neither gzip nor deflate.") from error
    if len(found) <= most and (not stream.eof or stream.unused_data):
        raise HttpError(400, "bad_request", "the compressed body is cut off, or goes on behind its end.")
    return found


def _too_much_held() -> HttpError:
    return HttpError(503, "overloaded", "too many large requests at a time.", ((b"retry-after", b"1"),))

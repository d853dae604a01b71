"""One connection: uvicorn's protocol with what it leaves open: slow headers, slow readers, half-closed sockets.

As of uvicorn 0.54 a client may take any time to send its headers, any size of them, and any time to read its answer; a
client that closes its sending side after the request gets no answer; and the body of a request that offers to go on in
HTTP/2, as those of Java's HttpClient do, is lost.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_MAX_HEADER_BYTES = 64 << 10
_TOO_LARGE = "the headers are larger than 64 KB."
_PROBE_SECONDS = 0.25


class Connection(HttpToolsProtocol):
    """Use `connection_class` for one with limits."""

    header_seconds = 10.0
    most_unfinished = 512
    # Connections that have sent no whole request yet, or none after their last answer; the oldest first.
    unfinished: ClassVar[dict[Connection, None]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there: its headers have so many seconds. Slow clients leave when there are too many of them."""
        super().connection_made(transport)
        self.unfinished[self] = None
        while len(self.unfinished) > self.most_unfinished:
            oldest = next(iter(self.unfinished))
            del self.unfinished[oldest]
            oldest.transport.abort()
        self._running: RequestResponseCycle | None = None  # `cycle` is the last one that was read
        self._header_bytes = self._line_bytes = 0
        self._in_headers = True
        self._look: asyncio.TimerHandle | None = None  # at how much of an answer its client has read
        self._resumed, self._state = 0, (0, 0)
        self._deadline: asyncio.TimerHandle | None = self.loop.call_later(self.header_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._end_deadline()
        if self._look is not None:
            self._look.cancel()
        self.unfinished.pop(self, None)
        self.pipeline.clear()  # requests behind the one that runs: nobody waits for their answers
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
            state = running.scope["state"]
            state["gone"] = True
            state.get("when_gone", lambda: None)()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request; headers are counted."""
        if self._in_headers:
            self._header_bytes += len(data)
            if self._deadline is None:  # the first bytes of a later request on this connection
                self._deadline = self.loop.call_later(self.header_seconds, self._too_slow)
        self._data = data
        super().data_received(data)
        if self._in_headers and self._header_bytes > _MAX_HEADER_BYTES and not self.transport.is_closing():
            self._refuse(431, _TOO_LARGE)

    def _unsupported_upgrade_warning(self) -> None:
        """A request has offered another protocol, and the parser has stopped behind its headers: it is read again
        without the offer, as RFC 9110 (7.8) lets a server ignore one.
        """
        error = sys.exception()
        if not self._is_offer or not isinstance(error, httptools.HttpParserUpgrade):
            return  # CONNECT, which has its answer
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            head += [name, b": ", value, b"\r\n"] if name != b"upgrade" else []
        self.parser = httptools.HttpRequestParser(self)
        self._header_bytes = self._line_bytes = 0
        self.data_received(b"".join([*head, b"\r\n", self._data[error.args[0] :]]))

    @property
    def _is_offer(self) -> bool:
        return self.parser.should_upgrade() and any(name == b"upgrade" for name, _ in self.headers)

    def on_headers_complete(self) -> None:
        """What follows is the body, which has limits of its own."""
        if self._is_offer:
            return
        self._in_headers, self._header_bytes, self._line_bytes = False, 0, 0
        self._end_deadline()
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the headers; one of a trailer, behind the body, is none: the request is answered without it."""
        if self._in_headers:
            self._line_bytes += len(name) + len(value)
            if self._line_bytes > _MAX_HEADER_BYTES:  # of lines that arrive at once, with what follows them
                raise ValueError(_TOO_LARGE)
            super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or not read to its end, is told as all else is."""
        if self._line_bytes > _MAX_HEADER_BYTES:
            self._refuse(431, _TOO_LARGE)
        else:
            self._refuse(400, msg.rstrip(".").lower())

    def on_message_complete(self) -> None:
        """What follows are the headers of the next request."""
        if self._is_offer:
            return
        super().on_message_complete()
        self._in_headers = True
        self.unfinished.pop(self, None)

    def on_response_complete(self) -> None:
        """It may stay for another request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self.unfinished[self] = None

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more; it may still read."""
        if self.cycle is None or self.cycle.response_complete:
            if self._header_bytes:
                self._refuse(400, "the request ends within its headers.")
                return True
            return False
        if self.cycle.more_body:
            self.cycle.scope["state"]["cut"] = True
            self.cycle.more_body = False
            self.cycle.message_event.set()
        self.cycle.keep_alive = False
        self.loop.call_later(_PROBE_SECONDS, self._probe)
        return True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if app is self.app:
            super()._start_asgi_task(cycle, app)
        else:  # uvicorn's own answer where there are too many
            self._refuse(503, "too many connections.")

    def _probe(self) -> None:
        """Find out whether a client that sends no more still reads: the system of one that has left answers an interim
        response with a reset, which the next one finds.
        """
        running = self._running
        if self.transport.is_closing() or running is None or running.response_started:
            return
        if running.scope["http_version"] == "1.1":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(_PROBE_SECONDS, self._probe)

    def pause_writing(self) -> None:
        """More is to be sent than its client has read so far."""
        super().pause_writing()
        if self._look is None:
            self._watch_reader()

    def resume_writing(self) -> None:
        """It has read most of it."""
        super().resume_writing()
        self._resumed += 1

    def timeout_keep_alive_handler(self) -> None:
        """Nothing has come since the last answer, which may not be read yet."""
        if not self._watch_reader():
            super().timeout_keep_alive_handler()

    def _watch_reader(self) -> bool:
        """Whether something is not read yet. A client that has read nothing of it since the last look is let go."""
        if self._look is not None:
            self._look.cancel()
        self._look, last = None, self._state
        unsent = self.transport.get_write_buffer_size()
        self._state = self._resumed, unsent
        if unsent and self._state == last:
            self.transport.abort()
        elif unsent and not self.transport.is_closing():
            self._look = self.loop.call_later(self.timeout_keep_alive, self._watch_reader)
        return bool(unsent)

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._header_bytes:
            self._refuse(408, "the headers took too long.")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        text = f'{{"error":"{message}"}}'.encode()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + text)
        self.transport.close()

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def connection_class(header_seconds: float, most_unfinished: int) -> Any:
    """A class of connections.

    Args:
        header_seconds: for the headers of a request.
        most_unfinished: connections that wait for their client at a time; then the one that has waited longest goes.
    """
    own = {"header_seconds": header_seconds, "most_unfinished": most_unfinished, "unfinished": {}}
    return type("Connection", (Connection,), own)

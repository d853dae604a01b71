"""The ASGI application: routes, authorization, and one place where errors become answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from onnxtool.options.serve import ServeOptions
from onnxtool.runtime.protocol_v2 import fast_json
from onnxtool.runtime.protocol_v2.tensors import HEADER_LENGTH
from onnxtool.serving.access import OriginCheck, TokenCheck
from onnxtool.serving.body import BodyReader, ClientGoneError, Receive
from onnxtool.serving.faults import HttpError, as_http, openai_error
from onnxtool.serving.telemetry import Log, Metrics, Tracing

Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
_JSON = (b"content-type", b"application/json")
_LINGER_SECONDS, _LINGER_BYTES = 1.0, 256 << 20
# Headers that are read, each of which has one value.
_SINGLE = frozenset(
    (b"host", b"origin", b"authorization", b"content-type", b"content-encoding", HEADER_LENGTH.lower().encode())
)
_PIECE = 1 << 20  # what waits for its client in the server at a time
_ONE_WRITE = 64 << 10  # parts that are together no larger are sent as one


@dataclass
class Answer:
    """What a route gives.

    Attributes:
        parts: of the body, sent one after the other.
        status: of HTTP.
        headers: without the length.
        stream: further parts as they come, for an answer of unknown length; takes what sends one.
    """

    parts: Sequence[bytes | memoryview]
    status: int = 200
    headers: Headers = (_JSON,)
    stream: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]] | None = None


def json_answer(value: Any, status: int = 200, headers: Headers = ()) -> Answer:
    """A JSON body."""
    return Answer([fast_json.dumps(value)], status, (_JSON, *headers))


@dataclass
class Request:
    """A request whose headers are there."""

    method: str
    path: tuple[str, ...]
    headers: Mapping[bytes, bytes]
    scope: Mapping[str, Any]
    receive: Receive
    bodies: BodyReader
    held: int = 0
    complete: bool = False  # all of the body has been read

    async def body(self) -> bytes:
        """The whole body, within the limits.

        Raises:
            HttpError: it is compressed in a way that is not known, or beyond a limit.
        """
        coding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if coding not in (b"", b"identity", b"gzip", b"deflate"):
            told = coding[:40].decode("latin-1")
            raise HttpError(
                415,
                "content_encoding",
                f"a body of Content-Encoding {told} is not supported; send gzip, deflate or none.",
            )
        found = await self.bodies.read(self.scope, self.headers, self.receive)
        self.held += len(found)
        self.complete = True
        if coding in (b"gzip", b"deflate"):
            found = await self.bodies.expand(found)
            self.held += len(found)
        return found

    def limit_json(self, size: int) -> None:
        """Raises HttpError for more bytes of JSON than a request may have."""
        if size > (most := self.bodies.limits.json_bytes):
            told = f"a request has at most {most} bytes of JSON; send tensors as raw bytes."
            raise HttpError(413, "too_large", told)

    def when_gone(self, call: Callable[[], object]) -> None:
        """Set what is called when the client closes its connection before its answer."""
        state = self.scope.get("state", {})
        state["when_gone"] = call
        if state.get("gone"):
            call()


Route = Callable[[Request], Awaitable[Answer]]


@dataclass
class State:
    """What routes and server share.

    Attributes:
        ready: models are loaded and the server does not drain.
        draining: SIGTERM has come: every answer closes its connection.
        served: answers given.
    """

    ready: bool = False
    draining: bool = False
    served: int = 0
    failed: int = 0


class App:
    """Finds the route of a request, and turns what it raises into an answer.

    Attributes:
        bodies: counts what all requests hold, over gRPC too.
        tokens: who may ask.
    """

    def __init__(self, options: ServeOptions, metrics: Metrics, log: Log, state: State) -> None:
        self._options, self._metrics, self._log, self.state = options, metrics, log, state
        self.bodies = BodyReader(options.limits)
        self._routes: list[tuple[tuple[str, ...], str, str, Route]] = []
        self.tokens = TokenCheck(options.tokens)
        self.tracing = Tracing(log)
        self._origins = OriginCheck(options.host, options.allow_host)

    def route(self, method: str, path: str, target: Route) -> None:
        """Add a route; a part {x} of the path stands for anything."""
        self._routes.append((tuple(path.strip("/").split("/")), method, path, target))

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        headers = dict(scope["headers"])
        path = tuple(scope["path"].strip("/").split("/"))
        request = Request(scope["method"], path, headers, scope, receive, self.bodies)
        name, status = "unknown", 0
        self._metrics.in_flight.inc()
        with self.tracing.request(headers) as end_span:
            try:
                name, answer = await self._answer(request)
                status = answer.status
                await self._send(answer, request, send)
            except ClientGoneError:
                status = 499  # as nginx calls it; nobody reads it
                self._fail("client_gone")
            finally:
                self.bodies.release(request.held)
                self._metrics.in_flight.dec()
                end_span(request.method, name, status)
                self.note_end(request.method, scope["path"][:500], name, status, time.perf_counter() - began)

    def note_end(self, method: str, path: str, route: str, status: int, seconds: float) -> None:
        """Count and log an answer."""
        self._metrics.request.labels(route, str(status)).observe(seconds)
        self.state.served += 1
        if self._options.access_log:
            self._log.event("request", method=method, path=path, status=status, seconds=round(seconds, 6))

    def note_fault(self, route: str, fault: HttpError, error: BaseException) -> None:
        """Count what a request has failed of, and log what is our own fault."""
        if fault.status == 500:
            self._log.event("error", "error", route=route, error=f"{type(error).__name__}: {error}"[:2000])
        self._fail(fault.kind)

    async def _answer(self, request: Request) -> tuple[str, Answer]:
        name = "unknown"
        try:
            name, target = self._find(request)
            _verify_headers(request.scope)
            if name not in ("/v2/health/live", "/v2/health/ready"):
                self._origins.verify(request.headers)
                self.tokens.verify(request.headers.get(b"authorization", b""))
            answer = await target(request)
            request.held += self.bodies.hold(sum(map(len, answer.parts)))
            return name, answer
        except (ClientGoneError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # native code may raise what is no Exception, as Rust's panics are
            # Without its frames, which hold the request, and here would be held by it.
            fault = as_http(error.with_traceback(None))
            self.note_fault(name, fault, error)
            told = openai_error(fault) if request.path[0] == "v1" else {"error": str(fault)}
            return name, json_answer(told, fault.status, fault.headers)

    def _find(self, request: Request) -> tuple[str, Route]:
        methods, asked = [], "GET" if request.method == "HEAD" else request.method  # uvicorn sends no body for HEAD
        for pattern, method, name, target in self._routes:
            if len(pattern) == len(request.path) and all(
                p == have or p.startswith("{") for p, have in zip(pattern, request.path, strict=True)
            ):
                if method == asked:
                    return name, target
                methods.append(method)
        if methods:
            raise HttpError(
                405, "method", f"this takes {', '.join(methods)}.", ((b"allow", ", ".join(methods).encode()),)
            )
        raise HttpError(404, "unknown_path", "no such path; GET /openapi.json lists them.")

    def _fail(self, kind: str) -> None:
        self.state.failed += 1
        self._metrics.errors.labels(kind).inc()

    async def _send(self, answer: Answer, request: Request, send: Send) -> None:
        headers = list(answer.headers)
        unread = answer.status >= 400 and request.method == "POST" and not request.complete
        if self.state.draining or unread:
            headers.append((b"connection", b"close"))
        if answer.stream is None:
            headers.append((b"content-length", str(sum(len(p) for p in answer.parts)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})

        async def write(part: bytes | memoryview, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": part, "more_body": more})

        small = sum(map(len, answer.parts)) <= _ONE_WRITE
        if small and answer.stream is None and not unread:
            await write(b"".join(answer.parts), more=False)
            return
        for part in answer.parts:
            for at in range(0, len(part), _PIECE):
                await write(part[at : at + _PIECE])
        if unread:
            await _discard(request.receive)
        if answer.stream is not None:
            with suppress(ConnectionError):
                await answer.stream(write)
        await write(b"", more=False)  # waits until the client has read what was written


def _verify_headers(scope: Mapping[str, Any]) -> None:
    """Hold headers against RFC 9112, where the parser does not.

    Raises:
        HttpError: 400 two of a header that has one value (a proxy may have looked at the other one), or no Host; 501 a
            coding of the body that is not undone here.
    """
    found = [name for name, _ in scope["headers"] if name in _SINGLE]
    if len(set(found)) < len(found):
        twice = next(name for name in found if found.count(name) > 1).decode()
        raise HttpError(400, "bad_request", f"the header {twice} is there twice.")
    if b"host" not in found and scope.get("http_version") == "1.1":
        raise HttpError(400, "bad_request", "HTTP/1.1 needs the header Host.")
    codings = [value for name, value in scope["headers"] if name == b"transfer-encoding"]
    if codings and codings[0].strip().lower() != b"chunked":
        raise HttpError(501, "transfer_encoding", "the only Transfer-Encoding here is chunked.")


async def _discard(receive: Receive) -> None:
    """Read on for a moment after an answer that came early: closing a socket with unread bytes resets it, and the
    client would lose the answer.
    """
    taken = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while taken < _LINGER_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
                taken += len(message.get("body", b""))

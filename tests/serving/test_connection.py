"""Clients that are slow, half-closed or broken get the right status, or are let go."""

from __future__ import annotations

import contextlib
import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from onnxtool.serving.connection import Connection
from tests.serving.conftest import Running

HEAD = b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\n"


def exchange(server: Running, *parts: bytes, half_close: bool = False) -> bytes:
    """Send parts on a raw socket; everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        for part in parts:
            connection.sendall(part)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        while chunk := connection.recv(65536):
            found += chunk
        return found


@pytest.mark.parametrize(
    ("request_", "half_close", "status"),
    [
        (HEAD + b"Content-Length: 50\r\n\r\nabc", False, b"408"),
        (HEAD + b"Content-Length: 50\r\n\r\nabc", True, b"400"),
        (HEAD + b"Content-Length: 2\r\n\r\n{}", True, b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", True, b"400"),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", True, b"200"),
        (b"GET /v2/health/live HT", True, b"400"),
        (b"\x16\x03\x01\x02\x00\x01", False, b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000, False, b"431"),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 65_000 + b"\r\n\r\n", True, b"200"),
        (b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", False, b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: yyyyyyyyyyyyyy\r\n" * 6_000 + b"\r\n", False, b"431"),
        (HEAD + b"Content-Length: 999999999999\r\n\r\n", False, b"413"),
        (HEAD + b"Content-Length: -1\r\n\r\n", False, b"400"),
        (b"GET /v2/health/live HTTP/1.1\r\n\r\n", True, b"400"),  # no Host
        (b"GET /v2/health/live HTTP/1.0\r\n\r\n", True, b"200"),
        (b"HEAD /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n", True, b"200"),
        (b"CONNECT /v2 HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n\r\n", True, b"405"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", True, b"501"),
        (HEAD + b"Host: localhost\r\nContent-Length: 2\r\n\r\n{}", True, b"400"),
        (
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nOrigin: http://a.b\r\n\r\n",
            True,
            b"400",
        ),
    ],
)
def test_gets_the_right_status(server: Running, request_: bytes, half_close: bool, status: bytes) -> None:
    answer = exchange(server, request_, half_close=half_close)
    assert answer.split(b" ", 2)[1] == status, answer[:300]


def test_what_is_no_http_is_told_in_the_protocols_form(server: Running) -> None:
    for sent in (b"\x16\x03\x01\x02\x00\x01", HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n"):
        head, _, body = exchange(server, sent).partition(b"\r\n\r\n")
        assert b"application/json" in head and isinstance(json.loads(body)["error"], str)


@pytest.mark.parametrize("size", [100, 200_000])
def test_the_body_behind_an_offer_of_http_2_is_read(server: Running, size: int) -> None:
    """Java's HttpClient offers to go on in HTTP/2 with every request."""
    body = b'{"inputs": "none"}'.ljust(size)
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    request_ = HEAD + offer + b"Content-Length: %d\r\n\r\n" % size + body
    answer = exchange(server, request_ + request_, half_close=True)
    assert answer.count(b"the request has no list 'inputs'") == 2, answer[:500]


def test_a_chunked_body_has_the_same_limit(server: Running) -> None:
    chunk = b"ffff\r\n" + b" " * 0xFFFF + b"\r\n"
    answer = exchange(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 4)
    assert answer.split(b" ", 2)[1] == b"413"


def test_a_connection_without_a_request_is_let_go(server: Running) -> None:
    assert exchange(server, half_close=True) == b""


def test_what_is_left_of_a_refused_body_is_not_the_next_request(server: Running) -> None:
    smuggled = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(smuggled)
    answer = exchange(server, head, smuggled)
    assert answer.count(b"HTTP/1.1") == 1 and answer.startswith(b"HTTP/1.1 404")


def test_slow_clients_in_great_number_keep_nobody_out(server: Running) -> None:
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(700)]
    try:
        for connection in silent:
            with contextlib.suppress(ConnectionError):  # the first ones have been let go
                connection.sendall(b"POST /v2/models/digits/infer HTT")
        for _ in range(3):
            assert server.client().request("GET", "/v2/health/ready")[0] == 200
        assert silent[0].recv(1) == b""  # the oldest has gone, the newest is still waited for
        silent[-1].sendall(b"P/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
        assert silent[-1].recv(12) == b"HTTP/1.1 400"
    finally:
        for connection in silent:
            connection.close()


def test_a_client_that_reads_nothing_of_an_answer_is_let_go() -> None:
    """One that reads slowly stays: how much is not sent yet may be the same at two looks."""
    looks, ended = list[Any](), list[bool]()

    def later(_: float, look: Any) -> Any:
        looks.append(look)
        return SimpleNamespace(cancel=lambda: None)

    connection = object.__new__(Connection)
    connection._look, connection._resumed, connection._state = None, 0, (0, 0)
    connection.flow = SimpleNamespace(pause_writing=lambda: None, resume_writing=lambda: None)  # type: ignore[assignment]
    connection.loop, connection.timeout_keep_alive = SimpleNamespace(call_later=later), 10  # type: ignore[assignment]
    connection.transport = SimpleNamespace(  # type: ignore[assignment]
        get_write_buffer_size=lambda: 1000, is_closing=lambda: bool(ended), abort=lambda: ended.append(True)
    )
    connection.pause_writing()
    connection.resume_writing()
    connection.pause_writing()
    assert len(looks) == 1
    looks[0]()
    assert len(looks) == 2 and not ended
    looks[1]()
    assert len(looks) == 2 and ended


def test_one_connection_too_many_is_told_in_the_protocols_form() -> None:
    sent = list[bytes]()
    connection = object.__new__(Connection)
    connection.app = asked = lambda *_: None  # type: ignore[assignment]
    connection.transport = SimpleNamespace(write=sent.append, close=lambda: None)  # type: ignore[assignment]
    connection._start_asgi_task(SimpleNamespace(), lambda *_: asked())  # type: ignore[arg-type, func-returns-value]
    head, _, body = sent[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n") and json.loads(body)["error"]

"""The client of V2 endpoints sends nothing twice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onnxtool.errors import InputError
from onnxtool.runtime.protocol_v2.client import V2Client

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def server(*connections: list[bytes | None]) -> Iterator[tuple[str, list[bytes]]]:
    """Gives each connection its answers, None for a close that comes without one; and the requests that came."""
    listener, seen = socket.create_server(("127.0.0.1", 0)), list[bytes]()

    def run() -> None:
        for answers in connections:
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    seen.append(connection.recv(65536))
                    if answer is None:
                        break
                    connection.sendall(answer)

    thread = threading.Thread(target=run)
    thread.start()
    with listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", seen
        thread.join(30)


def test_a_request_whose_answer_is_lost_is_not_sent_again() -> None:
    with server([GOOD, None], [GOOD]) as (url, seen):
        client = V2Client(url, token="", seconds=30)
        assert client.request("GET", "/")[0] == 200
        with pytest.raises(InputError, match="no answer"):
            client.request("POST", "/once")
        assert client.request("GET", "/next")[0] == 200
        client.close()
    assert [request.split()[1] for request in seen] == [b"/", b"/once", b"/next"]


def test_a_connection_that_has_ended_meanwhile_is_made_anew() -> None:
    with server([GOOD], [GOOD]) as (url, seen):
        client = V2Client(url, token="", seconds=30)
        assert client.request("POST", "/first")[0] == 200
        kept = client._connection.sock
        assert kept is not None and kept.recv(1, socket.MSG_PEEK) == b""  # its end has come
        assert client.request("POST", "/second")[0] == 200
        client.close()
    assert len(seen) == 2

"""Web pages of other hosts, and names that were made to lead here, are refused; clients that are no pages are not."""

from __future__ import annotations

import pytest

from onnxtool.serving.access import OriginCheck
from onnxtool.serving.faults import HttpError
from tests.serving.conftest import Running


@pytest.mark.parametrize(
    ("bound", "allowed", "host", "origin", "passes"),
    [
        ("127.0.0.1", (), "localhost:8000", None, True),
        ("127.0.0.1", (), "127.0.0.1:8000", None, True),
        ("127.0.0.1", (), "[::1]:8000", None, True),
        ("127.0.0.1", (), "10.0.0.7:8000", None, True),  # a probe that asks for an address
        ("127.0.0.1", (), "", None, True),  # HTTP/1.0
        ("127.0.0.1", (), "evil.example", None, False),
        ("127.0.0.1", (), "localhost.evil.example", None, False),
        ("127.0.0.1", (), "evil.example", "http://evil.example", False),
        ("127.0.0.1", (), "localhost:8000", "http://localhost:8000", True),
        ("127.0.0.1", (), "localhost:8000", "http://127.0.0.1:3000", True),
        ("127.0.0.1", (), "localhost:8000", "https://evil.example", False),
        ("127.0.0.1", (), "127.0.0.1:8000", "http://10.0.0.7", False),
        ("127.0.0.1", (), "localhost:8000", "null", False),
        ("127.0.0.1", (), "localhost:8000", "", False),
        ("127.0.0.1", (), "localhost:8000", "http://[", False),
        ("127.0.0.1", ("models.example",), "models.example", None, True),
        ("127.0.0.1", ("models.example",), "MODELS.example:80", "https://models.EXAMPLE", True),
        ("127.0.0.1", ("models.example",), "evil.example", None, False),
        ("127.0.0.1", ("*",), "evil.example", "https://other.example", True),
        ("0.0.0.0", (), "models.example", None, True),
        ("0.0.0.0", (), "models.example", "https://models.example", True),
        ("0.0.0.0", (), "models.example", "https://evil.example", False),
        ("0.0.0.0", ("models.example",), "evil.example", None, False),
    ],
)
def test_who_may_ask(bound: str, allowed: tuple[str, ...], host: str, origin: str | None, passes: bool) -> None:
    headers = {b"host": host.encode()} if host else {}
    if origin is not None:
        headers[b"origin"] = origin.encode()
    try:
        OriginCheck(bound, allowed).verify(headers)
    except HttpError as error:
        assert error.status == 403 and not passes
    else:
        assert passes


def test_a_page_cannot_ask_a_local_server(server: Running) -> None:
    body = b'{"inputs": []}'
    path = "/v2/models/digits/infer"
    page = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    assert server.client().request("POST", path, body, page)[0] == 403
    assert server.client().request("POST", path, body, {"Host": "evil.example"})[0] == 403
    assert server.client().request("POST", path, body)[0] == 400
    assert server.client().request("GET", "/v2/health/ready", b"", {"Host": "evil.example"})[0] == 200

"""One infer request, sent again and again on kept connections, at the least cost to the client: for load tests."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np

from onnxtool.errors import InputError
from onnxtool.runtime.protocol_v2.client import TOKEN_VARIABLE
from onnxtool.runtime.protocol_v2.tensors import HEADER_LENGTH, encode_request

_CHUNK = 1 << 18
_SECONDS = 120.0


class Exchange:
    """A request whose bytes are made once."""

    def __init__(self, url: str, feeds: Mapping[str, np.ndarray], environment: Mapping[str, str]) -> None:
        """Make the request.

        Args:
            url: of the model: http://HOST:PORT/v2/models/NAME.
            feeds: its inputs.
            environment: where a token may stand, see `V2Client`.
        """
        self._parts = urlsplit(url)
        parts, length = encode_request(feeds)
        body = b"".join(parts)
        token = environment.get(TOKEN_VARIABLE)
        lines = [
            f"POST {self._parts.path}/infer HTTP/1.1",
            f"Host: {self._parts.netloc}",
            "Content-Type: application/octet-stream",
            f"Content-Length: {len(body)}",
            f"{HEADER_LENGTH}: {length}",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        self._bytes = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
        self.body_bytes = len(body)

    @contextmanager
    def connect(self) -> Iterator[Callable[[], int]]:
        """A connection: each call sends the request and reads the answer; gives its status.

        Raises:
            OSError: no connection, or it breaks.
            InputError: what comes back is no answer.
        """
        connection = _Connection(self._parts.scheme, self._parts.hostname or "", self._parts.port)

        def once() -> int:
            return connection.exchange(self._bytes)

        try:
            yield once
        finally:
            connection.close()


class _Connection:
    def __init__(self, scheme: str, host: str, port: int | None) -> None:
        self._address = (host, port or (443 if scheme == "https" else 80))
        self._tls = ssl.create_default_context() if scheme == "https" else None
        self._socket: socket.socket | None = None
        self._buffer = bytearray(_CHUNK)

    def exchange(self, request: bytes) -> int:
        if self._socket is None:
            plain = socket.create_connection(self._address, timeout=_SECONDS)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = (
                plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=self._address[0])
            )
        self._socket.sendall(request)
        head = b""
        while (end := head.find(b"\r\n\r\n")) < 0:
            chunk = self._socket.recv(_CHUNK)
            if not chunk or len(head) > _CHUNK:
                raise InputError("the server closed the connection without an answer.")
            head += chunk
        lines = head[:end].lower().split(b"\r\n")
        fields = dict(line.split(b":", 1) for line in lines[1:] if b":" in line)
        left = int(fields.get(b"content-length", b"0")) - (len(head) - end - 4)
        while left > 0:
            got = self._socket.recv_into(self._buffer, min(left, _CHUNK))
            if not got:
                raise InputError("the server closed the connection within an answer.")
            left -= got
        if fields.get(b"connection", b"").strip() == b"close":
            self.close()
        return int(lines[0].split(b" ", 2)[1])

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

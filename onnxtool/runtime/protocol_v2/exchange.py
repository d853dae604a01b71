"""One infer request, sent again and again on kept connections, at the least cost to the client: for load tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from urllib.parse import urlsplit

import numpy as np

from onnxtool.errors import InputError
from onnxtool.runtime.protocol_v2.client import TOKEN_VARIABLE, http_connection
from onnxtool.runtime.protocol_v2.tensors import HEADER_LENGTH, encode_request

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
        connection = http_connection(self._parts, _SECONDS)

        def once() -> int:
            if connection.sock is None:
                connection.connect()
            connection.sock.sendall(self._bytes)
            response = HTTPResponse(connection.sock, method="POST")
            try:
                response.begin()
                response.read()
            except HTTPException as error:
                raise InputError(f"the server gave no whole answer ({type(error).__name__}).") from error
            if response.will_close:
                connection.close()
            return response.status

        try:
            yield once
        finally:
            connection.close()

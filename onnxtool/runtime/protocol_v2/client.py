"""A small client of the Open Inference Protocol V2 on http.client: one connection that is kept, binary tensors."""

from __future__ import annotations

import http.client
import json
import os
import selectors
import socket
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import numpy as np

from onnxtool.errors import InputError, ResourceError, UsageError
from onnxtool.runtime.protocol_v2.tensors import (
    HEADER_LENGTH,
    decode_response,
    encode_request,
    load_json,
    read_metadata,
)

# The environment variable with the token of an endpoint; an option would show it to everyone on the machine.
TOKEN_VARIABLE = "ONNXTOOL_TOKEN"
_SECONDS = 120.0
_MAX_ANSWER = 2 << 30


def http_connection(parts: SplitResult, seconds: float) -> http.client.HTTPConnection:
    """A connection that is made when it is first used; ValueError for a port that is none."""
    make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return make(parts.hostname or "", parts.port, timeout=seconds)


class V2Client:
    """One kept connection to a server. Not for several threads at a time."""

    def __init__(self, url: str, *, token: str | None = None, seconds: float = _SECONDS) -> None:
        """Take an address; nothing is sent yet.

        Args:
            url: http(s)://host:port, and what follows of a path before /v2.
            token: for the Authorization header; that of the environment variable ONNXTOOL_TOKEN unless given.
            seconds: to wait for anything from the server.

        Raises:
            UsageError: not such a URL.
        """
        try:
            parts = urlsplit(url)
            self._connection = http_connection(parts, seconds)
        except ValueError as error:
            raise UsageError(f"{url}: not a URL ({error}).") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url}: not a URL; write http://HOST:PORT/v2/models/NAME.")
        weakref.finalize(self, self._connection.close)
        self.url, self.path = url, parts.path.rstrip("/")
        token = os.environ.get(TOKEN_VARIABLE) if token is None else token
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """One exchange. Nothing is sent twice: the server may have run a request whose answer was lost.

        Raises:
            InputError: no answer.
            ResourceError: an answer of more than 2 GB.
        """
        if self._connection.sock is not None and _has_ended(self._connection.sock):
            self._connection.close()
        try:
            self._connection.request(method, path, body, {**self._headers, **(headers or {})})
            response = self._connection.getresponse()
            if (response.length or 0) > _MAX_ANSWER:
                raise ResourceError(f"{self.url}: an answer of {response.length} bytes is too large.")
            found = response.read(_MAX_ANSWER)
            return response.status, {k.lower(): v for k, v in response.getheaders()}, found
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise InputError(f"{self.url}: no answer ({error or type(error).__name__}).") from error

    def get(self, path: str) -> dict[str, Any]:
        """A JSON object.

        Raises:
            InputError: no answer, an error, or no JSON.
        """
        status, _, body = self.request("GET", path)
        if status != 200:
            raise InputError(f"{self.url}: {path} gives status {status}: {_reason(body)}")
        return load_json(body)


class RemoteRunner:
    """A model behind a V2 endpoint."""

    def __init__(self, url: str, *, token: str | None = None, seconds: float = _SECONDS) -> None:
        """Ask an endpoint for its model.

        Args:
            url: http://HOST:PORT/v2/models/NAME, with /versions/VERSION or without; or http://HOST:PORT alone when
                the server has one model and lists it.
            token: see `V2Client`.
            seconds: to wait for an answer.

        Raises:
            InputError: no answer, or none of a V2 endpoint.
            UsageError: not a URL, or several models to choose from.
        """
        self._client = client = V2Client(url, token=token, seconds=seconds)
        path = client.path.removesuffix("/infer")
        if "/v2/models/" not in path:
            path = f"{path.removesuffix('/v2')}/v2/models/{_only_model(client, url)}"
        found = client.get(path)
        self._path = path
        self.inputs, self.outputs = read_metadata(found.get("inputs")), read_metadata(found.get("outputs"))

    @property
    def endpoint(self) -> str:
        """The URL of the model itself."""
        parts = urlsplit(self._client.url)
        return f"{parts.scheme}://{parts.netloc}{self._path}"

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One request with binary tensors.

        Raises:
            InputError: no answer, or an error.
        """
        parts, length = encode_request(feeds)
        body = b"".join(parts)
        headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(length)}
        status, told, answer = self._client.request("POST", f"{self._path}/infer", body, headers)
        if status != 200:
            raise InputError(f"{self._client.url}: status {status}: {_reason(answer)}")
        text = told.get(HEADER_LENGTH.lower())
        try:
            return decode_response(answer, None if text is None else int(text))
        except ValueError as error:
            raise InputError(f"{self._client.url}: {HEADER_LENGTH} is not a number.") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _has_ended(kept: socket.socket) -> bool:
    """Whether a kept connection can be read: nothing can have come but its end."""
    with selectors.DefaultSelector() as selector:
        selector.register(kept, selectors.EVENT_READ)
        return bool(selector.select(0))


def _only_model(client: V2Client, url: str) -> str:
    prefix = client.path.removesuffix("/v2")
    listed = client.get(f"{prefix}/v2/models").get("models")
    names = [str(m.get("name")) for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
    if len(names) != 1:
        raise UsageError(f"{url}: name one of its models, {url.rstrip('/')}/v2/models/NAME: {', '.join(names)}.")
    return names[0]


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:300]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")


def url_of(path: str | os.PathLike[str]) -> str | None:
    """The URL that an argument is, also after it has been made a Path, which merges slashes; None when it is a path."""
    text = os.fspath(path).replace(os.sep, "/") if isinstance(path, Path) else os.fspath(path)
    for scheme in ("http", "https"):
        if text.startswith(f"{scheme}:/"):
            return f"{scheme}://{text.removeprefix(f'{scheme}:').lstrip('/')}"
    return None

"""Errors that a client gets, each with its HTTP status and a kind for the metrics."""

from __future__ import annotations

from onnxtool.errors import InputError, OnnxToolError, ResourceError, UnsupportedError


class HttpError(OnnxToolError):
    """An answer that is not 200."""

    def __init__(self, status: int, kind: str, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(message)
        self.status, self.kind, self.headers = status, kind, headers


def as_http(error: Exception) -> HttpError:
    """What a client is told of an error: its own fault in full, ours without inner details."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, InputError):
        return HttpError(400, "bad_request", str(error))
    if isinstance(error, UnsupportedError):
        return HttpError(422, "unsupported", str(error))
    if isinstance(error, (ResourceError, MemoryError)):
        return HttpError(507, "resources", "the server ran out of memory on this request.")
    return HttpError(500, "internal", "the server failed on this request; its log says more.")

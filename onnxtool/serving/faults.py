"""Errors that a client gets, each with its HTTP status and a kind for the metrics."""

from __future__ import annotations

import asyncio
from typing import Any

from onnxtool.errors import InputError, OnnxToolError, ResourceError, UnsupportedError
from onnxtool.runtime.worker.errors import WorkerDiedError, WorkerTimeoutError


class HttpError(OnnxToolError):
    """An answer that is not 200."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        *,
        param: str | None = None,
    ) -> None:
        """Say what is wrong.

        Args:
            status: of HTTP.
            kind: for the metrics.
            message: for the client.
            headers: of the answer.
            param: the option of the request that is at fault, for OpenAI's form.
        """
        super().__init__(message)
        self.status, self.kind, self.headers, self.param = status, kind, headers, param


def openai_error(fault: HttpError) -> dict[str, Any]:
    """An error in the form of OpenAI's API."""
    types = {401: "authentication_error", 429: "rate_limit_error"}
    kind = types.get(fault.status, "server_error" if fault.status >= 500 else "invalid_request_error")
    code = {"bad_request": None, "unknown_model": "model_not_found", "unauthorized": "invalid_api_key"}
    return {
        "error": {
            "message": str(fault),
            "type": kind,
            "param": fault.param,
            "code": code.get(fault.kind, fault.kind),
        }
    }


def as_http(error: BaseException) -> HttpError:
    """What a client is told of an error: its own fault in full, ours without inner details."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, asyncio.CancelledError):  # as what is left when the time to drain is over
        return HttpError(503, "drained", "the server ends before this is answered.")
    if isinstance(error, WorkerDiedError):
        return HttpError(500, "worker_died", str(error))
    if isinstance(error, WorkerTimeoutError):
        return HttpError(504, "timeout", str(error))
    if isinstance(error, InputError):
        return HttpError(400, "bad_request", str(error), param=getattr(error, "param", None))
    if isinstance(error, UnsupportedError):
        return HttpError(422, "unsupported", str(error))
    if isinstance(error, (ResourceError, MemoryError)):
        return HttpError(507, "resources", "the server ran out of memory on this request.")
    return HttpError(500, "internal", "the server failed on this request; its log says more.")

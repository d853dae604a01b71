"""Errors of routes become answers, whatever they are."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from onnxtool.errors import InputError
from onnxtool.options.serve import ServeLimits, ServeOptions
from onnxtool.runtime.protocol_v2.tensors import HEADER_LENGTH
from onnxtool.serving.app import Answer, App, Request, Route, State
from onnxtool.serving.faults import HttpError
from onnxtool.serving.inference_routes import InferenceRoutes
from onnxtool.serving.telemetry import Log, Metrics


class Panic(BaseException):
    """As pyo3 raises them: no Exception."""


async def panics(_: Request) -> Answer:
    raise Panic("inner details")


def asked(path: str, route: Route = panics, options: ServeOptions = ServeOptions()) -> tuple[int, Any, str]:  # noqa: B008
    """Status, JSON and log of GET path."""
    sent, log = list[dict[str, Any]](), io.StringIO()

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    app = App(options, Metrics(), Log(log), State())
    app.route("GET", path, route)
    asyncio.run(app({"type": "http", "method": "GET", "path": path, "headers": []}, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"]), log.getvalue()


def test_a_panic_is_a_500_and_a_line_of_the_log() -> None:
    status, told, log = asked("/v2/x")
    assert status == 500 and isinstance(told["error"], str) and "inner details" not in told["error"]
    assert json.loads(log)["error"] == "Panic: inner details"


def test_what_a_drain_leaves_unanswered_is_told_in_the_protocol_s_form() -> None:
    """uvicorn cancels it, and would say "Internal Server Error" in plain text."""

    async def cancelled(_: Request) -> Answer:
        raise asyncio.CancelledError

    status, told, log = asked("/v2/x", cancelled)
    assert status == 503 and "ends before" in told["error"] and not log


def test_a_request_that_failed_is_held_no_longer() -> None:
    """Not until the garbage collection comes, which counts objects and no bytes."""
    held = list[weakref.ref[Any]]()

    async def fails(_: Request) -> Answer:
        body = Panic("as large as a request")
        held.append(weakref.ref(body))
        raise HttpError(400, "bad_request", "no.")

    gc.disable()
    try:
        assert asked("/v2/x", fails)[0] == 400
        assert held[0]() is None
    finally:
        gc.enable()


def test_answers_count_against_the_memory_of_all_requests() -> None:
    async def answers(_: Request) -> Answer:
        return Answer([b"1" * 2000, b"2" * 2000])

    few = ServeOptions(limits=replace(ServeLimits(), buffered_bytes=3999))
    assert asked("/v2/x", answers, few)[0] == 503
    assert asked("/v2/x", answers)[0] == 200


def test_a_fault_of_ours_has_openais_form_too() -> None:
    status, told, _ = asked("/v1/x")
    assert status == 500
    assert told["error"]["type"] == "server_error" and set(told["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "head", [b'{"inputs":[{"datatype":"BYTES"}]}', b'{"inputs":[{"datatype":"B\\u0059TES"}]}', None]
)
def test_many_texts_and_much_json_are_read_beside_other_requests(
    head: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[str]()

    def read(*_: object, **__: object) -> None:
        threads.append(threading.current_thread().name)
        raise InputError("read")

    class Sent:
        headers: Mapping[bytes, bytes] = {} if head is None else {HEADER_LENGTH.lower().encode(): b"%d" % len(head)}

        async def body(self) -> bytes:
            return (head or b" ") + bytes(1 << 17)

        def limit_json(self, _: int) -> None:
            pass

    monkeypatch.setattr("onnxtool.serving.inference_routes.decode_request", read)
    routes = InferenceRoutes(None, ServeOptions(), Metrics(), State())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="read"):
        asyncio.run(routes._answer(Sent(), None))  # type: ignore[arg-type]
    assert threads != ["MainThread"]

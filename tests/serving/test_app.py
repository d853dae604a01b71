"""Errors of routes become answers, whatever they are."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from onnxtool.options.serve import ServeOptions
from onnxtool.serving.app import Answer, App, Request, State
from onnxtool.serving.telemetry import Log, Metrics


class Panic(BaseException):
    """As pyo3 raises them: no Exception."""


async def panics(_: Request) -> Answer:
    raise Panic("inner details")


def asked(path: str) -> tuple[int, Any, str]:
    """Status, JSON and log of GET path."""
    sent, log = list[dict[str, Any]](), io.StringIO()

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    app = App(ServeOptions(), Metrics(), Log(log), State())
    app.route("GET", path, panics)
    asyncio.run(app({"type": "http", "method": "GET", "path": path, "headers": []}, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"]), log.getvalue()


def test_a_panic_is_a_500_and_a_line_of_the_log() -> None:
    status, told, log = asked("/v2/x")
    assert status == 500 and isinstance(told["error"], str) and "inner details" not in told["error"]
    assert json.loads(log)["error"] == "Panic: inner details"


def test_a_fault_of_ours_has_openais_form_too() -> None:
    status, told, _ = asked("/v1/x")
    assert status == 500
    assert told["error"]["type"] == "server_error" and set(told["error"]) == {"message", "type", "param", "code"}

"""Traces of requests: below the client's, with the model's run below."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.serving.conftest import Running

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_request_is_a_span_below_its_clients(fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    server = Running(fixtures / "digits_cnn.onnx", "--reload", "off")
    image = np.zeros((1, 1, 8, 8)).tolist()
    for body in ({"image": image}, {"image": [1]}):
        told = {"traceparent": PARENT}
        server.client().request("POST", "/predict", json.dumps(body).encode(), told)
    stdout = server.process.stdout
    assert stdout is not None
    server.process.terminate()
    text = stdout.read()
    assert server.stop() == 0
    decoder, spans = json.JSONDecoder(), []
    while (at := text.find("{")) >= 0 and "trace_id" in text:
        span, end = decoder.raw_decode(text[at:])
        spans.append(span)
        text = text[at + end :]
    run, request, refused = spans
    assert request["context"]["trace_id"] == "0x0af7651916cd43dd8448eb211c80319c"
    assert request["parent_id"] == "0xb7ad6b7169203331" and request["name"] == "POST /predict"
    assert run["parent_id"] == request["context"]["span_id"] and run["name"] == "run digits_cnn"
    assert refused["attributes"]["http.response.status_code"] == 400


def test_without_the_exporter_the_server_says_so_and_serves(fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nobody_has_this_one")
    server = Running(fixtures / "digits_cnn.onnx", "--reload", "off")
    assert [e for e in server.said if e["event"] == "not_traced"]
    assert server.runner("digits_cnn").run({"image": np.zeros((1, 1, 8, 8), np.float32)})
    assert server.stop() == 0

"""Bundles in the form of OpenAI's API: the same text as `generate`, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("onnxruntime_genai")

from onnxtool.generation.convert import convert_text_model
from onnxtool.generation.generate import generate
from tests.generation import tiny
from tests.serving.conftest import Running


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny.llama(tmp_path_factory.mktemp("llama"))
    return Path(convert_text_model(folder, tmp_path_factory.mktemp("bundles") / "llama").output)


@pytest.fixture(scope="module")
def chat(bundle: Path) -> Iterator[Running]:
    running = Running(bundle)
    yield running
    assert running.stop() == 0


def post(server: Running, path: str, **body: object) -> tuple[int, bytes]:
    status, _, answer = server.client().request("POST", path, json.dumps(body).encode())
    return status, answer


def events(answer: bytes) -> list[dict[str, object]]:
    lines = [line.removeprefix(b"data: ") for line in answer.split(b"\n\n") if line]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_completes_as_generate_does(chat: Running, bundle: Path) -> None:
    expected = generate(bundle, prompt="hello", max_tokens=8)
    status, answer = post(chat, "/v1/completions", model="llama", prompt="hello", max_tokens=8, temperature=0)
    found = json.loads(answer)
    assert status == 200, answer
    assert found["object"] == "text_completion"
    assert found["choices"][0]["text"] == expected.text
    assert found["usage"]["completion_tokens"] == len(expected.tokens)
    assert found["usage"]["prompt_tokens"] == expected.prompt_tokens


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_stream_is_the_whole_text_in_parts(chat: Running, path: str) -> None:
    ask = {"prompt": "hello"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hello"}]}
    status, whole = post(chat, path, max_tokens=8, temperature=0.7, seed=3, **ask)
    assert status == 200, whole
    status, streamed = post(
        chat, path, max_tokens=8, temperature=0.7, seed=3, stream=True, stream_options={"include_usage": True}, **ask
    )
    choice = json.loads(whole)["choices"][0]
    parts = events(streamed)
    said = [p["choices"][0] for p in parts if p["choices"]]
    if path == "/v1/completions":
        assert "".join(s["text"] for s in said) == choice["text"]
    else:
        assert said[0]["delta"]["role"] == "assistant"
        assert "".join(s["delta"].get("content", "") for s in said) == choice["message"]["content"]
    assert said[-1]["finish_reason"] == choice["finish_reason"]
    assert parts[-1]["usage"] == json.loads(whole)["usage"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": "a", "model": "none"}, 404),
        ({"prompt": ""}, 400),
        ({"prompt": 5}, 400),
        ({"prompt": "a", "n": 2}, 400),
        ({"prompt": "a", "temperature": -1}, 400),
        ({"prompt": "a", "top_p": "x"}, 400),
        ({"prompt": "a", "max_tokens": 0.5}, 400),
        ({"prompt": "a", "stop": [1]}, 400),
        ({"prompt": "a " * 5000}, 400),
    ],
)
def test_what_cannot_be_done_is_the_clients_fault(chat: Running, body: dict[str, object], status: int) -> None:
    got, answer = post(chat, "/v1/completions", **body)
    assert got == status, answer


@pytest.mark.parametrize("messages", [None, [], ["a"], [{"role": "user"}], [{"content": "a"}]])
def test_messages_have_a_form(chat: Running, messages: object) -> None:
    assert post(chat, "/v1/chat/completions", messages=messages)[0] == 400


def test_lists_its_bundles(chat: Running) -> None:
    assert [m["id"] for m in chat.client().get("/v1/models")["data"]] == ["llama"]

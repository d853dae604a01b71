"""Bundles in the form of OpenAI's API: the same text as `generate`, whole or streamed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

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


def swapped(folder: Path, other: Path) -> None:
    """The folder gives way to another at once."""
    staged = folder.with_name("staged")
    shutil.copytree(other, staged, copy_function=shutil.copyfile)  # with times of its own
    folder.rename(folder.with_name(f"old{len(list(folder.parent.iterdir()))}"))
    staged.rename(folder)


def with_other_weights(bundle: Path, folder: Path) -> Path:
    """A copy whose logits are turned round: every weight of the last product has the other sign."""
    shutil.copytree(bundle, folder)
    model = onnx.load(folder / "model.onnx")
    producer = next(n for n in reversed(model.graph.node) if n.op_type == "MatMul")
    for tensor in model.graph.initializer:
        if tensor.name in producer.input:
            tensor.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(tensor), tensor.name))
    for stale in folder.glob("model.onnx*"):
        stale.unlink()
    onnx.save(model, folder / "model.onnx")
    return folder


def test_a_changed_bundle_is_taken_when_it_generates_the_same(bundle: Path, tmp_path: Path) -> None:
    served = tmp_path / "served"
    shutil.copytree(bundle, served)
    other = with_other_weights(bundle, tmp_path / "other")
    server = Running(f"llama={served}")
    ask = {"prompt": "hello", "max_tokens": 8, "temperature": 0}

    def text() -> str:
        status, answer = post(server, "/v1/completions", **ask)
        assert status == 200, answer
        return str(json.loads(answer)["choices"][0]["text"])

    before = text()
    swapped(served, bundle)
    assert server.wait("reloaded")["model"] == "llama"
    assert text() == before
    swapped(served, other)
    assert "gives other answers" in server.wait("reload_refused")["reason"]
    assert text() == before
    (other / "model.onnx").write_bytes(b"not a model")
    swapped(served, other)
    assert "does not generate" in server.wait("reload_refused")["reason"]
    assert text() == before
    assert 'onnxtool_reloads_total{model="llama",result="refused",version="1"} 2.0' in server.metrics()
    assert server.stop() == 0


def test_a_bundle_trained_anew_is_taken_with_the_same_interface(bundle: Path, tmp_path: Path) -> None:
    served = tmp_path / "served"
    shutil.copytree(bundle, served)
    other = with_other_weights(bundle, tmp_path / "other")
    server = Running(f"llama={served}", "--reload", "interface")
    swapped(served, other)
    server.wait("reloaded")
    status, answer = post(server, "/v1/completions", prompt="hello", max_tokens=8, temperature=0)
    assert status == 200
    assert json.loads(answer)["choices"][0]["text"] == generate(other, prompt="hello", max_tokens=8).text
    assert generate(other, prompt="hello", max_tokens=8).tokens != generate(bundle, prompt="hello", max_tokens=8).tokens
    config = json.loads((other / "genai_config.json").read_text())
    config["model"]["context_length"] //= 2
    (other / "genai_config.json").write_text(json.dumps(config))
    swapped(served, other)
    assert "a shorter context" in server.wait("reload_refused")["reason"]
    assert server.stop() == 0

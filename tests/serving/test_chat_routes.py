"""Bundles in the form of OpenAI's API: the same text as `generate`, whole or streamed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

pytest.importorskip("transformers")
pytest.importorskip("onnxruntime_genai")

from onnxtool.generation.generate import generate
from tests.hostile_requests import JUNK
from tests.serving.conftest import Running, children

Tool = Callable[..., "CompletedProcess[str]"]


@pytest.fixture(scope="module")
def bundle(llama_bundle: Path) -> Path:
    return llama_bundle


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
    ("body", "status", "param"),
    [
        ({"prompt": "a", "model": "none"}, 404, "model"),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": 5}, 400, "prompt"),
        ({"prompt": "a", "n": 2}, 400, "n"),
        ({"prompt": "a", "temperature": -1}, 400, "temperature"),
        ({"prompt": "a", "top_p": "x"}, 400, "top_p"),
        ({"prompt": "a", "top_p": 2}, 400, "top_p"),
        ({"prompt": "a", "max_tokens": 0.5}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": -1}, 400, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, 400, "max_tokens"),
        ({"prompt": "a", "seed": "x"}, 400, "seed"),
        ({"prompt": "a", "stop": [1]}, 400, "stop"),
        ({"prompt": "a", "stream": "false"}, 400, "stream"),
        ({"prompt": "a", "stream_options": {"include_usage": 1}}, 400, "include_usage"),
        ({"prompt": "a", "stream_options": {"other": True}}, 400, "stream_options"),
        ({"prompt": "a " * 5000}, 400, "prompt"),
    ],
)
def test_what_cannot_be_done_is_the_clients_fault(
    chat: Running, body: dict[str, object], status: int, param: str
) -> None:
    got, answer = post(chat, "/v1/completions", **body)
    assert got == status, answer
    assert openai_fault(answer)["param"] == param


def openai_fault(answer: bytes) -> dict[str, object]:
    """The error of an answer, which is OpenAI's object."""
    found = json.loads(answer)
    assert set(found) == {"error"} and set(found["error"]) == {"message", "type", "param", "code"}, answer
    assert found["error"]["message"] and found["error"]["type"]
    return dict(found["error"])


UNSUPPORTED: dict[str, object] = {
    "n": 2,
    "best_of": 2,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
    "logit_bias": {"5": 100},
    "logprobs": 0,
    "top_logprobs": 2,
    "echo": True,
    "suffix": "end",
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "required",
    "functions": [{"name": "f"}],
    "response_format": {"type": "json_object"},
    "modalities": ["audio"],
    "min_p": 0.1,
    "an_option_of_next_year": 1,
}


_OPTIONS = (*UNSUPPORTED, "prompt", "messages", "model", "stop", "seed", "temperature", "top_p", "stream", "user")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/v1/completions", "/v1/chat/completions"]),
    changed=st.dictionaries(st.sampled_from(_OPTIONS), JUNK, max_size=2),
)
@example(path="/v1/completions", changed={"prompt": "\ud800"})
@example(path="/v1/chat/completions", changed={"messages": [{"role": "user", "content": "\ud800"}]})
@example(path="/v1/completions", changed={"stop": "\ud800"})
def test_no_request_for_a_text_is_a_fault_of_the_server(chat: Running, path: str, changed: dict[str, object]) -> None:
    ask = {"prompt": "a"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
    status, answer = post(chat, path, **{"max_tokens": 1, **ask, **changed})
    assert status < 500 and b"internal" not in answer, answer
    if status != 200:
        openai_fault(answer)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_option_that_is_not_there_is_refused_by_its_name(chat: Running, path: str, name: str) -> None:
    """An answer without what was asked for would be taken for one with it."""
    ask = {"prompt": "a"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
    status, answer = post(chat, path, max_tokens=1, **ask, **{name: UNSUPPORTED[name]})
    assert status == 400
    fault = openai_fault(answer)
    assert fault["param"] == name and fault["type"] == "invalid_request_error"


def test_an_option_that_asks_for_nothing_is_taken(chat: Running) -> None:
    """As libraries of clients send them."""
    neutral = {"n": 1, "presence_penalty": 0.0, "logit_bias": {}, "logprobs": False, "tools": [], "user": "u"}
    neutral |= {"response_format": {"type": "text"}, "echo": False, "suffix": None, "top_logprobs": None}
    plain = post(chat, "/v1/completions", prompt="hello", max_tokens=4, temperature=0)
    status, answer = post(chat, "/v1/completions", prompt="hello", max_tokens=4, temperature=0, **neutral)
    assert status == 200, answer
    assert json.loads(answer)["choices"] == json.loads(plain[1])["choices"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_no_tokens_are_no_text(chat: Running, path: str) -> None:
    ask = {"prompt": "hello"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hello"}]}
    status, answer = post(chat, path, max_tokens=0, **ask)
    assert status == 200, answer
    (choice,) = json.loads(answer)["choices"]
    assert (choice["text"] if "prompt" in ask else choice["message"]["content"]) == ""
    assert choice["finish_reason"] == "length"
    assert json.loads(answer)["usage"]["completion_tokens"] == 0
    status, streamed = post(chat, path, max_tokens=0, stream=True, **ask)
    assert status == 200 and events(streamed)[-1]["choices"][0]["finish_reason"] == "length"  # type: ignore[index]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/nothing", None, 404, "unknown_path"),
        ("GET", "/v1/completions", None, 405, "method"),
        ("POST", "/v1/completions", b"{", 400, None),
        ("POST", "/v1/completions", b"[1]", 400, None),
        ("POST", "/v1/completions", b'{"prompt": "a", "temperature": NaN}', 400, None),
        ("POST", "/v1/completions", b'{"prompt": "a", "model": "none"}', 404, "model_not_found"),
    ],
)
def test_every_error_has_openais_form(
    chat: Running, method: str, path: str, body: bytes | None, status: int, code: str | None
) -> None:
    got, _, answer = chat.client().request(method, path, body or b"")
    assert got == status
    assert openai_fault(answer)["code"] == code


@pytest.mark.parametrize(
    "messages",
    [
        None,
        [],
        ["a"],
        [{"role": "user"}],
        [{"content": "a"}],
        [{"role": "user", "content": [{"type": "image_url", "text": "a"}]}],
        [{"role": "tool", "content": "a", "tool_call_id": "1"}],
    ],
)
def test_messages_have_a_form(chat: Running, messages: object) -> None:
    status, answer = post(chat, "/v1/chat/completions", messages=messages)
    assert status == 400 and openai_fault(answer)["param"] == "messages"


def test_a_tokenizer_that_panics_fails_its_request_alone(bundle: Path, tmp_path: Path, onnxtool: Tool) -> None:
    """Rust's panics are no Exception of Python's."""
    folder = tmp_path / "llama"
    shutil.copytree(bundle, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    # A stride of as many tokens as are kept panics, but only for a text with more.
    tokenizer["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 4}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    done = onnxtool("run", folder, "--prompt", "the quick brown fox jumps over the lazy dog", "--max-tokens", "1")
    assert done.returncode == 3, done.stderr
    assert "tokenizer.json: fails on this text" in done.stderr.splitlines()[-1]
    server = Running(folder, "--reload", "off")
    status, answer = post(server, "/v1/completions", prompt="the quick brown fox jumps over", max_tokens=1)
    assert status == 400
    assert "fails on this text" in str(openai_fault(answer)["message"])
    assert post(server, "/v1/completions", prompt="a", max_tokens=1)[0] == 200
    assert server.stop() == 0


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


def test_generation_ends_with_its_time(bundle: Path) -> None:
    running = Running(bundle, "--timeout", "0.001", "--reload", "off")
    try:
        status, answer = post(running, "/v1/completions", prompt="hello", max_tokens=64, temperature=0)
        assert status == 504 and "within 0.001 s" in str(openai_fault(answer)["message"])
        status, answer = post(running, "/v1/completions", prompt="hello", max_tokens=64, temperature=0, stream=True)
        assert status in (200, 504) and "timeout" in answer.decode()  # by event, once the answer has begun
    finally:
        assert running.stop() == 0


def test_a_killed_process_costs_its_text_alone(chat: Running) -> None:
    """A bundle runs in a process of its own: the server and its other requests outlive it."""
    ask = {"prompt": "hello", "max_tokens": 8, "temperature": 0}
    before = post(chat, "/v1/completions", **ask)[1]
    answers: list[tuple[int, bytes]] = []
    long = {"prompt": "hello", "max_tokens": 100_000, "temperature": 1.5, "seed": 1}
    asking = threading.Thread(target=lambda: answers.append(post(chat, "/v1/completions", **long)))
    asking.start()
    while 'onnxtool_queue_duration_seconds_count{model="llama",version="1"} ' not in chat.metrics():
        pass
    killed = False
    while asking.is_alive() and not killed:
        for pid in children(chat.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed = True
    asking.join()
    assert killed and answers[0][0] in (200, 500), answers  # 200 where the text was complete before
    if answers[0][0] == 500:
        assert "was killed" in str(openai_fault(answers[0][1])["message"])
    assert json.loads(post(chat, "/v1/completions", **ask)[1])["choices"] == json.loads(before)["choices"]


def test_a_text_whose_client_has_left_makes_room(chat: Running) -> None:
    body = json.dumps({"prompt": "hello", "max_tokens": 100_000, "temperature": 1.5, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", chat.port), 30) as client:
            client.sendall(head + body)
            client.recv(100)
    assert post(chat, "/v1/completions", prompt="hello", max_tokens=2)[0] == 200


def test_a_bundle_runs_in_the_server_where_that_is_asked_for(bundle: Path) -> None:
    server = Running(bundle, "--in-process", "--reload", "off")
    assert children(server.process.pid) == []
    ask = {"prompt": "hello", "max_tokens": 8, "temperature": 0}
    status, answer = post(server, "/v1/completions", **ask)
    expected = generate(bundle, prompt="hello", max_tokens=8).text
    assert status == 200 and json.loads(answer)["choices"][0]["text"] == expected
    assert b"[DONE]" in post(server, "/v1/completions", **ask, stream=True)[1]
    assert server.stop() == 0

"""A bundle's endpoint gives the texts that the bundle itself gives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("onnxruntime_genai")
pytest.importorskip("fastapi")

from onnxtool.errors import UnsupportedError, VerdictError
from onnxtool.packaging import bundle_package
from onnxtool.packaging.kinds.fastapi import application_command
from onnxtool.packaging.package import package
from onnxtool.packaging.registry import open_package
from onnxtool.packaging.server_process import ServerProcess, clean_environment
from onnxtool.runtime.protocol_v2.client import V2Client
from tests.packaging.conftest import counts_who_leaves


@pytest.fixture(scope="module")
def bundle(llama_bundle: Path) -> Path:
    return llama_bundle


@pytest.fixture(scope="module")
def folder(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "endpoint"
    report = package(bundle, out, kinds=["fastapi"])
    assert report.ok and report.packages[0].proof.runs == 3
    return out


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    command, port, _ = application_command(folder, fresh=False)
    process = ServerProcess(command, folder, port)
    yield process
    process.close()


def post(server: ServerProcess, path: str, body: object) -> tuple[int, bytes]:
    status, _, answer = V2Client(server.url).request("POST", path, json.dumps(body).encode())
    return status, answer


def test_its_smoke_test_passes_and_it_needs_nothing_of_ours(folder: Path, server: ServerProcess) -> None:
    command = [sys.executable, "-I", str(folder / "smoke_test.py"), server.url]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert done.returncode == 0 and done.stdout.count("equal") == 3, done.stderr
    for path in folder.rglob("*.py"):
        assert "onnxtool" not in path.read_text(encoding="utf-8")
    assert "COPY model ./model" in (folder / "Dockerfile").read_text()
    assert (folder / "provenance.json").is_file() and (folder / "sbom.cdx.json").is_file()


def test_a_client_that_leaves_is_no_fault_of_the_server_s(server: ServerProcess) -> None:
    assert counts_who_leaves(server.url, "/v1/completions")


def test_a_stream_is_the_whole_text(server: ServerProcess) -> None:
    ask = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0}
    status, whole = post(server, "/v1/chat/completions", ask)
    assert status == 200, whole
    status, streamed = post(server, "/v1/chat/completions", ask | {"stream": True})
    lines = [line.removeprefix(b"data: ") for line in streamed.split(b"\n\n") if line]
    assert status == 200 and lines[-1] == b"[DONE]"
    said = "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1])
    assert said == json.loads(whole)["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"prompt": 5},
        {"prompt": "a", "max_tokens": 0.5},
        {"prompt": "a", "temperature": -1},
        {"prompt": "a " * 9999},
    ],
)
def test_what_is_malformed_is_400(server: ServerProcess, body: object) -> None:
    assert post(server, "/v1/completions", body)[0] == 400


def test_stop_texts_end_it_and_what_is_not_there_is_refused_by_name(server: ServerProcess) -> None:
    """As `serve` does: both read requests by the same code."""
    ask = {"prompt": "hello", "max_tokens": 8, "temperature": 0}
    whole = json.loads(post(server, "/v1/completions", ask)[1])
    text = whole["choices"][0]["text"]
    assert whole["usage"]["completion_tokens"] == 8 and whole["choices"][0]["finish_reason"] == "length"
    stop = text[len(text) // 2 :][:3]
    for body in (ask | {"stop": stop}, ask | {"stop": ["nowhere in it", stop], "n": 1}):
        choice = json.loads(post(server, "/v1/completions", body)[1])["choices"][0]
        assert choice["text"] == text[: text.index(stop)] and choice["finish_reason"] == "stop"
    streamed = post(server, "/v1/completions", ask | {"stop": stop, "stream": True})[1]
    parts = [json.loads(line.removeprefix(b"data: ")) for line in streamed.split(b"\n\n")[:-2]]
    assert "".join(part["choices"][0]["text"] for part in parts) == text[: text.index(stop)]
    for name, value in {"n": 2, "stop": [1], "logprobs": 3, "tools": [{}], "seed": "x"}.items():
        status, answer = post(server, "/v1/completions", ask | {name: value})
        assert status == 400 and json.loads(answer)["error"]["param"] == name
    assert post(server, "/v1/completions", ask | {"model": "other"})[0] == 404
    assert json.loads(post(server, "/v1/completions", ask | {"max_tokens": 0})[1])["choices"][0]["text"] == ""


def test_another_text_is_not_written(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = {"prompt": "a", "max_tokens": 2, "text": "something else", "tokens": []}
    monkeypatch.setattr(bundle_package, "_case", lambda *_: case)
    with pytest.raises(VerdictError, match="something else"):
        package(bundle, tmp_path / "out", kinds=["fastapi"])
    assert not (tmp_path / "out").exists()


def test_kserve_gets_its_own_description(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_package, "_prove", lambda *_: None)  # as with fastapi: the application is the same
    made = package(bundle, tmp_path / "out", kinds=["kserve"]).packages[0]
    assert "inference-service.yaml" in made.files and not {"compose.yaml", "kubernetes.yaml"} & set(made.files)
    assert "kubectl apply -f inference-service.yaml" in " ".join(made.commands)
    text = (tmp_path / "out" / "inference-service.yaml").read_text()
    assert "kind: InferenceService" in text and "@" not in text


def test_other_places_take_no_bundle(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="fastapi"):
        package(bundle, tmp_path / "out", kinds=["triton"])


def test_compare_says_that_it_cannot_run_one(folder: Path) -> None:
    with pytest.raises(UnsupportedError, match="cannot be run here"):
        open_package(folder, trust=True)

"""URLs: fsspec's own memory, and a real server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest

from onnxtool.workflow.remote import base_name, shown
from onnxtool.workflow.store import Store
from tests.workflow.conftest import Builder, tiny_model


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    """An empty memory:// with one model."""
    system = fsspec.filesystem("memory")
    system.rm("/", recursive=True) if system.ls("/") else None
    system.pipe_file("/in/a.onnx", tiny_model().SerializeToString())
    yield system
    system.rm("/", recursive=True)


TEXT = "[models.a]\nsource='memory://in/a.onnx'\noutput='memory://out/a.onnx'\nsteps=[{step='edit', doc='x'}]\n"


def test_sources_and_outputs_behind_urls(run: Builder, memory: fsspec.AbstractFileSystem) -> None:
    first = run(TEXT)
    assert first.ok, first.models[0].error
    made = memory.cat_file("/out/a.onnx")
    assert run().models[0].state == "unchanged"
    memory.pipe_file("/out/a.onnx", b"changed")
    assert run().models[0].state == "built"
    assert memory.cat_file("/out/a.onnx") == made
    memory.pipe_file("/in/a.onnx", tiny_model(5.0).SerializeToString())
    assert [s.state for s in run().models[0].steps] == ["built"]
    memory.rm("/in/a.onnx")
    assert (run().models[0].exit_code, run().models[0].error) == (3, "memory://in/a.onnx: is not there.")


def test_a_shared_cache_serves_another_machine(
    run: Builder, memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONNXTOOL_CACHE", str(tmp_path / "first"))
    assert [s.state for s in run(TEXT, cache="memory://cache").models[0].steps] == ["built"]
    monkeypatch.setenv("ONNXTOOL_CACHE", str(tmp_path / "second"))
    assert [s.state for s in run(cache="memory://cache").models[0].steps] == ["cached"]
    assert len(list(Store(tmp_path / "second").blobs())) == 1
    for blob in memory.glob("/cache/blobs/*/*"):
        memory.pipe_file(blob, b"damaged")
    monkeypatch.setenv("ONNXTOOL_CACHE", str(tmp_path / "third"))
    assert [s.state for s in run(cache="memory://cache").models[0].steps] == ["built"]


def test_credentials_are_never_shown(run: Builder, project: Path) -> None:
    report = run("[models.a]\nsource='http://user:hunter2@127.0.0.1:9/a.onnx?token=hunter3'\nsteps=['check']\n")
    text = str(report.to_dict()) + (project / "onnxtool.lock").read_text()
    assert not report.ok and "hunter" not in text
    assert shown("s3://key:secret@bucket/a.onnx?x=1") == "s3://bucket/a.onnx"
    assert (base_name("s3://bucket/d/a.onnx?x=1"), shown("a@b.onnx")) == ("a.onnx", "a@b.onnx")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_source_on_a_server(run: Builder, project: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(project)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}/a.onnx"
        report = run(f"[models.a]\nsource='{url}'\nsteps=[{{step='edit', doc='x'}}]\n")
        assert report.ok, report.models[0].error
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """An S3-like store: moto's server on this machine, with one bucket that holds a model."""
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    system.mkdir("bucket")
    system.pipe_file("bucket/in/a.onnx", tiny_model().SerializeToString())
    yield system
    server.stop()


def test_source_output_and_cache_in_an_s3_store(
    run: Builder, bucket: fsspec.AbstractFileSystem, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXT.replace("memory://", "s3://bucket/")
    monkeypatch.setenv("ONNXTOOL_CACHE", str(tmp_path / "first"))
    first = run(text, cache="s3://bucket/cache")
    assert first.ok, first.models[0].error
    made = bucket.cat_file("bucket/out/a.onnx")
    monkeypatch.setenv("ONNXTOOL_CACHE", str(tmp_path / "second"))
    again = run(cache="s3://bucket/cache")
    assert [s.state for s in again.models[0].steps] == ["cached"] and again.models[0].state == "unchanged"
    bucket.pipe_file("bucket/out/a.onnx", b"changed by somebody")
    assert run(cache="s3://bucket/cache").models[0].state == "built"
    assert bucket.cat_file("bucket/out/a.onnx") == made
    bucket.pipe_file("bucket/in/a.onnx", tiny_model(5.0).SerializeToString())
    assert [s.state for s in run(cache="s3://bucket/cache").models[0].steps] == ["built"]
    told = str(first.to_dict()) + (project / "onnxtool.lock").read_text()
    assert "hunter2" not in told and "someone" not in told
    bucket.rm("bucket/in/a.onnx")
    assert run(cache="s3://bucket/cache").models[0].exit_code == 3

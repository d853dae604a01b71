"""A changed file is served only after it has been proven, and the old model answers until then."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.errors import InputError
from onnxtool.options.serve import ServeOptions
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.serving.repository import Repository
from onnxtool.serving.targets import find_versions
from onnxtool.serving.telemetry import Log, Metrics
from tests.serving.conftest import Running, children

FEEDS = {"x": np.float32([[1, 2, 3]])}


def replaced(path: Path, proto: onnx.ModelProto) -> None:
    """The file changes at once, as onnxtool writes."""
    beside = path.with_name("beside.tmp")
    onnx.save(proto, beside)
    os.replace(beside, path)


@pytest.fixture
def path(tmp_path: Path, relu_proto: onnx.ModelProto) -> Path:
    onnx.save(relu_proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_an_equal_file_is_taken_and_another_is_refused(path: Path, relu_proto: onnx.ModelProto) -> None:
    server = Running(path, "--batching", "off")
    runner = server.runner("m")
    before = runner.run(FEEDS)["y"]
    relu_proto.doc_string = "the same once more"
    replaced(path, relu_proto)
    assert server.wait("reloaded")["model"] == "m"
    assert np.array_equal(runner.run(FEEDS)["y"], before)
    weight = relu_proto.graph.initializer[0]
    weight.float_data[0] = 7.0
    replaced(path, relu_proto)
    assert "gives other answers" in server.wait("reload_refused")["reason"]
    assert np.array_equal(runner.run(FEEDS)["y"], before)
    path.write_bytes(b"not a model")
    assert "not an ONNX file" in server.wait("reload_refused")["reason"]
    assert np.array_equal(runner.run(FEEDS)["y"], before)
    assert 'onnxtool_reloads_total{model="m",result="refused",version="1"} 2.0' in server.metrics()
    assert server.stop() == 0


def test_a_copy_is_locked_and_made_again_where_it_is_gone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As what lies in a temporary folder for days: no process of the model would start anew."""
    monkeypatch.setenv("TMPDIR", str(path.parent))
    server = Running(path)
    (copy,) = path.parent.glob("onnxtool-serve-*")
    folder = os.open(copy, os.O_RDONLY)
    with pytest.raises(BlockingIOError):  # so that systemd-tmpfiles leaves it alone
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(folder)
    shutil.rmtree(copy)
    assert server.wait("reloaded")["model"] == "m" and not copy.exists()
    for process in children(server.process.pid):
        with suppress(ProcessLookupError):  # of the model before, which is ending
            os.kill(process, signal.SIGKILL)
    runner = server.runner("m")
    with suppress(InputError):  # of a process whose end was not seen yet
        runner.run(FEEDS)
    assert runner.run(FEEDS)
    assert server.stop() == 0


def test_a_model_trained_anew_needs_the_same_interface(path: Path, relu_proto: onnx.ModelProto) -> None:
    server = Running(path, "--batching", "off", "--reload", "interface")
    runner = server.runner("m")
    relu_proto.graph.initializer[0].float_data[0] = 7.0
    replaced(path, relu_proto)
    server.wait("reloaded")
    assert np.array_equal(runner.run(FEEDS)["y"], OnnxRunner.open(path).run(FEEDS)["y"])
    relu_proto.graph.output[0].name = relu_proto.graph.node[1].output[0] = "z"
    replaced(path, relu_proto)
    assert "other outputs" in server.wait("reload_refused")["reason"]
    assert server.stop() == 0


def test_a_folder_that_is_gone_for_a_moment_keeps_what_it_had_last(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    """Not what it had when the server was started."""
    folder = tmp_path / "m"

    def write(version: str) -> None:
        (folder / version).mkdir(parents=True)
        onnx.save(relu_proto, folder / version / "model.onnx")

    async def look_twice() -> None:
        await repository._look()
        write("2")
        assert [t.version for t in repository._slots] == ["1"]
        await repository._look()
        folder.rename(tmp_path / "away")
        await repository._look()
        assert [t.version for t in repository._slots] == ["1", "2"]

    write("1")
    named = [str(folder)]
    repository = Repository(
        ServeOptions(), Metrics(), Log(io.StringIO()), lambda last: find_versions(named, last, own={})
    )
    asyncio.run(look_twice())

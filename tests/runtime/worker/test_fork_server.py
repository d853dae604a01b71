"""Processes of models are forked from one that has their libraries, and are as those that were started anew."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

if sys.platform != "linux":
    pytest.skip("a process that has imported libraries forks on Linux alone", allow_module_level=True)

from onnxtool.errors import ResourceError
from onnxtool.runtime.worker import fork_server
from onnxtool.runtime.worker import worker as worker_module
from onnxtool.runtime.worker.errors import WorkerDiedError
from onnxtool.runtime.worker.fork_server import ForkedProcess, fork_process
from onnxtool.runtime.worker.tasks import run_python
from onnxtool.runtime.worker.worker import Worker

RANDOM = """<ir_version: 10, opset_import: ["" : 20]>
m (float[n] x) => (float[n] y) { r = RandomUniformLike(x) \n y = Add(x, r) }"""
# What a process does is in a module, which it finds by the path of its parent.
PROGRAM = """
import os, sys
def main():
    told = f"{os.environ.get('ASKED')} {os.stat('.').st_ino} {len(os.listdir('/proc/self/fd'))}"
    told += f" {os.getsid(0) == os.getpid()}"
    os.write(int(sys.argv[1]), told.encode())
    sys.exit(7)
"""


@pytest.fixture
def own_server() -> Iterator[None]:
    """None that another test uses."""
    kept, fork_server._server = fork_server._server, None
    yield
    if fork_server._server is not None:
        fork_server._server.close()
    fork_server._server = kept


@pytest.fixture
def worker(own_server: None) -> Iterator[Worker]:
    found = Worker(parser.parse_model(RANDOM).SerializeToString())
    yield found
    found.close()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def drawn(worker: Worker) -> list[float]:
    return worker.run({"x": np.zeros(4, np.float32)})["y"].tolist()  # type: ignore[no-any-return]


def test_no_process_draws_the_random_numbers_of_another(worker: Worker) -> None:
    first, pid = drawn(worker), worker.pid
    worker.restart()
    assert worker.pid != pid and drawn(worker) != first


def test_where_the_server_has_gone_there_is_a_new_one(worker: Worker) -> None:
    assert worker.pid is not None
    server = parent(worker.pid)
    os.kill(server, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="was killed"):  # nobody can tell how it is: it counts as dead
        while worker.alive:
            time.sleep(0.01)
        worker.restart()
        os.kill(worker.pid, signal.SIGKILL)
        drawn(worker)
    assert len(drawn(worker)) == 4 and parent(worker.pid) not in (server, os.getpid())


def test_a_process_has_the_environment_and_the_folder_of_its_parent(
    own_server: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "told_by_a_fork.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    other = Worker(parser.parse_model(RANDOM).SerializeToString())  # whose descriptors are no concern of it
    for asked in ("first", "second"):
        monkeypatch.setenv("ASKED", asked)
        monkeypatch.chdir(tmp_path if asked == "second" else "/")
        text, process = _started("told_by_a_fork")
        assert process.wait(60) == 7
        *told, files, leads = text.split()
        assert told == [asked, str(Path.cwd().stat().st_ino)] and leads == "True"
        assert int(files) <= 5  # three streams, what it was given, and the list itself
    assert other.alive and len(drawn(other)) == 4  # its server stays as long as it is there
    other.close()


def _started(module: str) -> tuple[str, ForkedProcess]:
    reader, writer = os.pipe()
    process = fork_process(module, [writer])
    os.close(writer)
    with os.fdopen(reader) as told:
        return told.read(), process


def test_a_folder_that_is_gone_keeps_no_process_from_its_start(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may be put in place of another one while it serves."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    worker.restart()
    assert len(drawn(worker)) == 4


def test_modules_of_the_folder_are_none_of_the_program(
    own_server: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stranger may have put a numpy.py beside a model."""
    (tmp_path / "numpy.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    worker = Worker(parser.parse_model(RANDOM).SerializeToString())
    assert len(drawn(worker)) == 4
    worker.close()
    assert run_python("numpy", seconds=60).returncode
    assert not (tmp_path / "ran").exists()


def test_a_start_that_fails_is_an_error_and_harms_no_process(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "no more")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", fails)
        forks = fork_server._Forks.__new__(fork_server._Forks)
        forks._statuses = {}
        given = [os.dup(0) for _ in range(3)]
        assert forks._fork("m", list(given)) == -errno.EAGAIN and not forks._statuses
    for number in given:
        with pytest.raises(OSError, match="Bad file"):
            os.close(number)
    monkeypatch.setattr(worker_module, "fork_process", fails)
    files = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ResourceError, match="cannot be started"):
        Worker(parser.parse_model(RANDOM).SerializeToString())
    assert len(os.listdir("/proc/self/fd")) == files and len(drawn(worker)) == 4


def test_a_start_without_descriptors_is_an_error_and_loses_none(worker: Worker) -> None:
    """As of a server with as many connections as it may have: the next start, with room for it, succeeds."""
    limits, model = resource.getrlimit(resource.RLIMIT_NOFILE), parser.parse_model(RANDOM).SerializeToString()
    files = [os.dup(0) for _ in range(1 + max(map(int, os.listdir("/proc/self/fd"))))]  # there is none free below
    before, failures = len(os.listdir("/proc/self/fd")), 0
    try:
        for more in range(14):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(files) + 1 + more, limits[1]))
            try:
                Worker(model).close()
            except ResourceError as error:
                failures += 1
                assert "Too many open files" in str(error)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert len(os.listdir("/proc/self/fd")) == before, more
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in files:
            os.close(file)
    assert 8 <= failures < 14 and len(drawn(worker)) == 4


def test_a_server_that_did_not_start_is_tried_again(own_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Worker(parser.parse_model(RANDOM).SerializeToString())
    assert first.pid is not None
    os.kill(parent(first.pid), signal.SIGKILL)
    with monkeypatch.context() as patched:
        patched.setattr(fork_server, "_ForkServer", lambda: os.close(-1))
        with pytest.raises(ResourceError, match="Bad file"):
            first.restart()
    first.restart()
    assert len(drawn(first)) == 4
    first.close()


def test_waits_as_long_as_it_was_told(worker: Worker) -> None:
    assert worker._child is not None
    process = worker._child.process
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL == process.poll()
    process.kill()

"""A real server in a process of its own, on a free port of localhost."""

from __future__ import annotations

import gc
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")
pytest.importorskip("prometheus_client")

from onnxtool.runtime.protocol_v2.client import RemoteRunner, V2Client
from tests.command_server import Lasting

_PATIENCE = 120.0


class Running:
    """A server and the events that it has logged."""

    def __init__(self, *arguments: object, new: bool = False) -> None:
        """Start it as a process that has its libraries, or with `new` as users do."""
        command = ["serve", *map(str, arguments), "--port", "0"]
        tool, pipes = [sys.executable, "-m", "onnxtool"], {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process: subprocess.Popen[str] | Lasting = (
            subprocess.Popen([*tool, *command], text=True, env=_env(), **pipes) if new else Lasting(command)
        )
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.said = list[dict[str, Any]]()  # every event so far
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = str(self.wait("listening")["url"])
        self.port = int(self.url.rsplit(":", 1)[1])

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            event = json.loads(line) if line.startswith("{") else {"event": "text", "line": line}
            self.said.append(event)
            self._events.put(event)
        self._events.put({"event": "closed"})

    def wait(self, name: str) -> dict[str, Any]:
        """The next event of a name."""
        said = []
        while True:
            event = self._events.get(timeout=_PATIENCE)
            said.append(event)
            if event["event"] == name:
                return event
            assert event["event"] != "closed", said

    def client(self, **options: Any) -> V2Client:
        """A new connection."""
        return V2Client(self.url, **options)

    def runner(self, model: str, **options: Any) -> RemoteRunner:
        """A model of the server as a Runner."""
        return RemoteRunner(f"{self.url}/v2/models/{model}", **options)

    def metrics(self) -> str:
        """The text of /metrics."""
        return self.client().request("GET", "/metrics")[2].decode()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(_PATIENCE)
        self._reader.join(_PATIENCE)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
        assert not [e for e in self.said if e["event"] == "uncaught"]  # a task ended with what nobody has read
        return code


def children(pid: int) -> list[int]:
    """The processes of models below a command, which is a process that watches another."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/comm"):
        try:
            if entry.read_text(encoding="utf-8") == "onnxtool model\n" and pid in ancestors(int(entry.parent.name)):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return sorted(found)


def ancestors(pid: int) -> set[int]:
    found = set[int]()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        found.add(pid)
    return found


@pytest.fixture(autouse=True)
def no_unread_exception(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No asyncio task or future of a test ends with an exception that nobody reads."""
    gc.freeze()  # what is there before the test is not looked at again
    yield
    gc.collect()  # asyncio tells it when the task is freed
    records = [*caplog.get_records("call"), *caplog.get_records("teardown")]
    assert not [r.getMessage() for r in records if r.name == "asyncio" and r.levelno >= logging.ERROR]


def _env() -> dict[str, str]:
    return {**os.environ, "NO_COLOR": "1", "COLUMNS": "120"}


@pytest.fixture(scope="package")
def server(fixtures: Path) -> Iterator[Running]:
    """The digits CNN in two versions, with small limits; what tests of single requests share."""
    model = fixtures / "digits_cnn.onnx"
    limits = ("--max-request", "200kB", "--body-timeout", "1", "--batching", "off", "--reload", "off")
    running = Running(f"digits:1={model}", f"digits:10={model}", *limits, new=True)
    yield running
    assert running.stop() == 0

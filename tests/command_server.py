"""Runs the real command on many files quickly: forked from a process that has imported the libraries once."""

from __future__ import annotations

import atexit
import json
import math
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.warm_process import warm

# Endings of names, and files that a folder holds.
_FILES = {
    "pytorch": {".pt", ".pt2", ".pth", ".bin", ".ckpt", ".safetensors", "config.json"},
    "tensorflow": {".keras", ".h5", ".pb", ".tflite", "saved_model.pb", "saved_model.pbtxt"},
    "trees": {".joblib", ".pkl", ".skops", ".ubj", ".cbm", "xgboost.json", "lightgbm.txt"},
}


@dataclass(frozen=True)
class Outcome:
    """What a command did.

    Attributes:
        code: exit code; negative for a signal.
        stdout, stderr: what it printed.
        seconds: wall time.
        busy: processor time of the command and its children; unlike wall time it is not stretched by other work.
        peak: bytes of the largest process, without what it had from this one when it was forked; frameworks count.
    """

    code: int
    stdout: str
    stderr: str
    seconds: float
    busy: float
    peak: int


def kind_for(arguments: Sequence[str]) -> str:
    """Which libraries a command imports first, by the names of its files and of those in its folders; as for `warm`."""
    if not arguments or arguments[0] not in ("convert", "compare", "quickstart") or "--help" in arguments:
        return ""
    if arguments[0] == "quickstart" or "--factory" in arguments:
        return "pytorch"
    paths = [Path(word) for word in arguments[1:]]
    names = {path.suffix for path in paths} | {path.name.rpartition("-")[2] for path in paths}
    names |= {held.name for path in paths if path.is_dir() for held in path.iterdir()}
    return next((kind for kind, known in _FILES.items() if names & known), "")


def run(
    arguments: Sequence[str],
    folder: Path,
    limit: float = 300.0,
    kind: str = "",
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    quick: bool = False,
) -> Outcome:
    """`onnxtool ARGUMENTS` with `folder` as its working folder; `kind` as for `warm`.

    With `quick` the effort "normal" is "quick".

    `environment` is for what is read when the command runs, such as COLUMNS; what counts when Python starts or a
    library is imported comes too late.

    The forking is done by a process of its own: a test worker has frameworks with threads, whose locks a fork copies.
    """
    return Outcome(**_ask(kind, "run", list(arguments), str(folder), limit, dict(environment), quick))


class Lasting:
    """A process that is forked from one with its libraries: what is used of `subprocess.Popen`, its streams as text."""

    def __init__(
        self,
        arguments: Sequence[str],
        kind: str = "",
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        """Start `onnxtool ARGUMENTS`, or a module where they are "-m", its name and its own arguments.

        Args:
            arguments: the words.
            kind: as for `warm`.
            folder: it works in; by default the one of this process.
            environment: changed variables; by default what this process has.
            log: takes both streams, which are to be read otherwise.
        """
        self._kind = kind
        with tempfile.TemporaryDirectory() as pipes:
            files = [Path(pipes) / name for name in ("out", "err")] if log is None else [log, log]
            for pipe in files if log is None else ():
                os.mkfifo(pipe)
            where, given = str(folder or Path.cwd()), dict(environment or os.environ)
            self.pid = _ask(kind, "start", list(arguments), where, given, *map(str, files))
            if log is None:
                self.stdout, self.stderr = (open(pipe, encoding="utf-8") for pipe in files)  # noqa: SIM115

    def poll(self) -> int | None:
        """The exit code once it has ended, as it is of `subprocess.Popen`."""
        code: int | None = _ask(self._kind, "ended", self.pid)
        return code

    def wait(self, limit: float = math.inf) -> int:
        """The exit code."""
        deadline = time.monotonic() + limit
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("onnxtool", limit)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """It is there, as a zombie at least, until `poll` tells that it has ended."""
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _ask(kind: str, *request: object) -> Any:
    server = _server(kind)
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


@cache
def _server(kind: str) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.command_server", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    atexit.register(_stop, server)
    return server


def _stop(server: subprocess.Popen[str]) -> None:
    for stream in (server.stdin, server.stdout):
        if stream is not None:
            stream.close()
    server.wait()


def serve() -> None:
    """Answer one request in a line after the other."""
    own = warm(sys.argv[1])
    ended: dict[int, int] = {}  # exit codes of commands that were started
    for line in sys.stdin:
        what, *request = json.loads(line)
        answer: object
        if what == "run":
            arguments, folder, limit, environment, quick = request
            done = _run(arguments, Path(folder), limit, environment, quick)
            answer = asdict(replace(done, peak=done.peak - own))
        elif what == "start":
            answer = _start(*request)
        else:
            pid = request[0]
            if pid not in ended:
                found, status = os.waitpid(pid, os.WNOHANG)
                ended |= {pid: os.waitstatus_to_exitcode(status)} if found else {}
            answer = ended.get(pid)
        print(json.dumps(answer), flush=True)


def _start(arguments: Sequence[str], folder: str, environment: Mapping[str, str], out: str, err: str) -> int:
    child = os.fork()
    if child == 0:
        streams = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in (out, err)]  # pipes wait for their reader
        _become(arguments, Path(folder), environment, False, *streams)
    return child


def _run(arguments: Sequence[str], folder: Path, limit: float, environment: Mapping[str, str], quick: bool) -> Outcome:
    """`onnxtool ARGUMENTS` in a forked process with `folder` as its working folder."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _become(arguments, folder, environment, quick, out.fileno(), err.fileno())
        status, usage = _wait(child, began + limit)
        seconds = time.monotonic() - began
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
    code = os.waitstatus_to_exitcode(status)
    busy = usage.ru_utime + usage.ru_stime
    return Outcome(code, texts[0], texts[1], seconds, busy, usage.ru_maxrss * 1024)


def _wait(child: int, deadline: float) -> tuple[int, resource.struct_rusage]:
    while time.monotonic() < deadline:
        ended, status, usage = os.wait4(child, os.WNOHANG)
        if ended:
            return status, usage
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    return status, usage


def _become(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], quick: bool, out: int, err: int
) -> None:
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        # pytest has put its own objects in place of the streams.
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ.update({"COLUMNS": "120", "NO_COLOR": "1", **environment})
        tempfile.tempdir = None  # which this process has asked for already
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if arguments[0] == "-m":
            sys.argv = [*arguments[1:]]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = ["onnxtool", *arguments]
            from onnxtool.cli.app import main
            from tests import efforts

            with efforts.meaning(quick=quick):
                main()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()

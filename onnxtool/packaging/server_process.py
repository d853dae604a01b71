"""A package in a process of its own: a server that is started, asked and ended, or its script, once for each run."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError, ResourceError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.archive import read_npz
from onnxtool.runtime.output_files import write_npz
from onnxtool.runtime.protocol_v2.client import RemoteRunner, V2Client

_PATIENCE = 120.0
_PAUSE = 0.05
# Variables of the caller that would bring code of the caller's into the package.
_OWN = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")


def clean_environment() -> dict[str, str]:
    """The environment without what would let a package find modules that it does not have itself."""
    kept = {k: v for k, v in os.environ.items() if k not in _OWN}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "ORT_DISABLE_TELEMETRY": "1"}


def free_port() -> int:
    """A port of localhost that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """A server that is started, waited for, and ended by `close`.

    Attributes:
        url: of the server.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        port: int,
        ready: str = "/v2/health/ready",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it and wait until it is ready.

        Args:
            command: what to start; programs beside it are found by their names.
            folder: where to start it.
            port: on which it will listen on localhost.
            ready: the path that answers 200 then.
            variables: of its environment, beside those that are there.

        Raises:
            InputError: it ends.
            ResourceError: it is not ready in two minutes.
        """
        self.url = f"http://127.0.0.1:{port}"
        self._ready = ready
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        environment = clean_environment()
        environment["PATH"] = os.pathsep.join([str(Path(command[0]).parent), environment.get("PATH", "")])
        self._process = subprocess.Popen(
            command, cwd=folder, env={**environment, **(variables or {})}, stdout=self._log, stderr=subprocess.STDOUT
        )
        # A Runner that nobody closes, as `compare` has it, must not leave its server behind.
        atexit.register(end_process, self._process)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise InputError(f"the package does not start: {self._last_line()}")
            client = V2Client(self.url, token="", seconds=5)
            try:
                if client.request("GET", self._ready)[0] == 200:
                    return
            except InputError:
                pass
            finally:
                client.close()
            time.sleep(_PAUSE)
        raise ResourceError(f"the package was not ready after {_PATIENCE:.0f} s: {self._last_line()}")

    def _last_line(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else "it says nothing"

    def close(self) -> None:
        """End the server."""
        end_process(self._process)
        self._log.close()


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and end it where it does not within ten seconds; nothing where it has ended."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class ServerRunner(RemoteRunner):
    """A Runner on a server that is started for it."""

    def __init__(self, command: Sequence[str], folder: Path, port: int, model: str) -> None:
        """Start it; arguments and errors as of `ServerProcess`.

        Args:
            command, folder, port: what to start, and where.
            model: its name in the V2 protocol.
        """
        self._server = ServerProcess(command, folder, port)
        try:
            super().__init__(f"{self._server.url}/v2/models/{model}", token="")
        except BaseException:
            self._server.close()
            raise

    def close(self) -> None:
        """End the server."""
        super().close()
        self._server.close()


class ScoringRunner:
    """A Runner on a server of another project's, which takes {"inputs": {name: lists}} and is started for it."""

    def __init__(self, server: ServerProcess, path: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]):
        """Take a server that is ready.

        Args:
            server: ended by `close`.
            path: that answers.
            inputs, outputs: of the model.
        """
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._server, self._path = server, path
        self._client = V2Client(server.url, token="", seconds=_PATIENCE)

    @classmethod
    def start(
        cls,
        python: str,
        command: Sequence[str],
        folder: Path,
        paths: tuple[str, str],
        specs: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
        variables: Mapping[str, str] | None = None,
    ) -> ScoringRunner:
        """On a free port, by a program that was installed beside an interpreter; errors as of `ServerProcess`.

        Args:
            python: the interpreter.
            command: the program's name and its arguments, but for the port.
            folder: where to start it.
            paths: that answers 200 when it is ready, and that takes inputs.
            specs: inputs and outputs of the model.
            variables: of its environment.
        """
        port, program = free_port(), str(Path(python).absolute().with_name(command[0]))
        started = [program, *command[1:], "--port", str(port)]
        return cls(ServerProcess(started, folder, port, paths[0], variables), paths[1], *specs)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One request.

        Raises:
            InputError: no answer, or another status than 200.
        """
        body = json.dumps({"inputs": {name: array.tolist() for name, array in feeds.items()}}).encode()
        status, _, answer = self._client.request("POST", self._path, body, {"Content-Type": "application/json"})
        if status != 200:
            raise InputError(f"the package's server answers {status}: {answer[:300].decode('utf-8', 'replace')}")
        document = json.loads(answer)
        values = document.get("outputs", document.get("predictions"))
        kinds = {s.name: object if isinstance(s.dtype, str) else s.dtype for s in self.outputs}
        return {name: np.array(values[name], kind) for name, kind in kinds.items()}

    def close(self) -> None:
        """End the server."""
        self._client.close()
        self._server.close()


def interpreter(folder: Path, fresh: bool, server: Sequence[str] = ()) -> tuple[str, str]:
    """The Python that a package is started with, and in words which.

    Args:
        folder: with a requirements.txt.
        fresh: make a virtual environment beside the folder and install its requirements there.
        server: what its server needs beside them.

    Raises:
        ResourceError: they cannot be installed.
    """
    if not fresh:
        return sys.executable, "the present interpreter"
    place = folder.parent / f"{folder.name}-venv"
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [str(_python(place)), "-m", "pip", "install", "-q", "-r", str(folder / "requirements.txt"), *server],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise ResourceError(f"a fresh environment cannot be made: {said[-1][:300] if said else command[2]}")
    return str(_python(place)), "a fresh virtual environment"


def _python(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


_SECONDS = 600
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import smoke_test
feeds = {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in np.load(sys.argv[2]).items()}
found = {n: np.asarray(a) for n, a in smoke_test.run(feeds).items()}
np.savez(sys.argv[3], **{n: a.astype("U") if a.dtype.kind == "O" else a for n, a in found.items()})
"""


class ScriptRunner:
    """Runs the code of a package folder, without the caller's modules."""

    def __init__(
        self,
        python: str,
        folder: Path,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        """Take what to run.

        Args:
            python: the interpreter.
            folder: with smoke_test.py.
            inputs, outputs: of the model.
        """
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._python, self._folder = python, folder.absolute()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One run.

        Raises:
            InputError: the package's code fails.
        """
        with tempfile.TemporaryDirectory(prefix="onnxtool-") as scratch:
            given, found = Path(scratch) / "inputs.npz", Path(scratch) / "outputs.npz"
            write_npz(given, dict(feeds))
            files = [str(self._folder), str(given), str(found)]
            done = subprocess.run(
                [self._python, "-I", "-B", "-c", _PROGRAM, *files],
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
                env=clean_environment(),
                cwd=scratch,
            )
            if done.returncode:
                said = done.stderr.strip().splitlines()
                raise InputError(f"the package's code fails: {said[-1][:300] if said else done.returncode}")
            return {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in read_npz(found).items()}

"""Child processes that take tasks, watched as a command is: what crashes one, or leaves its limits, fails alone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from onnxtool.errors import InputError, OnnxToolError, UnsupportedError
from onnxtool.model.safety import limits
from onnxtool.runtime.worker import isolation

_PATIENCE = 2.0  # seconds that a process has to end by itself


class TaskProcessEndedError(OnnxToolError):
    """The process ended before it answered.

    Attributes:
        code: its exit code; negative for a signal.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def start_python(
    module: str, connection: Connection, stderr: Any = subprocess.DEVNULL, inherited: Iterable[int] = ()
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE FD...`.

    Args:
        module: run as the child's main program.
        connection: the child's end; its descriptor is the first argument.
        stderr: where the child's messages go.
        inherited: further descriptors for the child, which are its next arguments.
    """
    passed = (connection.fileno(), *inherited)
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, passed)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=passed,
        env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


class TaskProcess:
    """The parent's side of one process. Not for several threads at a time."""

    def __init__(self, module: str, setup: object) -> None:
        """Start a process.

        Args:
            module: whose main program calls `run_tasks`.
            setup: sent to it before its first task.
        """
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  (a pipe that nobody reads would fill)
        self._connection, theirs = Pipe()
        with theirs:
            self._process = start_python(module, theirs, self._messages)
        self.ended = False
        with suppress(OSError):  # ended already: the first task is told
            self._connection.send((asdict(limits.DEFAULT), isolation.is_supervised(), setup))

    def run(self, task: object) -> Any:
        """Run one task; afterwards `ended` tells whether the process is still there.

        Raises:
            TaskProcessEndedError: the process ended instead.
        """
        try:
            self._connection.send(task)
            return self._connection.recv()
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            said = self.end() or f"its process ended with code {self._process.returncode}"
            raise TaskProcessEndedError(said, self._process.returncode) from None

    def end(self) -> str:
        """Let the process go: it ends when no more tasks can come. Gives the last line that it has told."""
        if self.ended:
            return ""
        self.ended = True
        self._connection.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.terminate()  # it passes this on to the process that it watches
            self._process.wait()
        with self._messages as messages:
            messages.seek(0)
            lines = messages.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def run_tasks(prepare: Callable[[Any], Callable[[Any], object]]) -> None:
    """The child's side: runs tasks until the parent is gone.

    Args:
        prepare: makes of the setup what runs a task.
    """
    connection: Connection = Connection(int(sys.argv[1]))
    bounds, supervised, setup = connection.recv()
    for name, value in bounds.items():
        setattr(limits.DEFAULT, name, value)
    if supervised:
        isolation.supervise(_fail)
        if isolation.crashed_before():
            _fail("native code crashed on random inputs; give real ones with --data.", InputError.exit_code)
            sys.exit(InputError.exit_code)
        if said := isolation.unsettled_crash():
            _fail(said, UnsupportedError.exit_code)
            sys.exit(UnsupportedError.exit_code)
    # The parent wants to know why a process ended, not what libraries print; those who watch it still tell that.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    run = prepare(setup)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(run(task))


def _fail(line: str, _: int) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()

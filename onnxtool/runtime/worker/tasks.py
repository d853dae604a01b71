"""Child processes that take tasks, watched as a command is: what crashes one, or leaves its limits, fails alone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from threading import local
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
    module: str, *arguments: object, variables: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start `python -m MODULE ARGUMENT...`, which looks for modules where this process does.

    Not in the folder that it works in: that may be a stranger's, with a numpy.py beside the model.

    Args:
        module: of Python.
        arguments: for its command line.
        variables: of the environment, beside those of this process.
        options: as of Popen.
    """
    path = os.pathsep.join(place or os.getcwd() for place in sys.path)
    environment = {**os.environ, **(variables or {}), "PYTHONWARNINGS": "ignore", "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-P", "-m", module, *map(str, arguments)], env=environment, **options)


def run_python(
    module: str,
    *arguments: object,
    seconds: float,
    given: bytes | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`start_python`, and wait for its end.

    Args:
        module, arguments, variables: as there.
        given: to read from stdin.
        seconds: that it may take.

    Raises:
        subprocess.TimeoutExpired: it took longer, and was ended.
    """
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with start_python(module, *arguments, variables=variables, **pipes) as process:
        try:
            output, messages = process.communicate(given, seconds)
        finally:
            process.kill()
    told = (part.decode(errors="replace") for part in (output, messages))
    return subprocess.CompletedProcess(process.args, process.returncode, *told)


class TaskProcess:
    """The parent's side of one process. Not for several threads at a time."""

    def __init__(self, module: str, setup: object) -> None:
        """Start a process.

        Args:
            module: whose main program calls `run_tasks`.
            setup: sent to it before its first task.
        """
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  (a pipe that nobody reads would fill)
        self._process = start_python(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages)
        self.ended = False
        with suppress(OSError):  # ended already: the first task is told
            self._send((asdict(limits.DEFAULT), isolation.is_supervised(), setup))

    def run(self, task: object) -> Any:
        """Run one task; afterwards `ended` tells whether the process is still there.

        Raises:
            TaskProcessEndedError: the process ended instead.
        """
        try:
            self._send(task)
            assert self._process.stdout is not None
            return pickle.load(self._process.stdout)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            said = self.end() or f"its process ended with code {self._process.returncode}"
            raise TaskProcessEndedError(said, self._process.returncode) from None

    def end(self) -> str:
        """Let the process go: it ends when no more tasks can come. Gives the last line that it has told."""
        if self.ended:
            return ""
        self.ended = True
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.terminate()  # it passes this on to the process that it watches
            self._process.wait()
        self._process.stdout.close()
        with self._messages as messages:
            messages.seek(0)
            lines = messages.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _send(self, value: object) -> None:
        assert self._process.stdin is not None
        pickle.dump(value, self._process.stdin)
        self._process.stdin.flush()


class TaskPool:
    """Threads with a process of their own each, which is started when it is needed; one that ends fails its task alone.

    Attributes:
        threads: call `run` in one of these.
    """

    def __init__(self, module: str, setup: object, jobs: int) -> None:
        """Take what to start, as of `TaskProcess`, and how many at a time."""
        self.threads = ThreadPoolExecutor(jobs)
        self._start = partial(TaskProcess, module, setup)
        self._own = local()
        self._started: list[TaskProcess] = []

    def run(self, task: object) -> Any:
        """Run a task in this thread's process; raises as of `TaskProcess.run`."""
        process: TaskProcess | None = getattr(self._own, "process", None)
        if process is None or process.ended:
            process = self._own.process = self._start()
            self._started.append(process)
        return process.run(task)

    def close(self) -> None:
        """End the processes; tasks that have not begun are left."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for process in self._started:
            process.end()


def run_tasks(prepare: Callable[[Any], Callable[[Any], object]]) -> None:
    """The child's side: runs tasks until the parent is gone.

    Args:
        prepare: makes of the setup what runs a task.
    """
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # native code may print
    bounds, supervised, setup = pickle.load(source)
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
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    run = prepare(setup)
    while True:
        try:
            task = pickle.load(source)
        except EOFError:
            return
        pickle.dump(run(task), answers)
        answers.flush()


def _fail(line: str, _: int) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()

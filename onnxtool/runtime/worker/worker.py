"""A model in a child process: where it crashes or hangs, its caller gets an error, and the next run a new process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool import errors
from onnxtool.errors import OnnxToolError, ResourceError
from onnxtool.model.safety import limits
from onnxtool.model.spec import TensorSpec
from onnxtool.options.session import DEFAULT, SessionOptions
from onnxtool.runtime.feeds import check_feeds, feeds_bytes
from onnxtool.runtime.session.session import bytes_beside
from onnxtool.runtime.worker.channel import RUN_NUMBER, Channel, Region
from onnxtool.runtime.worker.errors import OutOfTableError, WorkerDiedError, WorkerTimeoutError
from onnxtool.runtime.worker.fork_server import fork_process
from onnxtool.runtime.worker.isolation import native_limits
from onnxtool.runtime.worker.tasks import start_python
from onnxtool.runtime.worker.watchdog import MOST_STRETCH, resident_bytes, signal_name

# A run that is asked to end has so many seconds to come to the end of a node.
_GRACE = 1.0
_FORKS = sys.platform == "linux"
_LOADING, _RUNNING = "loading the model", "running the model"


class Worker:
    """A Runner in a child process. Threads wait for each other: one run at a time."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        options: SessionOptions = DEFAULT,
        *,
        memory_bytes: int | None = None,
        module: str = "onnxtool.runtime.worker.child",
    ) -> None:
        """Start a process and load the model there.

        Args:
            model: a file, which must stay as it is, or serialized bytes.
            options: how to run it.
            memory_bytes: for one run beyond what the loaded model takes; by default as for a guarded call.
            module: what the process runs: its `main` calls `serve_runs`.

        Raises:
            WorkerDiedError: the process died.
            WorkerTimeoutError: loading took too long.
            OnnxToolError: as of `OnnxRunner.open`.
        """
        self._model = model if isinstance(model, bytes) else os.fspath(model)
        self._options, self._memory_bytes, self._module = options, memory_bytes, module
        self._size = len(model) if isinstance(model, bytes) else bytes_beside(Path(model))
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._ended = ""  # how the last process did
        self.restart()

    def check(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Hold feeds against what the model takes.

        Raises:
            InputError: as of `check_feeds`.
        """
        check_feeds(self.inputs, feeds)

    def run(self, feeds: Mapping[str, np.ndarray], seconds: float | None = None) -> dict[str, Any]:
        """One forward pass.

        Args:
            feeds: by name.
            seconds: for the run; by default as for a guarded call.

        Raises:
            WorkerDiedError: the process died of it.
            WorkerTimeoutError: it took longer, and the process was ended.
            InputError, ResourceError, UnsupportedError: as of `OnnxRunner.run`.
        """
        self.check(feeds)
        with self._lock:
            if seconds is None:
                seconds = self.usual_seconds(feeds) * MOST_STRETCH
            self.begin(feeds, seconds)
            return self.finish()

    def usual_seconds(self, feeds: Mapping[str, np.ndarray]) -> float:
        """What a run on these feeds may take on a machine that does nothing else."""
        return native_limits(self._size, feeds_bytes(feeds))[0]

    def begin(self, feeds: Mapping[str, np.ndarray], seconds: float) -> None:
        """Begin a run on feeds that have passed `check`; `finish` gives its outputs. No other run may be under way.

        Raises:
            WorkerDiedError, WorkerTimeoutError: as of `run`.
        """
        self._send(self._child or self._start(), dict(feeds), seconds, _RUNNING)

    def finish(self, show: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
        """The outputs of the run that has begun, whose texts are shown as they come; errors as of `run`."""
        child = self._child
        if child is None:
            raise WorkerDiedError(f"the process of the model {self._ended or 'has ended'} while {_RUNNING}.")
        while (answer := self._receive(child, _RUNNING))[0] == "shown":
            show(str(answer[1]))
        return answer[1]  # type: ignore[no-any-return]

    def fileno(self) -> int:
        """What can be read when `finish` will not wait."""
        child = self._child
        return -1 if child is None else child.channel.socket.fileno()

    def has_answered(self) -> bool:
        """Whether what can be read is an answer; else the process has ended, and `finish` waits until it is gone."""
        child = self._child
        with suppress(OSError):
            return child is not None and bool(child.channel.socket.recv(1, socket.MSG_PEEK))
        return False

    def restart(self) -> None:
        """A new process; errors as of `__init__`."""
        with self._lock:
            self._end()
            self._start()

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        child = self._child
        return child is not None and child.process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process's id."""
        return None if self._child is None else self._child.process.pid

    @property
    def growth(self) -> int:
        """Bytes of memory that the process has taken since the model was loaded, and not given back."""
        child = self._child
        return 0 if child is None else resident_bytes(child.process.pid) - child.loaded_bytes

    def interrupt(self) -> None:
        """Ask the run that is under way to end, from another thread; a moment later end it with its process."""
        child = self._child
        if child is not None:
            child.interrupt()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _start(self) -> _Child:
        child = self._child = _Child(self._module)
        told = (self._model, self._size, self._options, asdict(limits.DEFAULT), self._memory_bytes)
        seconds = native_limits(self._size)[0] * MOST_STRETCH
        self._send(child, told, seconds, _LOADING)
        self.inputs, self.outputs = self._receive(child, _LOADING)[1:]
        child.loaded_bytes = resident_bytes(child.process.pid)
        return child

    def _send(self, child: _Child, message: object, seconds: float, what: str) -> None:
        child.messages, child.busy, child.seconds = child.messages + 1, True, seconds
        child.channel.socket.settimeout(seconds)
        with self._explained(what, seconds):
            child.channel.send(message)

    def _receive(self, child: _Child, what: str) -> tuple[Any, ...]:
        with self._explained(what, child.seconds):
            answer: tuple[Any, ...] = child.channel.receive_arrays()
        child.busy = answer[0] == "shown"
        if answer[0] == "error":
            raise _error(*answer[1:])
        return answer

    @contextmanager
    def _explained(self, what: str, seconds: float) -> Iterator[None]:
        """Turn the end of a conversation into its cause."""
        try:
            yield
        except TimeoutError:
            self._end()
            told = f"it took longer than {seconds:g} s while {what}; its process was ended."
            raise WorkerTimeoutError(told) from None
        except (EOFError, OSError, ValueError) as error:
            ending = self._end(by_itself=True)
            raise WorkerDiedError(f"the process of the model {ending} while {what}.") from error

    def _end(self, *, by_itself: bool = False) -> str:
        """End the process; how it had ended by itself."""
        child, self._child = self._child, None
        if child is None:
            return ""
        self._ended = child.end(by_itself=by_itself)
        return self._ended

    def __del__(self) -> None:
        with suppress(Exception):
            self._end()


class TrialWorker(Worker):
    """A Worker for inputs that nobody gave: a run that does not end gets no more time because the machine is busy."""

    def run(self, feeds: Mapping[str, np.ndarray], seconds: float | None = None) -> dict[str, Any]:
        """One forward pass, as of `Worker.run`."""
        return super().run(feeds, seconds or self.usual_seconds(feeds))


class _Child:
    """One process and what leads to it.

    Attributes:
        messages: sent to it.
        busy: whether the last of them has no answer yet.
        seconds: that it may take.
        loaded_bytes: of its memory, when the model was loaded.
    """

    def __init__(self, module: str) -> None:
        self._opened = ExitStack()
        try:
            connection, theirs = socket.socketpair()
            self._opened.callback(connection.close)
            with theirs:
                sending, receiving = self._region(), self._region()
                self.channel = Channel(connection, sending, receiving)
                reader, self._control = os.pipe()
                self._opened.callback(os.close, self._control)
                with open(reader, "rb"):
                    passed = (theirs.fileno(), sending.descriptor, receiving.descriptor, reader)
                    self.process = fork_process(module, passed) if _FORKS else _new_process(module, passed)
        except OSError as error:
            self._opened.close()
            raise ResourceError(f"the process of the model cannot be started ({error}).") from error
        self.messages, self.busy, self.seconds = 0, False, 0.0
        self.loaded_bytes = 0

    def _region(self) -> Region:
        region = Region()
        self._opened.callback(region.close)
        return region

    def interrupt(self) -> None:
        if not self.busy:
            return
        number = self.messages
        with suppress(OSError):
            os.write(self._control, RUN_NUMBER.pack(number))
        timer = threading.Timer(_GRACE, self._kill_in, (number,))
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # the system has no thread
            self._kill_in(number)

    def _kill_in(self, number: int) -> None:
        if self.busy and self.messages == number:
            self.process.kill()

    def end(self, *, by_itself: bool) -> str:
        """End the process, whatever it does; how it had ended before."""
        if by_itself:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE)  # its end of the socket closes before it has ended
        code = self.process.poll()
        self.process.kill()
        self.process.wait()
        self._opened.close()
        return _ending(code)


def _new_process(module: str, passed: Sequence[int]) -> subprocess.Popen[bytes]:
    """As of `fork_process`, where a process that has imported libraries may not fork."""
    nowhere: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return start_python(module, *passed, pass_fds=passed, start_new_session=True, **nowhere)


def _ending(code: int | None) -> str:
    if code is None:
        return "sent no answer"
    if code >= 0:
        return f"ended with code {code}"
    if code == -signal.SIGKILL:
        return "was killed, most likely because the machine is out of memory,"
    return f"crashed ({signal_name(-code)})"


def _error(kind: str, message: str, details: tuple[str, int] | None) -> Exception:
    """What the child raised."""
    if details is not None:
        return OutOfTableError(message, *details)
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, OnnxToolError):
        return known(message)
    return RuntimeError(message)

"""Processes of models, forked from one that has imported what they need: a start is ten times cheaper than a new one.

`python -m onnxtool.runtime.worker.fork_server` has no thread and opens no model. When the process that has started it
has gone, or asks it for no more, it ends with the last of its own.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

from onnxtool.runtime.worker.tasks import start_python

_PID, _STATUS = struct.Struct("<q"), struct.Struct("<i")
_MOST_BYTES, _MOST_FILES = 64 << 10, 16
_IDLE_SECONDS = 60.0  # without a process, after which it ends
_NEEDED = "onnxtool.runtime.worker.child"  # what every process imports
_TITLE = "onnxtool model"  # of the processes, as ps and top show it


class ForkedProcess:
    """What is used of `subprocess.Popen`, of a process that another one has started."""

    def __init__(self, pid: int, status: int) -> None:
        """Take its id, and the end of a pipe that tells how it has ended, which is then owned."""
        self.pid = pid
        self._status, self._lock = status, threading.Lock()
        self._ended = select.poll()
        self._ended.register(status, select.POLLIN)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with self._lock:
            return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it runs still after so many seconds.
        """
        with self._lock:
            code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        return code

    def kill(self) -> None:
        """End it."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _read(self, seconds: float | None) -> int | None:
        if self._code is None and self._ended.poll(None if seconds is None else 1e3 * seconds):
            told = os.read(self._status, _STATUS.size)
            os.close(self._status)
            self._code = _STATUS.unpack(told)[0] if told else -signal.SIGKILL  # who would tell it was killed
        return self._code


def fork_process(module: str, descriptors: Sequence[int]) -> ForkedProcess:
    """A process that runs `module.main()`, with the numbers of its copies of these descriptors as its arguments.

    Raises:
        OSError: none can be started.
    """
    global _server  # noqa: PLW0603  (one for this process)
    with _lock:
        if _server is not None:
            if _server.serves_here():
                with suppress(ConnectionError):  # it has had nothing to do for long, or somebody has killed it
                    return _server.fork(module, descriptors)
            _server.close()
            _server = None  # for good: the next one may not start
        _server = _ForkServer()
        return _server.fork(module, descriptors)


class _ForkServer:
    """The parent's side. Everything that a new process would have from this one has to be as it was at its start."""

    def __init__(self) -> None:
        self._made = self._state()
        self._socket, theirs = socket.socketpair()
        nowhere: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        with theirs:
            number = theirs.fileno()
            # Ctrl-C in a terminal goes to all of a session: the parent ends its children itself.
            self._process = start_python(__name__, number, pass_fds=[number], start_new_session=True, **nowhere)
        _ending[:] = [process for process in _ending if process.poll() is None]

    @staticmethod
    def _state() -> tuple[object, ...]:
        return os.getpid(), dict(os.environ), list(sys.path)

    def serves_here(self) -> bool:
        """Whether a process from there is as one from here; one that was started before a fork is that of another."""
        return self._made == self._state()

    def fork(self, module: str, descriptors: Sequence[int]) -> ForkedProcess:
        """As of `fork_process`."""
        with ExitStack() as used:
            folder = os.open(".", os.O_PATH)  # which may have no name any more
            used.callback(os.close, folder)
            status, theirs = os.pipe()
            used.callback(os.close, theirs)
            try:
                socket.send_fds(self._socket, [module.encode()], [*descriptors, folder, theirs])
                found = self._socket.recv(_PID.size, socket.MSG_WAITALL)
                if len(found) < _PID.size:
                    raise ConnectionResetError("the process that starts others has ended")
                pid = _PID.unpack(found)[0]
                if pid < 0:
                    raise OSError(-pid, os.strerror(-pid))
                return ForkedProcess(pid, status)
            except BaseException:
                os.close(status)
                raise

    def close(self) -> None:
        """Ask it for no more."""
        self._socket.close()
        _ending.append(self._process)


_server: _ForkServer | None = None
_ending = list[subprocess.Popen[bytes]]()  # which serve no more, and are there as long as their processes
_lock = threading.Lock()


@atexit.register
def _end() -> None:
    if _server is not None:
        _server.close()
    for process in _ending:
        process.returncode = 0  # Popen would warn of those that run still


class _Forks:
    """The server's side."""

    def __init__(self, parent: socket.socket) -> None:
        self._parent = parent
        self._statuses = dict[int, int]()  # of each process, what tells how it has ended
        self._wake, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # else nothing is woken
        self._own = (self._wake, writer, parent.fileno())

    def serve(self) -> None:
        """Fork until nobody asks for more and all have ended."""
        asks = [self._parent.fileno()]
        while asks or self._statuses:
            ready = select.select([*asks, self._wake], [], [], None if self._statuses else _IDLE_SECONDS)[0]
            if not ready:
                return
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap()
            if set(asks) & set(ready):
                module, files, _, _ = socket.recv_fds(self._parent, _MOST_BYTES, _MOST_FILES)
                if module:
                    self._parent.sendall(_PID.pack(self._fork(module.decode(), files)))
                else:
                    asks.clear()

    def _fork(self, module: str, files: list[int]) -> int:
        """The new process; where there is none, why, as a negative number of the system's."""
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or errno.EAGAIN)
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (*self._own, *self._statuses.values(), files.pop()):
                os.close(number)
            _run(module, files)
        if pid > 0:
            self._statuses[pid] = files.pop()
        for number in files:
            os.close(number)
        return pid

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = self._statuses.pop(ended[0])
                with suppress(OSError):
                    os.write(status, _STATUS.pack(os.waitstatus_to_exitcode(ended[1])))
                os.close(status)


def _run(module: str, files: list[int]) -> NoReturn:
    code: object = 1
    try:
        os.setsid()
        Path("/proc/self/comm").write_text(_TITLE, encoding="utf-8")
        os.fchdir(files[-1])
        os.close(files.pop())
        sys.argv = [module, *map(str, files)]
        importlib.import_module(module).main()
        code = 0
    except SystemExit as end:
        code = end.code
    finally:
        os._exit(code if isinstance(code, int) else 1)


def main() -> None:
    """Import what processes of models need, and fork them."""
    importlib.import_module(_NEEDED)
    gc.collect()
    gc.freeze()  # what is there is not looked at, and so not copied, in the processes
    with suppress(OSError):
        _Forks(socket.socket(fileno=int(sys.argv[1]))).serve()
    os._exit(0)


if __name__ == "__main__":
    main()

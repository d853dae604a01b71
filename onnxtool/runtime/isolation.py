"""Native code under watch: a file of a stranger may crash it, hang it, or make it take all memory.

The command line forks once, before anything heavy is imported, which costs a few milliseconds. The child does the
work; the parent only watches. Around each call that may go wrong on malformed data (checker, shape inference, session
creation, first run, framework loaders) the child says what it is about to do and how long that may take. When the
child crashes, or leaves its limits of time or memory in such a call, the parent ends it and says so in one line.

Inside a Python program (`import onnxtool`) nothing is forked, and `risky` does nothing.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from onnxtool.errors import InputError, ResourceError
from onnxtool.model.limits import DEFAULT

# What a malformed file may cost beyond the base in `Limits`; a legitimate one of the same size needs far less.
SECONDS_PER_BYTE = 20e-9
BYTES_PER_BYTE = 3
SECONDS_PER_INPUT_BYTE = 5e-6  # a megabyte of images is seconds of work for a large network
BYTES_PER_INPUT_BYTE = 200
# Time that the child waits for a processor is not counted, so that other work on the machine does not condemn a good
# file; but a call may not take longer than so many times its limit, whatever the reason.
MOST_STRETCH = 5.0

_TERMINATED = 143
_BUG = 70
_ENDINGS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (_TERMINATED, "terminated")}
_POLL_MS = 20
_IDLE_MS = 500
_NAP = 2.0  # seconds without a look at the child, which are no time of its own

Fail = Callable[[str, int], None]
_channel: list[int] = []  # the pipe to the parent, in a supervised child
_within: list[str] = []  # the risky call that this process is in
_ended_by: list[int] = []  # the signal that asked this process to end
_crashed: list[str] = []  # the risky call in which an earlier child of this command crashed


@contextmanager
def risky(what: str, size: int = 0, inputs: int = 0, scale: float = 1.0, retry: bool = False) -> Iterator[None]:
    """Mark a native call that malformed data may crash, hang or inflate.

    Args:
        what: in words that fit "while ...": "loading the model into the runtime".
        size: bytes of the file at hand; the limits grow with it.
        inputs: bytes that a model is run on; the limits grow faster with these.
        scale: multiplies the base of both limits.
        retry: a crash may be due to the inputs (sound shorter than a window, say, makes one real model divide by
            zero): the command is started once more, and `crashed_before` then tells it so.
    """
    if not _channel or _within:
        yield  # the limits of the outer call hold
        return
    _within.append(what)
    _tell(
        {
            "what": what,
            "seconds": scale * DEFAULT.max_seconds + SECONDS_PER_BYTE * size + SECONDS_PER_INPUT_BYTE * inputs,
            "retry": retry,
            "bytes": int(scale * DEFAULT.max_memory_bytes) + BYTES_PER_BYTE * size + BYTES_PER_INPUT_BYTE * inputs,
        }
    )
    try:
        yield
    finally:
        _within.clear()
        _tell({})


@contextmanager
def native_silence() -> Iterator[None]:
    """Keep what native code prints itself, a file's own texts among it, from the terminal of a supervised command."""
    if not _channel:
        yield
        return
    kept, sink = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def supervise(fail: Fail) -> None:
    """Go on in a child process; the parent watches it and exits with its code.

    Args:
        fail: called in the parent, with one line and an exit code, when the child could not say it itself.
    """
    if not hasattr(os, "fork"):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    while not _in_child(fail):
        pass


def crashed_before() -> bool:
    """True in the second attempt of a command, after a crash on inputs that another choice may avoid."""
    return bool(_crashed)


def ending_code() -> int | None:
    """The exit code of a watched process that a signal asked to end, whatever is raised now (the initialization of a
    library turns what a signal handler raises into an ImportError). Its parent says why it ended.
    """
    return _ENDINGS[signal.Signals(_ended_by[0])][0] if _ended_by else None


def is_supervised() -> bool:
    """True in a process that is watched: what it starts should be watched too."""
    return bool(_channel)


def _in_child(fail: Fail) -> bool:
    """Fork. True in the child; the parent ends with the child, or comes back when another attempt is worth it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _channel.append(writer)
        _end_in_order()
        with suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        return True
    os.close(writer)
    _crashed.append(_Watch(child, reader, fail).run())
    os.close(reader)
    return False


def _is_crash(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) not in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def _tell(message: dict[str, Any]) -> None:
    with suppress(OSError):
        os.write(_channel[0], json.dumps(message).encode() + b"\n")


def _end_in_order() -> None:
    """Let signals unwind the stack, so that temporary files go; the child ends when its parent is killed (Linux)."""

    def interrupt(*_: object) -> NoReturn:
        # A terminal sends Ctrl-C to parent and child, and the parent passes its own on: once is enough.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _ended_by.append(signal.SIGINT)
        raise KeyboardInterrupt

    def terminate(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _ended_by.append(signal.SIGTERM)
        sys.exit(_TERMINATED)

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, terminate)
    if sys.platform.startswith("linux"):
        with suppress(Exception):
            import ctypes

            ctypes.CDLL(None).prctl(1, signal.SIGTERM)


@dataclass
class _Call:
    """The risky call that the child is in."""

    what: str
    began: float
    seconds: float
    waited: dict[str, float]
    start_bytes: int
    extra_bytes: int
    retry: bool


class _Watch:
    """The parent's side."""

    def __init__(self, child: int, reader: int, fail: Fail) -> None:
        self.child, self.reader, self.fail = child, reader, fail
        self.call: _Call | None = None
        self.rest = b""
        self.open = True
        self.asked_to_end = 0
        self.looked = time.monotonic()

    def run(self) -> str:
        """Watch until the child ends, then end with its exit code.

        Returns:
            The call in which it crashed, when another attempt is worth it.
        """
        signal.signal(signal.SIGINT, self._pass_on)
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGALRM, lambda *_: self._kill(signal.SIGKILL))
        poller = select.poll()
        poller.register(self.reader, select.POLLIN)
        while True:
            if self.open and poller.poll(_POLL_MS if self.call else _IDLE_MS):
                data = os.read(self.reader, 65536)
                self.open = bool(data)
                self._listen(data)
            ended, status = os.waitpid(self.child, 0 if not self.open else os.WNOHANG)
            if ended and self.call and self.call.retry and not _crashed and _is_crash(status):
                return self.call.what
            if ended:
                self._exit(status)
            if self.call and not self.asked_to_end:
                self._enforce(self.call)

    def _listen(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        if lines:
            message = json.loads(lines[-1])
            self.looked = time.monotonic()
            self.call = (
                _Call(
                    message["what"],
                    time.monotonic(),
                    message["seconds"],
                    _waited(self.child),
                    _resident(self.child),
                    message["bytes"],
                    message["retry"],
                )
                if message
                else None
            )

    def _enforce(self, call: _Call) -> None:
        now = time.monotonic()
        if now - self.looked > _NAP:
            call.began += now - self.looked  # both of us were stopped (Ctrl-Z), or the machine slept
        self.looked = now
        taken = now - call.began
        if taken > call.seconds and taken - self._stretch(call) > call.seconds:
            self._stop(f"it took longer than {call.seconds:.0f} s while {call.what}")
        if _resident(self.child) - call.start_bytes > call.extra_bytes:
            self._stop(f"it took more than {call.extra_bytes / 1e9:.1f} GB of memory while {call.what}")

    def _stretch(self, call: _Call) -> float:
        """How long the call has waited for a processor: the thread that waited longest, since threads wait together."""
        waits = (now - call.waited.get(thread, 0.0) for thread, now in _waited(self.child).items())
        return min(max(waits, default=0.0), (MOST_STRETCH - 1) * call.seconds)

    def _stop(self, reason: str) -> NoReturn:
        self._kill(signal.SIGKILL)
        os.waitpid(self.child, 0)
        self.fail(
            f"stopped: {reason}. The file may be malformed; if you trust it, --limit changes this limit, and "
            "--no-isolation lifts it.",
            ResourceError.exit_code,
        )
        _leave(ResourceError.exit_code)

    def _exit(self, status: int) -> NoReturn:
        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
            asked = self.asked_to_end or next((n for n, (c, _) in _ENDINGS.items() if c == code), 0)
            if asked and code:
                self._end_as_asked(asked)
            _leave(code)
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in signal.Signals.__members__.values() else f"signal {number}"
        if self.asked_to_end or number in (signal.SIGINT, signal.SIGTERM):
            self._end_as_asked(self.asked_to_end or number)
        if number == signal.SIGKILL:
            self.fail(
                "the process was killed, most likely because the machine is out of memory.", ResourceError.exit_code
            )
            _leave(ResourceError.exit_code)
        if number == signal.SIGBUS:  # what reading beyond the end of a mapped file gives
            self.fail("a file was cut off, or could not be read, while it was in use.", InputError.exit_code)
            _leave(InputError.exit_code)
        if self.call:
            self.fail(
                f"native code crashed ({name}) while {self.call.what}; the file is malformed"
                + (", or cannot take such inputs." if self.call.retry else "."),
                InputError.exit_code,
            )
            _leave(InputError.exit_code)
        self.fail(f"this is a bug in onnxtool or a library it uses, please report it: crash ({name}).", _BUG)
        _leave(_BUG)

    def _end_as_asked(self, number: int) -> NoReturn:
        code, word = _ENDINGS[signal.Signals(number)]
        self.fail(f"{word}; nothing was left half-written.", code)
        _leave(code)

    def _pass_on(self, number: int, _: object) -> None:
        """Ask the child to end; a second later, or when asked twice, make it."""
        if self.asked_to_end:
            self._kill(signal.SIGKILL)
            return
        self.asked_to_end = number
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        self._kill(number)

    def _kill(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.child, number)


def _resident(pid: int) -> int:
    """Resident memory of a process in bytes, without pages of mapped files, which the system can take back at any
    time; 0 where the system does not tell.
    """
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _waited(pid: int) -> dict[str, float]:
    """Seconds for which each thread of a process was ready to run and had no processor; empty where Linux is not."""
    found = {}
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:
                found[thread] = int(file.read().split()[1]) / 1e9
    return found


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)

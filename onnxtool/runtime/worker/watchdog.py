"""The parent of a command: watches the child that does the work, and ends it when it leaves its limits.

See `isolation` for the child's side.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from onnxtool.errors import InputError, ResourceError

# Time that the child waits for a processor is not counted, so that other work on the machine does not condemn a good
# file; but a call may not take longer than so many times its limit, whatever the reason.
MOST_STRETCH = 5.0
# Exit code and word for each signal that asks a command to end.
ENDINGS = {signal.SIGINT: (130, "interrupted"), signal.SIGTERM: (143, "terminated")}

_BUG = 70
_POLL_MS = 20
_IDLE_MS = 500
_NAP = 2.0  # seconds without a look at the child, which are no time of its own

Fail = Callable[[str, int], None]


@dataclass(frozen=True)
class ProviderCall:
    """A native call that an execution provider other than the CPU's takes part in: a crash may be its own fault.

    Attributes:
        provider: its short name.
        what: the call, in words that fit "while ...".
        setting: an environment variable and its value, with which such a provider works on processors where it dies of
            an illegal instruction otherwise; None where none is known.
    """

    provider: str
    what: str
    setting: tuple[str, str] | None = None


@dataclass(frozen=True)
class Crash:
    """How a child died in a guarded call.

    Attributes:
        what: the call.
        signal: the signal's name.
        retry: whether other inputs may avoid it.
        provider: the provider's call inside it; None where the runtime's own code was at work.
    """

    what: str
    signal: str
    retry: bool
    provider: ProviderCall | None = None


@dataclass
class _Call:
    """The guarded call that the child is in."""

    what: str
    began: float
    seconds: float
    waited: dict[str, float]
    start_bytes: int
    extra_bytes: int
    retry: bool
    base: tuple[int, int] = (0, 0)  # the settings that these limits were made of: seconds, bytes
    provider: ProviderCall | None = None


class Watch:
    """Watches one child."""

    def __init__(self, child: int, reader: int, fail: Fail, *, again: Callable[[Crash], bool]) -> None:
        """Take the child's process id, the pipe it tells its calls through, and what says a line to people.

        Args:
            child: process id.
            reader: descriptor of the pipe.
            fail: called with one line and an exit code.
            again: whether another attempt follows a crash.
        """
        self.child, self.reader, self.fail, self.again = child, reader, fail, again
        self.call: _Call | None = None
        self.rest = b""
        self.open = True
        self.asked_to_end = 0
        self.looked = time.monotonic()

    def take_signals(self) -> None:
        """Pass signals that ask for an end on to the child."""
        signal.signal(signal.SIGINT, self._pass_on)
        signal.signal(signal.SIGTERM, self._pass_on)
        signal.signal(signal.SIGALRM, lambda *_: self._kill(signal.SIGKILL))

    def run(self) -> Crash:
        """Watch until the child ends, then end with its exit code.

        Returns:
            The crash that another attempt follows.
        """
        poller = select.poll()
        poller.register(self.reader, select.POLLIN)
        while True:
            if self.open and poller.poll(_POLL_MS if self.call else _IDLE_MS):
                self._read()
            ended, status = os.waitpid(self.child, 0 if not self.open else os.WNOHANG)
            if ended:
                while self.open and poller.poll(0):
                    self._read()  # told between the look at the pipe and the end: that a call was over, say
                crash = self._crash(status)
                if crash is not None and self.again(crash):
                    return crash
                self._exit(status)
            if self.call and not self.asked_to_end:
                self._enforce(self.call)

    def _read(self) -> None:
        data = os.read(self.reader, 65536)
        self.open = bool(data)
        self._listen(data)

    def _crash(self, status: int) -> Crash | None:
        """The crash that a child died of; None for another end, or outside of a guarded call."""
        if self.call is None or not _is_crash(status):
            return None
        return Crash(self.call.what, signal_name(os.WTERMSIG(status)), self.call.retry, self.call.provider)

    def _listen(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        begun = [i for i, message in enumerate(messages) if "more_bytes" not in message]
        if begun:
            self._begin(messages[begun[-1]])
        for message in messages[begun[-1] + 1 if begun else 0 :]:
            if self.call:
                self.call.seconds += message["more_seconds"]
                self.call.extra_bytes += message["more_bytes"]
                if "provider" in message:
                    self.call.provider = _provider(message["provider"])

    def _begin(self, message: dict[str, Any]) -> None:
        """A call begins, or, when there is nothing in the message, has ended."""
        self.looked = time.monotonic()
        self.call = (
            _Call(
                message["what"],
                time.monotonic(),
                message["seconds"],
                _waited(self.child),
                resident_bytes(self.child),
                message["bytes"],
                message["retry"],
                message["base"],
                _provider(message["provider"]),
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
            self._stop(
                f"it took longer than {call.seconds:.0f} s while {call.what}", f"--limit seconds=N (now {call.base[0]})"
            )
        if resident_bytes(self.child) - call.start_bytes > call.extra_bytes:
            self._stop(
                f"it took more than {call.extra_bytes / 1e9:.1f} GB of memory while {call.what}",
                f"--limit memory-bytes=N (now {call.base[1]:.2g})",
            )

    def _stretch(self, call: _Call) -> float:
        """How long the call has waited for a processor: the thread that waited longest, since threads wait together."""
        waits = (now - call.waited.get(thread, 0.0) for thread, now in _waited(self.child).items())
        return min(max(waits, default=0.0), (MOST_STRETCH - 1) * call.seconds)

    def _stop(self, reason: str, option: str) -> NoReturn:
        self._kill(signal.SIGKILL)
        os.waitpid(self.child, 0)
        self.fail(
            f"stopped: {reason}. The file may be malformed; if you trust it, {option} raises this limit, and "
            "--no-isolation lifts it.",
            ResourceError.exit_code,
        )
        _leave(ResourceError.exit_code)

    def _exit(self, status: int) -> NoReturn:
        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
            asked = self.asked_to_end or next((n for n, (c, _) in ENDINGS.items() if c == code), 0)
            if asked and code:
                self._end_as_asked(asked)
            _leave(code)
        number = os.WTERMSIG(status)
        name = signal_name(number)
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
        code, word = ENDINGS[signal.Signals(number)]
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


def _provider(told: Mapping[str, Any] | None) -> ProviderCall | None:
    """What the child told of a provider's call, as JSON has it."""
    if told is None:
        return None
    return ProviderCall(told["provider"], told["what"], told["setting"] and tuple(told["setting"]))


def signal_name(number: int) -> str:
    """What a signal is called: "SIGSEGV"; a number that this system does not know, by itself."""
    return signal.Signals(number).name if number in signal.Signals.__members__.values() else f"signal {number}"


def _is_crash(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) not in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def resident_bytes(pid: int) -> int:
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
    flush()
    os._exit(code)


def flush() -> None:
    """Write out what was printed, as far as that goes."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()

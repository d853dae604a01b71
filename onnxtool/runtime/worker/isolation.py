"""Native code under watch: a file of a stranger may crash it, hang it, or make it take all memory.

The command line forks once, before anything heavy is imported, which costs a few milliseconds. The child does the
work; the parent only watches. Around each call that may go wrong on malformed data (checker, shape inference, session
creation, first run, framework loaders) the child says what it is about to do and how long that may take. When the
child crashes, or leaves its limits of time or memory in such a call, the parent ends it and says so in one line.

Inside a Python program (`import onnxtool`) nothing is forked, and `guarded` does nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from onnxtool.model.safety.limits import DEFAULT, Limits
from onnxtool.runtime.worker.watchdog import ENDINGS, Fail, Watch

# What a malformed file may cost beyond the base in `Limits`; a legitimate one of the same size needs far less.
SECONDS_PER_BYTE = 20e-9
BYTES_PER_BYTE = 3
SECONDS_PER_INPUT_BYTE = 5e-6  # a megabyte of images is seconds of work for a large network
# Inputs made for what a file declares count up to here: else a small file gives itself time by declaring large ones.
_MOST_INPUTS = 1 << 24


@dataclass(frozen=True)
class ResourceAllowance:
    """What a kind of call may take beyond the base and what every call has for its file and its inputs.

    Attributes:
        seconds_per_byte: of the file.
        most_seconds: of those.
        bytes_per_byte: memory, likewise.
        bytes_per_input_byte: memory, of the inputs.
        scale: multiplies the base.
    """

    seconds_per_byte: float = 0.0
    most_seconds: float = 0.0
    bytes_per_byte: float = 0.0
    bytes_per_input_byte: float = 200.0
    scale: float = 1.0


NATIVE = ResourceAllowance()
# A framework runs the model to load, to trace and to export it: a deep one takes minutes, but its file is large then.
# The exporters of trees make an object of each number in each node, and Keras keeps what every layer gives.
FRAMEWORK = ResourceAllowance(
    seconds_per_byte=1e-3, most_seconds=990.0, bytes_per_byte=400.0, bytes_per_input_byte=600.0
)
# For code of the user's own.
OWN = ResourceAllowance(scale=100.0)


@dataclass
class _Process:
    """What this process knows of its own supervision.

    Attributes:
        channel: the pipe to the parent, in a supervised child; else None.
        within: of the guarded call that this process is in; None outside.
        input_bytes: of the largest inputs in that call.
        synthetic: whether inputs were made for what a file declares.
        ended_by: the signal that asked this process to end.
        crashed: the guarded call in which an earlier child of this command crashed.
    """

    channel: int | None = None
    within: ResourceAllowance | None = None
    input_bytes: int = 0
    synthetic: bool = False
    ended_by: signal.Signals | None = None
    crashed: str | None = None


_process = _Process()


@contextmanager
def guarded(
    what: str, size: int = 0, inputs: int = 0, pace: ResourceAllowance = NATIVE, retry: bool = False
) -> Iterator[None]:
    """Mark a native call that malformed data may crash, hang or inflate.

    Args:
        what: in words that fit "while ...": "loading the model into the runtime".
        size: bytes of the file at hand; the limits grow with it.
        inputs: bytes that a model is run on; the limits grow faster with these. Inside another guarded call, whose
            limits hold, they grow by what these are larger than any before.
        pace: what this kind of call may take.
        retry: a crash may be due to the inputs (sound shorter than a window, say, makes one real model divide by
            zero): the command is started once more, and `crashed_before` then tells it so.
    """
    if _process.channel is None:
        yield
        return
    counted = min(inputs, _MOST_INPUTS) if _process.synthetic else inputs
    if _process.within is not None:
        _extend(counted, _process.within)
        yield
        return
    _process.within, _process.input_bytes = pace, counted
    _tell({"what": what, "retry": retry, **_limits(size, counted, pace)})
    try:
        yield
    finally:
        _process.within = None
        _tell({})


def _limits(size: int, inputs: int, pace: ResourceAllowance) -> dict[str, Any]:
    # Raising the base raises the time for a framework's file in proportion: its own cap is no other limit.
    own = min(pace.most_seconds, pace.seconds_per_byte * size) * DEFAULT.max_seconds / Limits().max_seconds
    seconds = pace.scale * DEFAULT.max_seconds + own + SECONDS_PER_BYTE * size + SECONDS_PER_INPUT_BYTE * inputs
    own_bytes = (BYTES_PER_BYTE + pace.bytes_per_byte) * size
    return {
        "seconds": seconds,
        "bytes": int(pace.scale * DEFAULT.max_memory_bytes + own_bytes + pace.bytes_per_input_byte * inputs),
        "base": (DEFAULT.max_seconds, DEFAULT.max_memory_bytes),
    }


def _extend(inputs: int, pace: ResourceAllowance) -> None:
    """Give the call that this process is in, which has this pace, what larger inputs may take."""
    more = inputs - _process.input_bytes
    if more > 0:
        _process.input_bytes = inputs
        _tell({"more_seconds": SECONDS_PER_INPUT_BYTE * more, "more_bytes": int(pace.bytes_per_input_byte * more)})


def note_synthetic_inputs() -> None:
    """Note that inputs were made for the shapes that a file declares."""
    _process.synthetic = True


@contextmanager
def native_silence() -> Iterator[None]:
    """Keep what native code prints itself, a file's own texts among it, from the streams of a supervised command."""
    if _process.channel is None:
        yield
        return
    with descriptors_silenced(1, 2):
        yield


@contextmanager
def descriptors_silenced(*descriptors: int) -> Iterator[None]:
    """Send what is written to these descriptors (1 is stdout, 2 is stderr) nowhere; native code knows no other way.

    A process may lack some of them; those are left alone.
    """
    _flush()
    kept: list[tuple[int, int]] = []
    for descriptor in descriptors:
        with suppress(OSError):
            kept.append((descriptor, os.dup(descriptor)))
    sink = os.open(os.devnull, os.O_WRONLY)
    for descriptor, _ in kept:
        os.dup2(sink, descriptor)
    os.close(sink)
    try:
        yield
    finally:
        _flush()
        for descriptor, own in kept:
            with suppress(OSError):
                os.dup2(own, descriptor)
            os.close(own)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def supervise(fail: Fail) -> None:
    """Go on in a child process; the parent watches it and exits with its code.

    Args:
        fail: called in the parent, with one line and an exit code, when the child could not say it itself.
    """
    if not hasattr(os, "fork"):
        return
    _flush()
    while not _in_child(fail):
        pass


def crashed_before() -> bool:
    """True in the second attempt of a command, after a crash on inputs that another choice may avoid."""
    return _process.crashed is not None


def crashed_while(what: str) -> bool:
    """True in the second attempt of a command whose first crashed in the guarded call of this name."""
    return _process.crashed == what


def ending_code() -> int | None:
    """The exit code of a watched process that a signal asked to end, whatever is raised now (the initialization of a
    library turns what a signal handler raises into an ImportError). Its parent says why it ended.
    """
    return None if _process.ended_by is None else ENDINGS[_process.ended_by][0]


def is_supervised() -> bool:
    """True in a process that is watched: what it starts should be watched too."""
    return _process.channel is not None


def _in_child(fail: Fail) -> bool:
    """Fork. True in the child; the parent ends with the child, or comes back when another attempt is worth it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _process.channel = writer
        _end_in_order()
        with suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        return True
    os.close(writer)
    _process.crashed = Watch(child, reader, fail, may_retry=_process.crashed is None).run()
    os.close(reader)
    return False


def _tell(message: dict[str, Any]) -> None:
    if _process.channel is None:
        return
    with suppress(OSError):
        os.write(_process.channel, json.dumps(message).encode() + b"\n")


def _end_in_order() -> None:
    """Let signals unwind the stack, so that temporary files go; the child ends when its parent is killed (Linux)."""

    def interrupt(*_: object) -> NoReturn:
        # A terminal sends Ctrl-C to parent and child, and the parent passes its own on: once is enough.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _process.ended_by = signal.SIGINT
        raise KeyboardInterrupt

    def terminate(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _process.ended_by = signal.SIGTERM
        sys.exit(ENDINGS[signal.SIGTERM][0])

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, terminate)
    if sys.platform.startswith("linux"):
        with suppress(Exception):
            import ctypes

            ctypes.CDLL(None).prctl(1, signal.SIGTERM)

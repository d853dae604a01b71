"""Native code under watch: a file of a stranger may crash it, hang it, or make it take all memory.

The command line forks once, before anything heavy is imported, which costs a few milliseconds. The child does the
work; the parent only watches. Around each call that may go wrong on malformed data (checker, shape inference, session
creation, first run, framework loaders) the child says what it is about to do and how long that may take. When the
child crashes, or leaves its limits of time or memory in such a call, the parent ends it and says so in one line.
Where an execution provider took part in a call that crashed, the command is started again, to tell whether the file or
the provider is at fault: with a setting known to help, then with the CPU in the provider's place.

Inside a Python program (`import onnxtool`) nothing is forked, and `guarded` does nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from onnxtool.model.safety.limits import DEFAULT, Limits
from onnxtool.runtime.worker.watchdog import ENDINGS, Crash, Fail, ProviderCall, Watch, flush

# What a malformed file may cost beyond the base in `Limits`; a legitimate one of the same size needs far less.
SECONDS_PER_BYTE = 20e-9
BYTES_PER_BYTE = 3
SECONDS_PER_INPUT_BYTE = 5e-6  # a megabyte of images is seconds of work for a large network
# Inputs made for what a file declares count up to here: else a small file gives itself time by declaring large ones.
_MOST_INPUTS = 1 << 24
# Crashes of providers after which a command is started again: of one as asked and with a setting, and of some others.
_MOST_CRASHES = 4


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
GRAPH = ResourceAllowance(seconds_per_byte=3e-5, most_seconds=120.0)  # Python over nodes of 20 bytes and more
# A framework runs the model to load, to trace and to export it: a deep one takes minutes, but its file is large then.
# The exporters of trees make an object of each number in each node, and Keras keeps what every layer gives.
FRAMEWORK = ResourceAllowance(
    seconds_per_byte=1e-3, most_seconds=990.0, bytes_per_byte=400.0, bytes_per_input_byte=600.0
)
# For code of the user's own.
OWN = ResourceAllowance(scale=100.0)


@dataclass(frozen=True)
class Attempt:
    """How a start of the command differs from the first.

    Attributes:
        crashed: the guarded call in which an earlier one crashed, on inputs that another choice may avoid.
        providers: crashes of execution providers, the last one last; the CPU takes their places, unless `setting` is
            there.
        setting: an environment variable and its value, under which the provider is tried once more.
    """

    crashed: str | None = None
    providers: tuple[Crash, ...] = ()
    setting: tuple[str, str] | None = None


@dataclass
class _Process:
    """What this process knows of its own supervision.

    Attributes:
        channel: the pipe to the parent, in a supervised child; else None.
        within: of the guarded call that this process is in; None outside.
        input_bytes: of the largest inputs in that call.
        synthetic: whether inputs were made for what a file declares.
        ended_by: the signal that asked this process to end.
        attempt: how this start of the command differs from the first.
    """

    channel: int | None = None
    within: ResourceAllowance | None = None
    input_bytes: int = 0
    synthetic: bool = False
    ended_by: signal.Signals | None = None
    attempt: Attempt = field(default_factory=Attempt)


_process = _Process()


@contextmanager
def guarded(
    what: str,
    size: int = 0,
    inputs: int = 0,
    pace: ResourceAllowance = NATIVE,
    retry: bool = False,
    provider: ProviderCall | None = None,
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
        provider: the execution provider that takes part, where that is not the CPU's; inside another guarded call too.
    """
    if _process.channel is None:
        yield
        return
    counted = min(inputs, _MOST_INPUTS) if _process.synthetic else inputs
    if _process.within is not None:
        _extend(counted, _process.within)
        with _told(provider):
            yield
        return
    _process.within, _process.input_bytes = pace, counted
    seconds, most = native_limits(size, counted, pace)
    limits = {"seconds": seconds, "bytes": most, "base": (DEFAULT.max_seconds, DEFAULT.max_memory_bytes)}
    _tell({"what": what, "retry": retry, "provider": _plain(provider), **limits})
    try:
        yield
    finally:
        _process.within = None
        _tell({})


@contextmanager
def memory_bounded(inputs: int) -> Iterator[None]:
    """Inside the block, what takes too much memory at once is refused it, where `guarded` would end the process.

    Args:
        inputs: bytes that a model is run on, as of `guarded`. Outside a guarded process half of the free memory is the
            limit.
    """
    taken = data_bytes()
    if not taken:
        yield
        return
    import resource

    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    most = free if _process.channel is None else native_limits(0, inputs)[1] * 9 // 10
    before, wanted = resource.getrlimit(resource.RLIMIT_DATA), taken + most
    if 0 <= before[0] <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def data_bytes() -> int:
    """Memory that this process has asked for, which RLIMIT_DATA counts; 0 where the system does not tell."""
    with suppress(OSError, ValueError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@contextmanager
def _told(provider: ProviderCall | None) -> Iterator[None]:
    """A provider's call inside a guarded one."""
    if provider is None:
        yield
        return
    _tell({"more_seconds": 0.0, "more_bytes": 0, "provider": _plain(provider)})
    try:
        yield
    finally:
        _tell({"more_seconds": 0.0, "more_bytes": 0, "provider": None})


def _plain(provider: ProviderCall | None) -> dict[str, Any] | None:
    return None if provider is None else asdict(provider)


def native_limits(size: int, inputs: int = 0, pace: ResourceAllowance = NATIVE) -> tuple[float, int]:
    """Seconds, and bytes of memory beyond what is taken, for a native call; arguments as of `guarded`."""
    # Raising the base raises the time for a framework's file in proportion: its own cap is no other limit.
    own = min(pace.most_seconds, pace.seconds_per_byte * size) * DEFAULT.max_seconds / Limits().max_seconds
    seconds = pace.scale * DEFAULT.max_seconds + own + SECONDS_PER_BYTE * size + SECONDS_PER_INPUT_BYTE * inputs
    own_bytes = (BYTES_PER_BYTE + pace.bytes_per_byte) * size
    return seconds, int(pace.scale * DEFAULT.max_memory_bytes + own_bytes + pace.bytes_per_input_byte * inputs)


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
    flush()
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
        flush()
        for descriptor, own in kept:
            with suppress(OSError):
                os.dup2(own, descriptor)
            os.close(own)


def supervise(fail: Fail) -> None:
    """Go on in a child process; the parent watches it and exits with its code.

    Args:
        fail: called in the parent, with one line and an exit code, when the child could not say it itself.
    """
    if not hasattr(os, "fork"):
        return
    flush()
    while not _in_child(fail):
        pass


def next_attempt(last: Attempt, crash: Crash) -> Attempt | None:
    """What to try after a crash; None where it is clear what crashed.

    A provider is tried with the setting that may help it, where an instruction was illegal; then the CPU takes its
    place. What crashes there too, or without a provider, may be due to the inputs: once, other inputs are tried.
    """
    call = crash.provider
    if call is not None:
        wanted = call.setting if crash.signal == "SIGILL" and not last.providers else None
        if wanted is not None and wanted[0] in os.environ:
            wanted = None
        return Attempt(last.crashed, (*last.providers, crash), wanted) if len(last.providers) < _MOST_CRASHES else None
    if crash.retry and last.crashed is None:
        return Attempt(crash.what)
    return None


def crashed_before() -> bool:
    """True in the second attempt of a command, after a crash on inputs that another choice may avoid."""
    return _process.attempt.crashed is not None


def crashed_while(what: str) -> bool:
    """True in the second attempt of a command whose first crashed in the guarded call of this name."""
    return _process.attempt.crashed == what


def provider_crash(*providers: str) -> Crash | None:
    """The crash of one of these providers (short names) whose place the CPU takes in this attempt; None without."""
    if _process.attempt.setting is not None:
        return None
    found = (c for c in _process.attempt.providers if c.provider is not None and c.provider.provider in providers)
    return next(found, None)


def unsettled_crash() -> str:
    """A line for a process that cannot do its work again after a provider's crash; "" where none crashed."""
    crash = next(iter(_process.attempt.providers), None)
    if crash is None or crash.provider is None:
        return ""
    return (
        f"{crash.provider.provider} crashed ({crash.signal}) while {crash.provider.what}; onnxtool run on this model "
        f"with --provider {crash.provider.provider} tells whether the file or this processor is why."
    )


def helping_setting() -> str:
    """A sentence on the setting under which a provider that crashed before runs in this attempt; "" without one."""
    setting = _process.attempt.setting
    if setting is None:
        return ""
    crash, (name, value) = _process.attempt.providers[-1], setting
    provider = "" if crash.provider is None else crash.provider.provider
    return (
        f"{provider} crashes on this processor ({crash.signal}); it was started again with "
        f"{name}={value}, which keeps it from the instructions that fail. Set it yourself to save the first start."
    )


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
    # A signal that comes before its handler is there would end one process and leave the other: it waits until then.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    child = os.fork()
    if child == 0:
        os.close(reader)
        _process.channel = writer
        if _process.attempt.setting is not None:
            name, value = _process.attempt.setting
            os.environ[name] = value
        _end_in_order()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        with suppress(ImportError, ValueError, OSError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        return True
    os.close(writer)
    last = _process.attempt
    watch = Watch(child, reader, fail, again=lambda crash: next_attempt(last, crash) is not None)
    watch.take_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    crash = watch.run()
    _process.attempt = next_attempt(last, crash) or last
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

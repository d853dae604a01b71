"""The child's side of a `Worker`: `python -m onnxtool.runtime.worker.child` holds one model and runs it."""

from __future__ import annotations

import os
import resource
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

import onnxruntime as ort

from onnxtool.errors import OnnxToolError
from onnxtool.model.safety import limits
from onnxtool.runtime.feeds import feeds_bytes
from onnxtool.runtime.runner import OnnxRunner, OutOfTableError, describe_failure
from onnxtool.runtime.worker.channel import RUN_NUMBER, Channel, Region
from onnxtool.runtime.worker.isolation import native_limits


class _Stop:
    """Ends this process when its parent has gone, and the run that is under way when the parent asks for it."""

    def __init__(self, descriptor: int) -> None:
        self._run = 1, ort.RunOptions()
        self._descriptor = descriptor
        threading.Thread(target=self._watch, daemon=True).start()

    def next_run(self) -> ort.RunOptions:
        """Options of the next run."""
        options = ort.RunOptions()
        options.log_severity_level = 4  # what a caller gives wrong is an answer, not a line of the runtime's
        self._run = self._run[0] + 1, options
        return options

    def _watch(self) -> None:
        while asked := os.read(self._descriptor, RUN_NUMBER.size):
            number, options = self._run
            if RUN_NUMBER.unpack(asked)[0] == number:
                options.terminate = True
        os._exit(0)


def _limit_memory(more: int) -> None:
    """Allow `more` bytes of memory beyond what is taken now; where the system cannot say, any number."""
    with suppress(OSError, ValueError):
        with open("/proc/self/statm", "rb") as file:
            taken = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        wanted = taken + more
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard < 0 else min(wanted, hard), hard))


def _plain(error: Exception) -> tuple[str, str, str, object]:
    """An error as the parent makes it again."""
    if isinstance(error, OutOfTableError):
        return "error", "OutOfTableError", str(error), (error.input, error.value)
    if isinstance(error, MemoryError):
        return "error", "ResourceError", "out of memory", None
    if isinstance(error, OnnxToolError):
        return "error", type(error).__name__, str(error), None
    return "error", "RuntimeError", f"{type(error).__name__}: {error}", None


def _main(connection: int, receiving: int, sending: int, stop: int) -> None:
    channel = Channel(Connection(connection), Region(sending), Region(receiving))
    model, size, options, bounds, memory_bytes = channel.receive()
    for name, value in bounds.items():
        setattr(limits.DEFAULT, name, value)
    stopper = _Stop(stop)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        _limit_memory(memory_bytes or native_limits(size)[1])
        runner = OnnxRunner.open(model, options)
    except Exception as error:
        channel.send(_plain(error))
        return
    channel.send(("ready", runner.inputs, runner.outputs))
    while True:
        feeds = channel.receive()
        try:
            _limit_memory(memory_bytes or native_limits(size, feeds_bytes(feeds))[1])
            outputs = runner.run_unchecked(feeds, stopper.next_run())
        except Exception as error:
            channel.send(_plain(describe_failure(error, feeds)))
        else:
            channel.send(("outputs", outputs))


if __name__ == "__main__":
    with suppress(EOFError, OSError):  # the parent has gone
        _main(*map(int, sys.argv[1:]))

"""The child's side of a `Worker`: holds one model and runs it.

Modules of other models have a `main` of their own, which calls `serve_runs` with what opens theirs.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnxruntime as ort

from onnxtool.errors import OnnxToolError, ResourceError
from onnxtool.model.safety import limits
from onnxtool.model.spec import TensorSpec
from onnxtool.options.session import SessionOptions
from onnxtool.runtime.feeds import feeds_bytes
from onnxtool.runtime.runner import OnnxRunner, describe_failure
from onnxtool.runtime.session.memory import giving_back
from onnxtool.runtime.session.session import classify
from onnxtool.runtime.worker.channel import RUN_NUMBER, Channel, Region
from onnxtool.runtime.worker.errors import OutOfTableError
from onnxtool.runtime.worker.isolation import data_bytes, native_limits

# Runs a model on feeds; with the runtime's options of this run, and what takes texts that are shown before its end.
RunCall = Callable[[Mapping[str, np.ndarray], ort.RunOptions, Callable[[str], None]], dict[str, Any]]
# From a model and how to run it to its inputs, its outputs and what runs it.
Open = Callable[[Any, SessionOptions], tuple[Sequence[TensorSpec], Sequence[TensorSpec], RunCall]]


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


class _MemoryLimit:
    """How much memory this process may have; where the system cannot say how much it has, any."""

    def __init__(self, most: int | None, size: int) -> None:
        """Limit what loading the model takes.

        Args:
            most: bytes for a run beyond what is taken before; None as for a guarded call.
            size: of the model.
        """
        self._most, self._size, self._limit, self._inputs = most, size, 0, -1
        self.begin()

    def begin(self) -> None:
        """Count from what is taken now."""
        self._taken, self._inputs = data_bytes(), -1
        self.allow(0)

    def allow(self, inputs: int) -> None:
        """Allow what a run on so many bytes may take."""
        if inputs == self._inputs:
            return
        self._inputs = inputs
        wanted = self._taken + (self._most or native_limits(self._size, inputs)[1])
        if not self._taken or wanted == self._limit:
            return
        self._limit = wanted
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        with suppress(OSError, ValueError):
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


def serve_runs(opens: Open) -> None:
    """Open the model that the parent names, and run it until the parent has gone."""
    with suppress(EOFError, OSError):
        _serve(opens, *map(int, sys.argv[1:]))


def _serve(opens: Open, connection: int, receiving: int, sending: int, stop: int) -> None:
    channel = Channel(socket.socket(fileno=connection), Region(sending), Region(receiving))
    model, size, options, bounds, memory_bytes = channel.receive()
    for name, value in bounds.items():
        setattr(limits.DEFAULT, name, value)
    stopper = _Stop(stop)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        memory = _MemoryLimit(memory_bytes, size)
        inputs, outputs, run = opens(model, options)
    except Exception as error:
        channel.send(_plain(error))
        return
    memory.begin()
    channel.send(("ready", inputs, outputs))
    while True:
        feeds = channel.receive()
        try:
            memory.allow(feeds_bytes(feeds))
            found = run(feeds, stopper.next_run(), lambda text: channel.send(("shown", text)))
        except Exception as error:
            channel.send(_plain(describe_failure(error, feeds)))
        else:
            channel.send(("outputs", found))


def _open(model: Any, options: SessionOptions) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec], RunCall]:
    runner = OnnxRunner.open(model, options)

    def run(feeds: Mapping[str, np.ndarray], how: ort.RunOptions, _: object) -> dict[str, Any]:
        try:
            return runner.run_unchecked(feeds, how)
        except Exception as error:
            if not options.arena or not isinstance(classify(error), ResourceError):
                raise
        # The runtime's pool of memory grows by twice what was asked of it last. After a request that was too large the
        # next one would take all that this process may have, and fail: what is given back is forgotten, too.
        return runner.run_unchecked(feeds, giving_back(how))

    return runner.inputs, runner.outputs, run


def main() -> None:
    """Hold an ONNX model."""
    serve_runs(_open)


if __name__ == "__main__":
    main()

"""Progress callbacks. The library reports through here and stays silent unless someone listens (the CLI does)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Task(Protocol):
    """One piece of work that somebody watches."""

    def advance(self, steps: int = 1) -> None:
        """Count finished steps."""

    def describe(self, label: str) -> None:
        """Say what is being done now."""


class Listener(Protocol):
    """What the command line plugs in."""

    def start(self, label: str, total: int | None) -> Task:
        """Begin a task; `total` is its number of steps, None when unknown."""

    def finish(self, task: Task) -> None:
        """End a task."""


class StageClock:
    """Seconds since the last stop, summed by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def stop(self, stage: str) -> None:
        """Count the time since the last stop for a stage."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


class _Silent:
    def advance(self, steps: int = 1) -> None:
        pass

    def describe(self, label: str) -> None:
        pass


_listener: ContextVar[Listener | None] = ContextVar("onnxtool_progress_listener", default=None)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Send the progress of everything inside the block to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def task(label: str, total: int | None = None) -> Iterator[Task]:
    """Report a piece of work: `with task("calibrating", 128) as t: ...; t.advance()`."""
    listener = _listener.get()
    if listener is None:
        yield _Silent()
        return
    started = listener.start(label, total)
    try:
        yield started
    finally:
        listener.finish(started)

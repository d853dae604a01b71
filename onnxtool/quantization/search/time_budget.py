"""The time limit of a search: what still fits in, and what did not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Of the time limit, by when a stage ends.
_SHARES = {
    "judging": 0.35,
    "families": 0.35,
    "ranges": 0.45,
    "moves": 0.6,
    "repair": 0.75,
    "late moves": 0.87,
    "choice": 1.0,
}
# Candidates' worth of time that the other stages leave to the choice: timing the leaders, smaller float weights.
_LEFT_TO_CHOOSE = 2
_RECENT = 3  # candidates, whose cost the next one is expected to have


_BEGAN: ContextVar[float | None] = ContextVar("began", default=None)


@contextmanager
def counted_from(began: float) -> Iterator[None]:
    """Count time limits from an earlier reading of `time.perf_counter`: what a command took to load is part of them."""
    token = _BEGAN.set(began)
    try:
        yield
    finally:
        _BEGAN.reset(token)


def beginning() -> float:
    """The reading of `time.perf_counter` that time limits count from: now, unless `counted_from` says otherwise."""
    began = _BEGAN.get()
    return time.perf_counter() if began is None else began


class TimeBudget:
    """Counts from the very start: preparing the model and calibrating take their part of the limit.

    Attributes:
        cuts: what was cut short.
    """

    def __init__(self, seconds: float, began: float | None = None) -> None:
        """Start now, or at an earlier reading of `time.perf_counter`."""
        self.seconds = seconds
        self.began = beginning() if began is None else began
        self.cuts: list[str] = []
        self._costs: list[float] = []
        self._builds: list[float] = []

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds until the limit; never negative."""
        return max(self.seconds - self.spent, 0.0)

    def moment(self, stage: str) -> float:
        """Reading of `time.perf_counter` by which a stage ends."""
        return self.began + self.seconds * _SHARES[stage]

    def took(self, seconds: float) -> None:
        """What a candidate has cost."""
        self._costs.append(seconds)

    def built(self, seconds: float) -> None:
        """What building and loading a candidate has cost."""
        self._builds.append(seconds)

    @property
    def next_cost(self) -> float:
        """Seconds that the next candidate will cost, about."""
        return max(self._costs[-_RECENT:], default=0.0)

    @property
    def next_build(self) -> float:
        """Seconds to build and load a candidate once more, about."""
        return max(self._builds[-_RECENT:], default=0.0)

    @property
    def writing(self) -> float:
        """Seconds to write the winner, about: it is built, loaded, judged on a few samples, and stored."""
        return self.next_cost + self.next_build

    def allows(self, stage: str, doing: str = "", tries: int = 1) -> bool:
        """True when a stage is not over, and so many candidates more, the choice and the writing fit into the limit.

        Args:
            stage: of `moment`.
            doing: what is cut short when they do not, for the report.
            tries: candidates to build.
        """
        now = time.perf_counter()
        tries += 0 if stage == "choice" else _LEFT_TO_CHOOSE
        fits = now < self.moment(stage) and now + tries * self.next_cost + self.writing < self.began + self.seconds
        if not fits:
            self.cut(doing)
        return fits

    def first_half(self, stage: str) -> Callable[[], bool]:
        """A test that holds for the first half of the time that a stage has left."""
        end = (time.perf_counter() + self.moment(stage)) / 2
        return lambda: time.perf_counter() < end

    def cut(self, doing: str) -> None:
        """Note what was cut short."""
        if doing and doing not in self.cuts:
            self.cuts.append(doing)

    @property
    def note(self) -> str:
        """What the limit cut short, in a sentence; empty when it did not matter."""
        if not self.cuts:
            return ""
        return f"the time limit of {self.seconds:g} s cut short: {', '.join(self.cuts)}."

"""The time limit of a search: what still fits in, and what did not."""

from __future__ import annotations

import time
from collections.abc import Callable

# Of the time limit, by when a stage ends.
_SHARES = {
    "calibration": 0.25,
    "judging": 0.35,
    "families": 0.35,
    "moves": 0.6,
    "repair": 0.75,
    "late moves": 0.87,
    "choice": 1.0,
}
# Candidates' worth of time that the other stages leave to the choice: timing the leaders, smaller float weights.
_LEFT_TO_CHOOSE = 2
_RECENT = 3  # candidates, whose cost the next one is expected to have


class TimeBudget:
    """Counts from the very start: preparing the model and calibrating take their part of the limit."""

    def __init__(self, seconds: float, began: float | None = None) -> None:
        """Start now, or at an earlier reading of `time.perf_counter`."""
        self.seconds = seconds
        self.began = time.perf_counter() if began is None else began
        self.cuts: list[str] = []
        self._costs: list[float] = []

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

    @property
    def next_cost(self) -> float:
        """Seconds that the next candidate will cost, about; writing the winner costs as much."""
        return max(self._costs[-_RECENT:], default=0.0)

    def allows(self, stage: str, doing: str = "", tries: int = 1) -> bool:
        """True when a stage is not over, and so many candidates more, the choice and the writing fit into the limit.

        Args:
            stage: of `moment`.
            doing: what is cut short when they do not, for the report.
            tries: candidates to build.
        """
        now = time.perf_counter()
        reserve = 1 if stage == "choice" else 1 + _LEFT_TO_CHOOSE
        fits = now < self.moment(stage) and now + (tries + reserve) * self.next_cost < self.began + self.seconds
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

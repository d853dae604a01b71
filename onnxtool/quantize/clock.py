"""The time limit of a search: what still fits in, and what did not."""

from __future__ import annotations

import time

# Of the time limit, by when a stage ends.
_SHARES = {
    "calibration": 0.25,
    "judging": 0.35,
    "families": 0.35,
    "condition": 0.5,
    "paying": 0.65,
    "repair": 0.85,
    "floats": 0.9,
    "choice": 1.0,
}
_RECENT = 3  # candidates, whose cost the next one is expected to have


class SearchClock:
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
        """Seconds that the next candidate will cost, about; as many are kept for writing the winner."""
        return max(self._costs[-_RECENT:], default=0.0)

    def allows(self, stage: str, doing: str = "", tries: int = 1) -> bool:
        """True when so many candidates more still fit into a stage, and the winner can be written after it.

        Args:
            stage: of `moment`.
            doing: what is cut short when they do not, for the report.
            tries: candidates to build.
        """
        reserve = self.next_cost if stage in ("repair", "floats", "choice") else 0.0
        fits = time.perf_counter() + tries * self.next_cost + reserve < self.moment(stage)
        if not fits:
            self.cut(doing)
        return fits

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

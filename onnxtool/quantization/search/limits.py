"""Limits on what the search may choose besides the accuracy budget: latency, size; and which of them to minimise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onnxtool.quantization.search.evaluator import Trial

_ABOUT_AS_SMALL = 1.05  # of files about as small, the fastest


@dataclass(frozen=True)
class ResultLimits:
    """What a result has to keep; None where there is no limit.

    Attributes:
        max_seconds: median latency, seconds.
        max_ratio: latency against the float model.
        max_bytes: size of the file.
        minimise: "latency" or "size": of those that keep all limits, the one with the least is chosen.
    """

    max_seconds: float | None = None
    max_ratio: float | None = None
    max_bytes: int | None = None
    minimise: str = "latency"

    def keeps(self, trial: Trial) -> bool:
        """True for a candidate within every limit; what was not timed keeps no limit of latency."""
        timed = trial.latency
        return (
            (self.max_bytes is None or 0 < trial.bytes <= self.max_bytes)
            and (self.max_ratio is None or (timed is not None and timed.value <= self.max_ratio))
            and (self.max_seconds is None or (timed is not None and timed.after <= self.max_seconds))
        )

    def choose(self, trials: Sequence[Trial], within: Callable[[Trial], bool], preferred: Trial | None) -> Trial | None:
        """The best candidate within the accuracy budget and all limits; None when there is none.

        Args:
            trials: all candidates.
            within: whether a candidate keeps the accuracy budget; asked of as few as possible.
            preferred: what the search chose by latency alone, after timing the leaders once more.
        """
        if preferred is not None and self.minimise == "latency" and self.keeps(preferred):
            return preferred
        kept = [t for t in trials if self.keeps(t)]
        if self.minimise == "latency":
            return next((t for t in sorted(kept, key=lambda t: t.speed) if within(t)), None)
        kept = sorted(kept, key=lambda t: t.bytes)
        first = next((t for t in kept if within(t)), None)
        small = [t for t in kept if first is not None and first.bytes <= t.bytes <= _ABOUT_AS_SMALL * first.bytes]
        return min((t for t in small if within(t)), key=lambda t: t.speed, default=None)

"""Limits on what the search may choose besides the accuracy budget: latency, size; and which of them to minimise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxtool.options.quantize import ResultLimits
from onnxtool.quantization.search.evaluator import Trial

_ABOUT_AS_SMALL = 1.05  # of files about as small, the fastest


def keeps(limits: ResultLimits, trial: Trial) -> bool:
    """True for a candidate within every limit; what was not timed keeps no limit of latency."""
    timed = trial.latency
    return (
        (limits.max_bytes is None or 0 < trial.bytes <= limits.max_bytes)
        and (limits.max_ratio is None or (timed is not None and timed.value <= limits.max_ratio))
        and (limits.max_seconds is None or (timed is not None and timed.after <= limits.max_seconds))
    )


def choose(
    limits: ResultLimits, trials: Sequence[Trial], within: Callable[[Trial], bool], preferred: Trial | None
) -> Trial | None:
    """The best candidate within the accuracy budget and all limits; None when there is none.

    Args:
        limits: what the user asked for.
        trials: all candidates.
        within: whether a candidate keeps the accuracy budget; asked of as few as possible.
        preferred: what the search chose by latency alone, after timing the leaders once more.
    """
    if preferred is not None and limits.minimise == "latency" and keeps(limits, preferred):
        return preferred
    kept = [t for t in trials if keeps(limits, t)]
    if limits.minimise == "latency":
        return next((t for t in sorted(kept, key=lambda t: t.speed) if within(t)), None)
    kept = sorted(kept, key=lambda t: t.bytes)
    first = next((t for t in kept if within(t)), None)
    small = [t for t in kept if first is not None and first.bytes <= t.bytes <= _ABOUT_AS_SMALL * first.bytes]
    return min((t for t in small if within(t)), key=lambda t: t.speed, default=None)

"""Choosing within limits besides the accuracy budget: latency, size; and which of them to minimise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxtool.options.quantize import ResultLimits
from onnxtool.quantization.search.evaluator import RecipeTrial

_ABOUT_AS_SMALL = 1.05  # of files about as small, the fastest


def is_within_limits(trial: RecipeTrial, limits: ResultLimits) -> bool:
    """True for a candidate within every limit; what was not timed keeps no limit of latency."""
    timed = trial.latency
    return (
        (limits.max_bytes is None or 0 < trial.bytes <= limits.max_bytes)
        and (limits.max_ratio is None or (timed is not None and timed.value <= limits.max_ratio))
        and (limits.max_seconds is None or (timed is not None and timed.after <= limits.max_seconds))
    )


def choose_within_limits(
    limits: ResultLimits,
    trials: Sequence[RecipeTrial],
    is_accurate: Callable[[RecipeTrial], bool],
    preferred: RecipeTrial | None,
) -> RecipeTrial | None:
    """The best candidate within the accuracy budget and all limits; None when there is none.

    Args:
        limits: of latency and size.
        trials: all candidates.
        is_accurate: whether a candidate keeps the accuracy budget; asked of as few as possible.
        preferred: what the search chose by latency alone, after timing the leaders once more.
    """
    if preferred is not None and limits.minimise == "latency" and is_within_limits(preferred, limits):
        return preferred
    kept = [t for t in trials if is_within_limits(t, limits)]
    if limits.minimise == "latency":
        return next((t for t in sorted(kept, key=lambda t: t.speed) if is_accurate(t)), None)
    kept = sorted(kept, key=lambda t: t.bytes)
    first = next((t for t in kept if is_accurate(t)), None)
    small = [t for t in kept if first is not None and first.bytes <= t.bytes <= _ABOUT_AS_SMALL * first.bytes]
    return min((t for t in small if is_accurate(t)), key=lambda t: t.speed, default=None)

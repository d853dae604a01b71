"""The last choice of a search: surely faster than float, within limits, and beaten by nothing else that was tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxtool.options.quantize import ResultLimits
from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.evaluation.fidelity import noise_share
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.side_by_side import SHORT
from onnxtool.report.measurement.bench import LatencyRatio

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


FINALISTS = 5
TIMING_AGAIN = 1  # candidates that it takes to time the finalists once more
COMPACTING = 1  # candidates that it takes to store float weights in fewer bits
_TIMED_QUICKLY = 0.95  # of float's latency: one short timing under load has been off by as much
_PATIENCE, _MOST_PATIENCE = 3.0, 300.0  # times the usual seconds, for a timing that was unclear: each time as many more


def finalists(near: list[RecipeTrial]) -> list[RecipeTrial]:
    """Which candidates to time once more; of those that have one timing together, the most accurate.

    Args:
        near: within the budget, the fastest first.
    """
    found: dict[int, RecipeTrial] = {}
    for trial in near:
        known = found.get(id(trial.latency))
        if known is None or trial.noise < known.noise:
            found[id(trial.latency)] = trial
    return list(found.values())[:FINALISTS]


def surely_faster(
    evaluator: CandidateEvaluator,
    finalists: list[RecipeTrial],
    winner_of: Callable[[list[RecipeTrial]], RecipeTrial | None],
) -> RecipeTrial | None:
    """The winner among candidates that were timed together; where it is not surely faster than float, one that is.

    What remains unclear is timed again, longer each time, until it is settled or the time is over.

    Args:
        evaluator: times them.
        finalists: within the budget, timed in one alternation.
        winner_of: the winner of some candidates.
    """
    winner = winner_of(finalists)
    if winner is None or winner.latency is None or winner.latency.high < 1.0:
        return winner
    patience = _PATIENCE
    while _is_unclear(finalists) and evaluator.clock.allows("choice", "a longer timing", TIMING_AGAIN + COMPACTING):
        evaluator.time_again(finalists, patience)
        patience *= _PATIENCE
        if patience > _MOST_PATIENCE:
            break
    sure = [t for t in finalists if t.latency is not None and t.latency.high < 1.0]
    return winner_of(sure) or winner_of(finalists)


def _is_unclear(finalists: Sequence[RecipeTrial]) -> bool:
    """Whether none is surely faster than float, and some may be."""
    latencies = [t.latency for t in finalists if t.latency is not None]
    return not any(one.high < 1.0 for one in latencies) and any(one.low < 1.0 for one in latencies)


def surely_slower(a: RecipeTrial, b: RecipeTrial) -> bool:
    """True when `a` is slower than `b` by more than timings may be off: those of short models, by where memory lies."""
    if a.latency is None or b.latency is None or a.latency.before >= SHORT:
        return a.speed > b.speed
    return a.latency.low > b.latency.high


def undominated(
    evaluator: CandidateEvaluator,
    winner: RecipeTrial,
    tried: list[RecipeTrial],
    is_within: Callable[[RecipeTrial], bool],
) -> RecipeTrial:
    """The winner, or what beats it in size, speed and noise at once.

    Args:
        evaluator: times them.
        winner: of the search.
        tried: all that was timed.
        keeps: the accuracy budget.
    """
    better = [t for t in tried if dominates(t, winner) and is_within(t)][:FINALISTS]
    # Timed apart, two that are equally fast differ by chance.
    if any(t.speed < winner.speed for t in better) and evaluator.clock.allows("choice", "", len(better)):
        evaluator.time_again([winner, *better])
        better = [t for t in better if dominates(t, winner)]
    return min(better, key=lambda t: (t.speed, t.bytes), default=winner)


def dominates(a: RecipeTrial, b: RecipeTrial) -> bool:
    """True when `a` is no larger, no slower and no noisier than `b`, and better in one of these."""
    if a.fidelity is None or b.fidelity is None:
        return False
    ours = (a.bytes, a.speed, noise_share(a.fidelity))
    theirs = (b.bytes, b.speed, noise_share(b.fidelity))
    return all(x <= y for x, y in zip(ours, theirs, strict=True)) and ours != theirs


def is_faster(latency: LatencyRatio, timed_again: bool) -> bool:
    """Whether the best is surely faster than float: with room to spare where there was no time to time it again."""
    return latency.high < (1.0 if timed_again else _TIMED_QUICKLY)


def nearest_miss(budget: Criterion, trials: Sequence[RecipeTrial]) -> str:
    """What broke the budget in the candidate that came nearest to it."""
    misses = []
    for trial in trials:
        if trial.fidelity is None or (budget.labelled and trial.metric is None):
            continue
        verdict = budget.judge(trial.fidelity, trial.metric)
        if not verdict.kept:
            misses.append((verdict.worst.at_most, f"; the nearest, {trial.name}: {verdict.worst.text}"))
    return min(misses, default=(0.0, ""))[1]


def not_faster(name: str, latency: LatencyRatio) -> str:
    """Why the best within the budget is not written: slower, or not surely faster."""
    span = f"{latency.value:.3f} times as long (95 %: {latency.low:.3f} to {latency.high:.3f})"
    if latency.low >= 1.0:
        return f"nothing within the budget is faster than float: the best, {name}, takes {span}"
    return (
        f"unclear whether anything within the budget is faster than float: the best, {name}, takes {span}; a longer "
        "--time-limit or a calmer machine may tell"
    )

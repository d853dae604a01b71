"""When an optimized model is wrong, or slower than its source: which pass did it, and what is left without it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxtool import progress
from onnxtool.optimization.normalize import drop_shapes, unmap
from onnxtool.optimization.pass_base import FaultyPassError, Level
from onnxtool.optimization.pipeline import optimize_model
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.optimize import DroppedPass, PipelineResult
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import confirmed_ratio


def without_regression(
    source: os.PathLike[str] | ir.Model,
    attempt: BisectionAttempt,
    measured: LatencyRatio,
    feeds: Feeds,
    options: SessionOptions,
    simpler: Callable[[], BisectionAttempt | None],
) -> tuple[BisectionAttempt, LatencyRatio, str]:
    """What to write: the attempt, or a simpler one where the attempt is surely slower than its source.

    Args:
        source: the model as it came.
        attempt: what the passes made of it.
        measured: its latency ratio, from one short measurement.
        feeds: inputs to time on.
        options: how to run both.
        simpler: makes the same with the passes of level basic alone; None when there is nothing simpler.

    Returns:
        The attempt to write, its latency ratio, and a warning ("" when there is nothing to warn of).
    """
    if measured.low <= 1.0:
        return attempt, measured, ""
    measured = confirmed_ratio(source, attempt.model, feeds, options)
    if measured.low <= 1.0:
        return attempt, measured, ""
    slower = f"{measured.value:.2f} times as long as the source ({measured.low:.2f} to {measured.high:.2f})"
    other = simpler()
    if other is None or other.fault is not None:
        return attempt, measured, f"the result takes {slower}, measured twice; the runtime does better on the source."
    own = confirmed_ratio(source, other.model, feeds, options)
    if own.value >= measured.value:
        return attempt, measured, f"the result takes {slower}, measured twice, and with basic passes alone no less."
    left = [p.name for p in attempt.result.passes if p.rewrites and p.level != "basic"]
    return other, own, f"with {', '.join(left)} it takes {slower}, measured twice; they were left out."


Verdict = Callable[[ir.Model], str | None]


@dataclass
class BisectionAttempt:
    """One run of the pipeline and what became of it.

    Attributes:
        model: the optimized model.
        result: what each pass did.
        fault: why the model is not equal to its source; None when it is.
    """

    model: ir.Model
    result: PipelineResult
    fault: str | None


def drop_faulty_passes(
    fresh: Callable[[], ir.Model],
    verdict: Verdict,
    level: Level,
    names: Sequence[str],
    max_folded_bytes: int | None,
) -> tuple[BisectionAttempt, tuple[DroppedPass, ...]]:
    """Optimize; while the result is wrong, find the pass that is to blame, drop it, and start again.

    Args:
        fresh: gives the unoptimized model, anew each time.
        verdict: says what is wrong with a model, None when nothing is.
        level: for the pipeline.
        names: the passes to run, in order.
        max_folded_bytes: for the pipeline.

    Returns:
        The last attempt, and what was dropped. When the source itself fails the verdict (so that no pass can be
        to blame), the attempt still carries its fault.
    """
    kept = list(names)
    dropped: list[DroppedPass] = []
    while True:
        try:
            attempt = _attempt(fresh, verdict, level, kept, max_folded_bytes)
            if attempt.fault is None or not kept:
                return attempt, tuple(dropped)
        except FaultyPassError as error:
            dropped.append(DroppedPass(error.name, error.reason))
            kept.remove(error.name)
            continue
        guilty, reason = _find(fresh, verdict, level, kept, max_folded_bytes, attempt)
        dropped.append(DroppedPass(guilty, reason))
        kept.remove(guilty)


def _attempt(
    fresh: Callable[[], ir.Model], verdict: Verdict, level: Level, names: Sequence[str], max_folded_bytes: int | None
) -> BisectionAttempt:
    model = fresh()
    result = optimize_model(model, level, only=names, max_folded_bytes=max_folded_bytes)
    drop_shapes(model)
    unmap(model)
    return BisectionAttempt(model, result, verdict(model))


def _find(
    fresh: Callable[[], ir.Model],
    verdict: Verdict,
    level: Level,
    names: Sequence[str],
    max_folded_bytes: int | None,
    failed: BisectionAttempt,
) -> tuple[str, str]:
    """The first pass, in order, with which the model goes wrong when all before it run too."""
    fired = [p.name for p in failed.result.passes if p.rewrites]
    fired = fired or list(names)
    reason = failed.fault or ""
    low, high = 0, len(fired)  # right with the first `low` passes, wrong with the first `high`
    with progress.task("finding the guilty pass") as task:
        while high - low > 1:
            middle = (low + high) // 2
            try:
                fault = _attempt(fresh, verdict, level, fired[:middle], max_folded_bytes).fault
            except FaultyPassError as error:
                fault = error.reason
            if fault is None:
                low = middle
            else:
                high, reason = middle, fault
            task.advance()
    return fired[high - 1], reason

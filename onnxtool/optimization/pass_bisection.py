"""When an optimized model is wrong: which pass did it, and what is left without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxtool import progress
from onnxtool.optimization.normalize import drop_shapes, unmap
from onnxtool.optimization.pass_base import FaultyPassError, Level
from onnxtool.optimization.pipeline import optimize_model
from onnxtool.report.optimize import DroppedPass, PipelineResult

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

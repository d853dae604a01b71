"""When a result is measured as slower than its source: measured again, and simplified where that is true."""

from __future__ import annotations

import os
from collections.abc import Callable

import onnx_ir as ir

from onnxtool.optimization.pass_bisection import BisectionAttempt
from onnxtool.report.measurement.latency import LatencyRatio
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.latency import confirmed_ratio


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

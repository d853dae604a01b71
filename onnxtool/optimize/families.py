"""Level all: fusions into the runtime's own operators, each kept only where it is not slower on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.errors import OnnxToolError
from onnxtool.optimize.levels import Level
from onnxtool.optimize.pipeline import optimize_model
from onnxtool.optimize.preparation import drop_shapes
from onnxtool.optimize.registry import select
from onnxtool.report.optimize import DroppedPass
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import SessionOptions
from onnxtool.runtime.timing import measure, ratio

_BUDGET = 0.8  # seconds for each family
_SLOWER = 1.01  # above this a family is not worth its non-portable operators, unless the interval holds 1


@dataclass(frozen=True)
class Choice:
    """Which passes of level all to run.

    Attributes:
        names: every pass to run, in order.
        dropped: the families that were slower.
    """

    names: tuple[str, ...]
    dropped: tuple[DroppedPass, ...]


def choose(
    fresh: Callable[[], ir.Model],
    names: Sequence[str],
    feeds: Sequence[dict[str, np.ndarray]],
    options: SessionOptions,
    max_folded_bytes: int | None,
) -> Choice:
    """Add one family after another and keep it when the model is then no slower, at any of the given sizes.

    Args:
        fresh: gives the unoptimized model, anew each time.
        names: all passes that may run, in order.
        feeds: inputs to time on.
        options: how to run.
        max_folded_bytes: for the pipeline.
    """
    families = [p.name for p in select(Level.ALL) if p.level is Level.ALL and p.name in names]
    kept = [n for n in names if n not in families]
    dropped = []
    best = _runner(fresh, kept, options, max_folded_bytes)
    with progress.task("timing fusions", len(families)) as task:
        for family in families:
            task.describe(f"timing {family}")
            tried = [n for n in names if n in kept or n == family]
            candidate = _runner(fresh, tried, options, max_folded_bytes, must_fire=family)
            task.advance()
            if candidate is None or best is None:
                continue  # it finds nothing here; or it fails, which the comparison will deal with
            cost = _cost(candidate, best, feeds)
            if cost is not None:
                dropped.append(DroppedPass(family, f"{cost:.2f} times the latency without it", fault=False))
            else:
                kept, best = tried, candidate
    fired = [n for n in names if n in kept or (n in families and n not in {d.name for d in dropped})]
    return Choice(tuple(fired), tuple(dropped))


def _runner(
    fresh: Callable[[], ir.Model],
    names: Sequence[str],
    options: SessionOptions,
    max_folded_bytes: int | None,
    must_fire: str | None = None,
) -> OnnxRunner | None:
    model = fresh()
    result = optimize_model(model, Level.ALL, only=names, max_folded_bytes=max_folded_bytes)
    if must_fire is not None and not any(p.name == must_fire and p.rewrites for p in result.passes):
        return None
    drop_shapes(model)
    try:
        return OnnxRunner.open(model, options)
    except OnnxToolError:
        return None


def _cost(candidate: OnnxRunner, best: OnnxRunner, feeds: Sequence[dict[str, np.ndarray]]) -> float | None:
    """The worst latency ratio when it is above 1 for certain; None otherwise."""
    worst = None
    for one in feeds:
        try:
            timings = measure(
                [lambda f=one: best.run(f), lambda f=one: candidate.run(f)],  # type: ignore[misc]
                budget=_BUDGET / len(feeds),
                minimum=5,
                warmup=2,
            )
        except OnnxToolError:
            return None  # the comparison will name it
        found = ratio(timings[1], timings[0])
        if found.value > _SLOWER and found.low > 1.0:
            worst = max(worst or 0.0, found.value)
    return worst

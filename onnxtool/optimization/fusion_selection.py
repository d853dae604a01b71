"""Level all: which fusions into the operators of the runtime pay, timed here, or by a table for another processor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxtool import progress
from onnxtool.errors import OnnxToolError, UsageError
from onnxtool.optimization.normalize import drop_shapes
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pipeline import optimize_model
from onnxtool.optimization.registry import select
from onnxtool.options.shared import TARGETS
from onnxtool.report.optimize import FamilyTrial
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import Ratio, clock_for, measure, ratio

# The normalizations with a shortcut took 1.2 to 5.6 times as long as Add and normalization at lengths 16, 128 and 512
# on AVX-512 (benchmarks/fused_operators.py), and their kernel is the same plain loop for every processor. Grouped
# attention with a mask took 0.82 to 1.15 times as long as its parts. The others were at 0.5 to 1.05 there, or are what
# the runtime makes by itself at load on every processor.
_NEVER = frozenset(["fuse-skip-layernorm", "fuse-skip-rmsnorm", "fuse-masked-grouped-attention"])
_LEFT_OUT: dict[str, frozenset[str]] = {
    "avx2": _NEVER,
    "avx512": _NEVER,
    "vnni": _NEVER,
    "amx": _NEVER,
    "arm64": _NEVER,
    # Whatever it is: only what saves work on every processor, or costs nothing.
    "generic": _NEVER | {"fuse-packed-attention"},
}
assert set(_LEFT_OUT) == set(TARGETS)


def by_table(names: Sequence[str], target: str) -> FusionChoice:
    """Choose the families for a processor by the table: the same on every machine and in every run.

    Args:
        names: all passes that may run, in order.
        target: one of `options.shared.TARGETS`.

    Raises:
        UsageError: no such target.
    """
    if target not in _LEFT_OUT:
        raise UsageError(f"--target {target}: choose one of {', '.join(TARGETS)}.")
    out = _LEFT_OUT[target]
    trials = tuple(FamilyTrial(n, n not in out, None, f"by the table for {target}") for n in fusion_passes(names))
    return FusionChoice(tuple(n for n in names if n not in out), trials)


_SIZES = 2
_BUDGET = 0.8  # seconds for each family
_SLOWER = 1.01  # above this a family is not worth its non-portable operators, unless the interval holds 1


@dataclass(frozen=True)
class FusionChoice:
    """Which passes of level all to run.

    Attributes:
        names: every pass to run, in order.
        trials: what became of each family that found something to fuse.
    """

    names: tuple[str, ...]
    trials: tuple[FamilyTrial, ...]


def fusion_passes(names: Sequence[str]) -> list[str]:
    """Those of the given passes that make the runtime's own operators, in the order in which they are tried."""
    found = [p for p in select(Level.ALL) if p.level is Level.ALL and p.name in names]
    # Some run before others that would take the same nodes, and are to be held against what these make of them.
    return [p.name for p in sorted(found, key=lambda p: getattr(p, "tried_last", False))]


def select_fusions(
    fresh: Callable[[], ir.Model],
    names: Sequence[str],
    feeds: Sequence[Feeds],
    options: SessionOptions,
    max_folded_bytes: int | None,
) -> FusionChoice:
    """Add one family after another and keep it when the model is then no slower, at any of the given sizes.

    Args:
        fresh: gives the unoptimized model, anew each time.
        names: all passes that may run, in order.
        feeds: inputs to time on; those that the model refuses are passed over, and two are enough.
        options: how to run; on one thread unless it says otherwise, as where the report's latency is measured.
        max_folded_bytes: for the pipeline.
    """
    options = dataclasses.replace(options, threads=options.threads or 1, spinning="runs")
    candidates = fusion_passes(names)
    kept = [n for n in names if n not in candidates]
    portable = fresh()
    optimize_model(portable, Level.EXTENDED, only=kept, max_folded_bytes=max_folded_bytes)
    best = _open(portable.clone(), options)
    feeds = [f for f in feeds if best is not None and _takes(best, f)][:_SIZES]
    trials = []
    with progress.task("timing fusions", len(candidates)) as task:
        for family in candidates:
            task.describe(f"timing {family}")
            tried = [n for n in names if n in kept or n == family]
            found, candidate = _with(portable, tried, family, options, max_folded_bytes)
            task.advance()
            if not found:
                continue
            if candidate is None or best is None:
                kept = tried  # it does not load, which the comparison will deal with, naming the pass
                continue
            worst = _worst(candidate, best, feeds, options)
            slower = worst is not None and worst.value > _SLOWER and worst.low > 1.0
            trials.append(FamilyTrial(family, not slower, worst.value if worst is not None else None, _say(worst)))
            if not slower:
                kept, best = tried, candidate
    # A family that finds nothing stays in the list: the pipeline itself may give it something to do.
    refused = {t.name for t in trials if not t.kept}
    return FusionChoice(tuple(n for n in names if n not in refused), tuple(trials))


def _with(
    portable: ir.Model, names: Sequence[str], family: str, options: SessionOptions, max_folded_bytes: int | None
) -> tuple[bool, OnnxRunner | None]:
    """Whether a family finds something to fuse, and the model with it (None when it does not load)."""
    model = portable.clone()
    result = optimize_model(model, Level.ALL, only=names, max_folded_bytes=max_folded_bytes)
    if not any(p.name == family and p.rewrites for p in result.passes):
        return False, None
    return True, _open(model, options)


def _open(model: ir.Model, options: SessionOptions) -> OnnxRunner | None:
    drop_shapes(model)
    try:
        return OnnxRunner.open(model, options)
    except OnnxToolError:
        return None


def _takes(runner: OnnxRunner, feeds: Feeds) -> bool:
    try:
        runner.run(feeds)
    except OnnxToolError:
        return False
    return True


def _worst(candidate: OnnxRunner, best: OnnxRunner, feeds: Sequence[Feeds], options: SessionOptions) -> Ratio | None:
    """The largest latency ratio over the sizes; None when it cannot be run (the comparison will say why)."""
    ratios = []
    for one in feeds:
        try:
            timings = measure(
                [lambda f=one: best.run(f), lambda f=one: candidate.run(f)],  # type: ignore[misc]
                budget=_BUDGET / len(feeds),
                minimum=5,
                warmup=2,
                clock=clock_for(options.threads),
            )
        except OnnxToolError:
            return None
        ratios.append(ratio(timings[1], timings[0]))
    # Where several are slower for certain, the slowest; else the one that is nearest to it.
    return max(ratios, key=lambda r: (r.low > 1.0, r.value), default=None)


def _say(found: Ratio | None) -> str:
    return "not timed" if found is None else f"{found.value:.2f} times the latency without it"

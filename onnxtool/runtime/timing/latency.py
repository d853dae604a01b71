"""Latency of a model against another one, measured side by side."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.runtime.feeds import Feeds, random_feeds
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import OnnxRunner, fit_dtypes
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import Ratio, Timing, block_ratio, clock_for, measure, ratio

_LENGTHS = (16, 128)
_BUDGET = 1.0  # seconds
_BLOCKS = 5
_LEAST_ROUNDS = 3
_PATIENCE = 3  # times the budget, that the minimum of rounds may take


def session_run(runner: OnnxRunner, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """One run of a session itself: holding the arrays against the model costs time too."""
    fitting = fit_dtypes(runner, feeds)
    return lambda: runner.session.run(None, fitting)


def compare_latency(
    reference: Callable[[], object],
    candidate: Callable[[], object],
    threads: int | None,
    *,
    budget: float = _BUDGET,
    minimum: int = 10,
    maximum: int = 1000,
    warmup: int = 3,
) -> LatencyRatio:
    """Run a model and another one in alternation.

    Slow models get fewer rounds than `minimum`, three at least: they are steadier, and would take minutes.

    Args:
        reference: runs what the other is compared with.
        candidate: runs the other.
        threads: of both.
        budget: seconds for all of it together.
        minimum: least number of rounds.
        maximum: largest number of rounds.
        warmup: rounds that are not counted, one at least.
    """
    began = time.perf_counter()
    reference()
    candidate()
    once = time.perf_counter() - began
    timings = measure(
        [reference, candidate],
        budget=budget,
        minimum=max(_LEAST_ROUNDS, min(minimum, int(_PATIENCE * budget / once))),
        maximum=maximum,
        warmup=min(warmup - 1, int(budget / once)),
        clock=clock_for(threads),
    )
    return _as_report(ratio(timings[1], timings[0]), timings, threads)


def timing_feeds(
    specs: Sequence[TensorSpec], seed: int, domains: Mapping[str, Domain], probes: Sequence[Probe]
) -> list[Feeds]:
    """Inputs to time fusions on: lengths 16 and 128 where a length is dynamic, then those the source has run on.

    What pays at 16 need not pay at 128, and the model may refuse either.
    """
    usual = [random_feeds(specs, seed, batch=1, length=length, domains=domains) for length in _LENGTHS]
    shapes = [{name: np.shape(array) for name, array in feeds.items()} for feeds in usual]
    return [*(usual if shapes[0] != shapes[1] else usual[:1]), *(p.feeds for p in probes[:2])]


def measure_ratio(
    source: os.PathLike[str] | ir.Model, result: ir.Model, feeds: Feeds, options: SessionOptions
) -> LatencyRatio:
    """Latency of the result over that of the source, with the runtime's own optimizations on for both."""
    # Unless asked otherwise one thread: the steadiest measure on a machine that does other things too.
    options = dataclasses.replace(options, threads=options.threads or 1, spinning="runs")
    before, after = OnnxRunner.open(source, options), OnnxRunner.open(result, options)
    with progress.task("measuring"):
        return compare_latency(partial(before.run, feeds), partial(after.run, feeds), options.threads)


def confirmed_ratio(
    source: os.PathLike[str] | ir.Model, result: ir.Model, feeds: Feeds, options: SessionOptions
) -> LatencyRatio:
    """The same, measured longer with fresh sessions several times: two sessions of one file differ by chance."""
    options = dataclasses.replace(options, threads=options.threads or 1, spinning="runs")
    blocks: list[list[Timing]] = []
    with progress.task("measuring once more", _BLOCKS) as task:
        for _ in range(_BLOCKS):
            runners = [OnnxRunner.open(m, options) for m in (source, result)]
            calls = [partial(r.run, feeds) for r in runners]
            blocks.append(measure(calls, budget=_BUDGET / 2, minimum=3, warmup=1, clock=clock_for(options.threads)))
            task.advance()
    before, after = zip(*blocks, strict=True)
    whole = [Timing(tuple(s for block in side for s in block.samples)) for side in (before, after)]
    return _as_report(block_ratio(after, before), whole, options.threads)


def _as_report(found: Ratio, timings: Sequence[Timing], threads: int | None) -> LatencyRatio:
    return LatencyRatio(
        before=timings[0].median,
        after=timings[1].median,
        value=found.value,
        low=found.low,
        high=found.high,
        threads=threads or 1,
    )

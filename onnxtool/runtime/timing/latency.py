"""Latency of quantized models against the float model, measured side by side."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.report.measurement.latency import LatencyRatio
from onnxtool.runtime.casting_runner import fit_dtypes
from onnxtool.runtime.feeds import random_feeds
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.timing.timing import Ratio, Timing, block_ratio, clock_for, measure, ratio

_LEAST_ROUNDS = 3
_PATIENCE = 3  # times the budget, that the minimum of rounds may take


def compare_latency(
    reference: OnnxRunner,
    candidates: Sequence[OnnxRunner],
    feeds: Mapping[str, np.ndarray],
    *,
    threads: int,
    budget: float = 2.0,
    minimum: int = 10,
    maximum: int = 1000,
    warmup: int = 3,
    enough: Callable[[Ratio], bool] | None = None,
) -> list[LatencyRatio]:
    """Run the float model and candidates in alternation on one sample.

    Slow models get fewer rounds than `minimum`, three at least: they are steadier, and would take minutes.

    Args:
        reference: the float model as the user gave it.
        candidates: what to judge.
        feeds: one sample.
        threads: of all runners, for the report.
        budget: seconds for all of it together.
        minimum: least number of rounds.
        maximum: largest number of rounds.
        warmup: rounds that are not counted, one at least.
        enough: ends the measurement early when it holds for the ratio of every candidate.
    """
    calls = [_call(runner, fit_dtypes(runner, feeds)) for runner in (reference, *candidates)]
    began = time.perf_counter()
    for call in calls:
        call()
    once = time.perf_counter() - began
    minimum = max(_LEAST_ROUNDS, min(minimum, int(_PATIENCE * budget / once)))
    warmup = min(warmup - 1, int(budget / once))
    clock = clock_for(threads)
    timings = measure(
        calls,
        budget=budget,
        minimum=minimum,
        maximum=maximum,
        warmup=warmup,
        clock=clock,
        enough=None if enough is None else lambda found: all(enough(ratio(t, found[0])) for t in found[1:]),
    )
    results = []
    for timing in timings[1:]:
        found = ratio(timing, timings[0])
        results.append(LatencyRatio(found.value, found.low, found.high, timings[0].median, timing.median, threads))
    return results


def _call(runner: OnnxRunner, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    return lambda: runner.session.run(None, feeds)


_LENGTHS = (16, 128)
_BUDGET = 1.0  # seconds
_BLOCKS = 5
_SLOW = 0.25  # a model slower than this gets fewer rounds


def timing_feeds(
    specs: Sequence[TensorSpec], seed: int, domains: Mapping[str, Domain], probes: Sequence[Probe]
) -> list[dict[str, np.ndarray]]:
    """Inputs to time fusions on: lengths 16 and 128 where a length is dynamic, then those the source has run on.

    What pays at 16 need not pay at 128, and the model may refuse either.
    """
    usual = [random_feeds(specs, seed, batch=1, length=length, domains=domains) for length in _LENGTHS]
    shapes = [{name: np.shape(array) for name, array in feeds.items()} for feeds in usual]
    return [*(usual if shapes[0] != shapes[1] else usual[:1]), *(p.feeds for p in probes[:2])]


def measure_ratio(
    source: os.PathLike[str] | ir.Model, result: ir.Model, feeds: dict[str, np.ndarray], options: SessionOptions
) -> LatencyRatio:
    """Latency of the result over that of the source, with the runtime's own optimizations on for both."""
    # Unless asked otherwise one thread: the steadiest measure on a machine that does other things too.
    options = dataclasses.replace(options, threads=options.threads or 1, spinning="runs")
    before, after = OnnxRunner.open(source, options), OnnxRunner.open(result, options)
    start = time.perf_counter()
    before.run(feeds)
    slow = time.perf_counter() - start > _SLOW
    with progress.task("measuring"):
        timings = measure(
            [lambda: before.run(feeds), lambda: after.run(feeds)],
            budget=_BUDGET,
            minimum=3 if slow else 10,
            warmup=1 if slow else 3,
            clock=clock_for(options.threads),
        )
    return _as_report(ratio(timings[1], timings[0]), timings, options)


def confirmed_ratio(
    source: os.PathLike[str] | ir.Model, result: ir.Model, feeds: dict[str, np.ndarray], options: SessionOptions
) -> LatencyRatio:
    """The same, measured longer with fresh sessions several times: two sessions of one file differ by chance."""
    options = dataclasses.replace(options, threads=options.threads or 1, spinning="runs")
    blocks: list[list[Timing]] = []
    with progress.task("measuring once more", _BLOCKS) as task:
        for _ in range(_BLOCKS):
            runners = [OnnxRunner.open(m, options) for m in (source, result)]
            calls = [functools.partial(r.run, feeds) for r in runners]
            blocks.append(measure(calls, budget=_BUDGET / 2, minimum=3, warmup=1, clock=clock_for(options.threads)))
            task.advance()
    before, after = zip(*blocks, strict=True)
    whole = [Timing(tuple(s for block in side for s in block.samples)) for side in (before, after)]
    return _as_report(block_ratio(after, before), whole, options)


def _as_report(found: Ratio, timings: Sequence[Timing], options: SessionOptions) -> LatencyRatio:
    return LatencyRatio(
        before=timings[0].median,
        after=timings[1].median,
        value=found.value,
        low=found.low,
        high=found.high,
        threads=options.threads or 1,
    )

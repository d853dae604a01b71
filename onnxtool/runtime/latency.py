"""Latency of quantized models against the float model, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnxtool.report.latency import LatencyRatio
from onnxtool.runtime.casting_runner import fit_dtypes
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.timing import clock_for, measure, ratio

_LEAST_ROUNDS = 3
_PATIENCE = 3  # times the budget, that the minimum of rounds may take
DEFAULT_THREADS = 1  # one thread is the least noisy measure, and what services with many workers run


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
    """
    calls = [_call(runner, fit_dtypes(runner, feeds)) for runner in (reference, *candidates)]
    began = time.perf_counter()
    for call in calls:
        call()
    once = time.perf_counter() - began
    minimum = max(_LEAST_ROUNDS, min(minimum, int(_PATIENCE * budget / once)))
    warmup = min(warmup - 1, int(budget / once))
    clock = clock_for(threads)
    timings = measure(calls, budget=budget, minimum=minimum, maximum=maximum, warmup=warmup, clock=clock)
    results = []
    for timing in timings[1:]:
        found = ratio(timing, timings[0])
        results.append(LatencyRatio(found.value, found.low, found.high, timings[0].median, timing.median, threads))
    return results


def _call(runner: OnnxRunner, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    return lambda: runner.session.run(None, feeds)

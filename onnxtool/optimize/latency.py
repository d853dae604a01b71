"""How much faster the optimized model is: source and result in alternation."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.report.optimize import LatencyRatio
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import SessionOptions
from onnxtool.runtime.timing import clock_for, measure, ratio

_BUDGET = 1.0  # seconds
_SLOW = 0.25  # a model slower than this gets fewer rounds


def measure_ratio(
    source: Path | ir.Model, result: ir.Model, feeds: dict[str, np.ndarray], options: SessionOptions
) -> LatencyRatio:
    """Latency of the result over that of the source, with the runtime's own optimizations on for both."""
    # Unless asked otherwise one thread: the steadiest measure on a machine that does other things too.
    options = dataclasses.replace(options, threads=options.threads or 1)
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
    found = ratio(timings[1], timings[0])
    return LatencyRatio(
        before=timings[0].median,
        after=timings[1].median,
        ratio=found.value,
        low=found.low,
        high=found.high,
        threads=options.threads,
    )

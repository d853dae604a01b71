"""Timing in blocks: the same for models side by side and for settings side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import ml_dtypes
import numpy as np

from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.timing.timing import Timing, measure

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BLOCKS, FEWEST_BLOCKS = 8, 4


def session_call(runner: OnnxRunner, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """One run. The session itself where it can take the arrays: holding them against the model costs time too."""
    if any(s.dtype == _BFLOAT16 for s in (*runner.inputs, *runner.outputs)):
        return partial(runner.run, feeds)
    return partial(runner.session.run, None, feeds)


def timed_block(calls: Sequence[Callable[[], object]], budget: float) -> list[Timing]:
    """Warm up for a tenth of the budget (seconds), then measure all calls in alternation."""
    began = time.perf_counter()
    for call in calls:
        call()
    once = max(time.perf_counter() - began, 1e-6)
    rounds = min(max(int(0.1 * budget / once), 2), 100)
    return measure(calls, budget=budget, minimum=5, maximum=5000, warmup=rounds)


def timed_blocks(
    open_all: Callable[[], Sequence[Callable[[], object]]], budget: float, *, alone: bool = False
) -> list[tuple[Timing, ...]]:
    """Several blocks with fresh sessions in each (see `timing.block_ratio`); one where there is nothing to compare.

    Args:
        open_all: fresh sessions, each run once.
        budget: seconds of measuring for all of it.
        alone: there is one candidate only.

    Returns:
        For each candidate its timings, one a block.
    """
    blocks: list[list[Timing]] = []
    wanted = 1 if alone else BLOCKS
    while len(blocks) < wanted:
        began = time.perf_counter()
        calls = open_all()
        opening = time.perf_counter() - began
        if not blocks and not alone:
            # Slow to load: fewer blocks, but never so few that an interval means nothing.
            wanted = max(FEWEST_BLOCKS, min(BLOCKS, int(budget / max(opening, 1e-3))))
        blocks.append(timed_block(calls, budget / wanted))
    return list(zip(*blocks, strict=True))

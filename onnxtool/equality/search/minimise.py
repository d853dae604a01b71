"""A counterexample made smaller: fewer rows, fewer values that matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from onnxtool.equality.trials.trial import Budget, Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import Runner

_ROWS = 16  # single rows that are tried


def minimised(
    trial: Trial, reference: Runner, specs: Sequence[TensorSpec], fails: Callable[[Trial], bool], budget: Budget
) -> Trial:
    """The smallest input found on which the two models still differ.

    Args:
        trial: an input on which they do.
        reference: run on each smaller input.
        specs: the inputs.
        fails: whether the other model differs there.
        budget: how long this may take.
    """

    def still(feeds: Feeds) -> Trial | None:
        if budget.left <= 0:
            return None
        try:
            smaller = replace(trial, feeds=feeds, outputs=reference.run(feeds))
        except OnnxToolError:
            return None
        return smaller if fails(smaller) else None

    batched = [s.name for s in specs if s.shape and not isinstance(s.shape[0], int)]
    rows = {len(trial.feeds[name]) for name in batched}
    if len(rows) == 1 and (count := rows.pop()) > 1 and not trial.label.startswith("batch"):
        for row in range(min(count, _ROWS)):
            one = {n: a[row : row + 1] if n in batched else a for n, a in trial.feeds.items()}
            found = still(one)
            if found is not None:
                trial = found
                break
    for name, array in list(trial.feeds.items()):
        if array.dtype.kind != "f" or array.size < 2:
            continue
        trial = _fewer_values(trial, name, still)
    return trial


def _fewer_values(trial: Trial, name: str, still: Callable[[Feeds], Trial | None]) -> Trial:
    """Set parts of an input to zero, in ever smaller blocks, as long as the difference stays.

    Source: Zeller and Hildebrandt 2002, "Simplifying and isolating failure-inducing input", section 3.
    """
    size = trial.feeds[name].size
    block = max(1, size // 2)
    for _ in range(4):
        for start in range(0, size, block):
            array = trial.feeds[name].copy()
            flat = array.reshape(-1)
            if not flat[start : start + block].any():
                continue
            flat[start : start + block] = 0
            found = still({**trial.feeds, name: array})
            if found is not None:
                trial = found
        if block == 1:
            break
        block = max(1, block // 4)
    return trial

"""A last search: inputs are changed towards a larger difference between two models, within a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.equality.search.mutations import Moves
from onnxtool.equality.trials.observe import telling
from onnxtool.equality.trials.trial import Budget, Trial
from onnxtool.errors import OnnxToolError
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.flatten_outputs import flatten

Run = Callable[[Feeds], Mapping[str, Any]]
_RTOL, _ATOL = 1e-3, 1e-5
_MOST_STEPS = {"quick": 60, "normal": 400, "thorough": 20_000}
_KEPT = 6  # best inputs that are changed further


def search(
    reference: Run,
    candidate: Run,
    moves: Moves,
    starts: Sequence[Trial],
    budget: Budget,
    fails: Callable[[Trial], bool],
    *,
    seed: int = 0,
) -> Trial | None:
    """Change inputs, keep those on which the two models are further apart, and go on from these.

    Args:
        reference: what is right; raises OnnxToolError where it refuses.
        candidate: what is judged, in the reference's names.
        moves: what can be changed about the inputs.
        starts: inputs with the reference's outputs.
        budget: how long.
        fails: the verdict on one input; asked only where the difference is near the tolerance or beyond.
        seed: of random numbers.

    Returns:
        An input on which `fails`; None when none was found.
    """
    generator = np.random.default_rng(seed + 7)
    pool: list[tuple[float, Feeds]] = []
    for trial in starts[:_KEPT]:
        found = _step(reference, candidate, trial.feeds, fails)
        if isinstance(found, Trial):
            return found
        if found is not None:
            pool.append((found, trial.feeds))
        if budget.left <= 0:
            return None
    for _ in range(_MOST_STEPS[budget.effort]):
        if not pool or budget.left <= 0:
            return None
        score, feeds = pool[int(generator.integers(len(pool)))]
        changed = moves.changed(feeds)
        found = _step(reference, candidate, changed, fails)
        if isinstance(found, Trial):
            return found
        if found is not None and found > score:
            pool = sorted([*pool, (found, changed)], key=lambda item: -item[0])[:_KEPT]
    return None


def _step(reference: Run, candidate: Run, feeds: Feeds, fails: Callable[[Trial], bool]) -> Trial | float | None:
    try:
        with np.errstate(all="ignore"):
            expected = reference(feeds)
    except OnnxToolError:
        return None
    trial = Trial("an input that the search came to", TrialKind.SEARCH, feeds, expected)
    if not telling(expected, TrialKind.SEARCH):
        return None
    try:
        distance = apart(expected, candidate(feeds))
    except OnnxToolError:
        distance = np.inf
    if distance > 0.5 and fails(trial):
        return trial
    return distance if distance < np.inf else None


def apart(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> float:
    """The largest difference of two models' outputs, in tolerances; infinite for other shapes or other text."""
    worst = 0.0
    left, right = flatten(expected), flatten(actual)
    if len(left) != len(right):
        return np.inf
    for a, b in zip(left.values(), right.values(), strict=True):
        x, y = np.asarray(a), np.asarray(b)
        if x.shape != y.shape:
            return np.inf
        if x.dtype.kind in "OUSb" or y.dtype.kind in "OUSb":
            if (x.astype(str) != y.astype(str)).any():
                return np.inf
            continue
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        x, y = x.astype(wide), y.astype(wide)
        if not x.size:
            continue
        with np.errstate(all="ignore"):
            scale = np.sqrt(np.nanmean(np.abs(x) ** 2))
            allowed = _ATOL * max(1e-3, float(scale)) + _RTOL * np.abs(x)
            error = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y) / allowed)
        worst = max(worst, float(np.nan_to_num(error, nan=np.inf).max()))
    return worst

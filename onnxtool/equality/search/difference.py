"""A last search: inputs are changed towards a larger difference between two models, within a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.observe import telling
from onnxtool.equality.trials.trial import Budget, Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.spec import TensorSpec
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.flatten_outputs import flatten

Score = tuple[float, ...]  # compared from the left
Run = Callable[[Feeds], Mapping[str, Any]]
_RTOL, _ATOL = 1e-3, 1e-5
_MOST_STEPS = {"quick": 60, "normal": 400, "thorough": 20_000}
_KEPT = 6  # best inputs that are changed further


def search(
    reference: Run,
    candidate: Run,
    specs: Sequence[TensorSpec],
    starts: Sequence[Trial],
    facts: GraphHints,
    budget: Budget,
    fails: Callable[[Trial], bool],
    *,
    seed: int = 0,
) -> Trial | None:
    """Change inputs, keep those on which the two models are further apart, and go on from these.

    Args:
        reference: what is right; raises OnnxToolError where it refuses.
        candidate: what is judged, in the reference's names.
        specs: the inputs.
        starts: inputs with the reference's outputs.
        facts: what is known of the inputs.
        budget: how long.
        fails: the verdict on one input; asked only where the difference is near the tolerance or beyond.
        seed: of random numbers.

    Returns:
        An input on which `fails`; None when none was found.
    """
    generator = np.random.default_rng(seed + 7)
    return climb(
        [trial.feeds for trial in starts[:_KEPT]],
        lambda feeds: _step(reference, candidate, feeds, fails),
        lambda feeds: mutated(specs, feeds, facts, generator),
        budget,
        generator,
        steps=_MOST_STEPS[budget.effort],
        kept=_KEPT,
    )


def climb(
    starts: Sequence[Feeds],
    step: Callable[[Feeds], Trial | Score | None],
    change: Callable[[Feeds], Feeds],
    budget: Budget,
    generator: np.random.Generator,
    *,
    steps: int,
    kept: int,
    level: bool = False,
) -> Trial | None:
    """Try inputs, keep those of the best scores, and change one of these at random, again and again.

    Args:
        starts: inputs to begin with.
        step: a failure, which ends the search; a score; or None where the models say nothing.
        change: makes other inputs of some.
        budget: how long.
        generator: chooses among those that are kept.
        steps: how many changes.
        kept: so many inputs are changed further.
        level: as good as before is good enough to be kept, and so is anything while there are few; else only better.
    """
    pool: list[tuple[Score, Feeds]] = []
    pending = list(starts)
    for _ in range(len(pending) + steps):
        if budget.left <= 0 or not (pending or pool):
            return None
        score: Score | None = None
        if pending:
            feeds = pending.pop(0)
        else:
            score, feeds = pool[int(generator.integers(len(pool)))]
            feeds = change(feeds)
        found = step(feeds)
        if isinstance(found, Trial):
            return found
        if found is None:
            continue
        if score is None or found > score or (level and (found == score or len(pool) < kept)):
            pool = sorted([*pool, (found, feeds)], key=lambda item: item[0], reverse=True)[:kept]
    return None


def _step(reference: Run, candidate: Run, feeds: Feeds, fails: Callable[[Trial], bool]) -> Trial | Score | None:
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
    return (distance,) if distance < np.inf else None


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


def mutated(specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator) -> Feeds:
    """One change to one input (or, at times, to all of them)."""
    names = [s for s in specs if np.size(feeds[s.name])]
    if not names:
        return feeds
    chosen = names if generator.random() < 0.2 else [names[int(generator.integers(len(names)))]]
    made = dict(feeds)
    for spec in chosen:
        made[spec.name] = _changed(spec, np.asarray(feeds[spec.name]), facts, generator)
    return made


def _changed(spec: TensorSpec, array: np.ndarray, facts: GraphHints, generator: np.random.Generator) -> np.ndarray:
    if array.dtype.kind == "b":
        return np.asarray(array ^ (generator.random(array.shape) < generator.choice([0.05, 0.5, 1.0])))
    if array.dtype.kind in "OUS":
        return np.asarray(generator.permutation(array.reshape(-1)).reshape(array.shape))
    if array.dtype.kind in "iu":
        return _integer(spec, array, facts, generator)
    if array.dtype.kind not in "fV":
        return array
    domain = facts.domains.get(spec.name)
    if domain is not None and domain.values:
        return generator.permutation(array.reshape(-1)).reshape(array.shape)
    with np.errstate(all="ignore"):
        wide = np.array(np.clip(np.nan_to_num(array.astype(np.float64)), -1e30, 1e30))
    kind = int(generator.integers(9))
    place = tuple(int(generator.integers(d)) for d in wide.shape)
    if kind == 0:
        wide = wide * generator.choice([0.1, 0.5, 2.0, 5.0, -1.0])
    elif kind == 1:
        wide = wide + generator.choice([-3.0, -1.0, 1.0, 3.0])
    elif kind == 2:
        wide[place] = generator.standard_normal() * generator.choice([1.0, 10.0, 100.0])
    elif kind == 3:
        wide = wide + 0.1 * generator.standard_normal(wide.shape) * (np.abs(wide).mean() + 0.1)
    elif kind == 4:
        chosen = generator.random(wide.shape) < 0.1
        wide = np.where(chosen, -wide, wide)
    elif kind == 5 and facts.values:
        value = facts.values[int(generator.integers(len(facts.values)))]
        wide[place] = value * generator.choice([1.0, 1.01, 0.99]) + generator.choice([0.0, 1.0, -1.0])
    elif kind == 6 and wide.ndim > 1:
        wide[..., place[-1]] = generator.choice([-10.0, -1.0, 0.0, 1.0, 10.0])
    elif kind == 7:
        wide[place] = generator.choice([0.0, 1.0, -1.0, 30.0, -30.0, 255.0])
    else:
        wide = generator.standard_normal(wide.shape) * generator.choice([0.3, 1.0, 3.0, 10.0])
    if domain is not None and domain.low > 0:
        wide = np.abs(wide) + domain.low * 1e-3
    with np.errstate(all="ignore"):
        return np.asarray(np.clip(wide, -1e6, 1e6).astype(array.dtype))


def _integer(spec: TensorSpec, array: np.ndarray, facts: GraphHints, generator: np.random.Generator) -> np.ndarray:
    low, high = -10, 101
    domain = facts.domains.get(spec.name)
    if domain is not None:
        low, high = int(domain.low), max(int(domain.high), int(domain.low) + 1)
        if "mask" in spec.name.lower():
            low, high = 0, 2
    elif spec.name in facts.structural:
        low, high = int(array.min()), int(array.max()) + 1
    info = np.iinfo(array.dtype)
    low, high = max(low, int(info.min)), min(high, int(info.max) + 1)
    drawn = generator.integers(low, high, array.shape)
    changed = generator.random(array.shape) < generator.choice([0.05, 0.3, 1.0])
    return np.where(changed, drawn, array).astype(array.dtype)

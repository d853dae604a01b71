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
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds, flatten

Run = Callable[[Feeds], Mapping[str, Any]]
_RTOL, _ATOL = 1e-3, 1e-5
_MOST_STEPS = {"quick": 25, "normal": 1000, "thorough": 10_000}
_KEPT = 24  # best inputs that are changed further


def search(
    reference: Run,
    candidate: Run,
    specs: Sequence[TensorSpec],
    starts: Sequence[Feeds],
    facts: GraphHints,
    budget: Budget,
    fails: Callable[[Trial], bool],
    *,
    seed: int = 0,
) -> Trial | None:
    """Try inputs, keep those of the largest distances, and change one of these at random, again and again.

    Args:
        reference, candidate: take the same inputs.
        specs: the inputs.
        starts: inputs that the reference takes.
        facts: what is known of the inputs.
        budget: how long.
        fails: the verdict on one input; asked only where the difference is near the tolerance or beyond.
        seed: of random numbers.

    Returns:
        An input on which `fails`; None when none was found.
    """
    generator = np.random.default_rng(seed + 11)
    pool: list[tuple[float, Feeds]] = []
    pending = list(starts)
    for _ in range(len(pending) + _MOST_STEPS[budget.effort]):
        if budget.left <= 0 or not (pending or pool):
            return None
        before = 0.0
        if pending:
            feeds = pending.pop(0)
        else:
            before, parent = pool[int(generator.integers(len(pool)))]
            feeds = mutated(specs, parent, facts, generator)
        found = _distance(reference, candidate, feeds)
        if found is None:
            continue
        score, outputs = found
        trial = Trial("an input that the search came to", TrialKind.SEARCH, feeds, outputs)
        if score > 0.5 and fails(trial):
            return trial
        if score < np.inf and (score >= before or len(pool) < _KEPT):
            pool = sorted([*pool, (score, feeds)], key=lambda item: item[0], reverse=True)[:_KEPT]
    return None


def _distance(reference: Run, candidate: Run, feeds: Feeds) -> tuple[float, Mapping[str, Any]] | None:
    """How far the outputs are apart, with the reference's; None where it does not run, or gives nothing that tells."""
    try:
        with np.errstate(all="ignore"):
            outputs = reference(feeds)
    except OnnxToolError:
        return None
    if not telling(outputs, TrialKind.SEARCH):
        return None
    try:
        return largest_difference(outputs, candidate(feeds)), outputs
    except OnnxToolError:
        return np.inf, outputs


def largest_difference(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> float:
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
    names = [s for s in specs if isinstance(feeds[s.name], np.ndarray) and feeds[s.name].size]
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

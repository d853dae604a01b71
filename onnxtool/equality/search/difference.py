"""A last search: inputs are changed towards a larger difference between two models, within a time.

Where it is known at which values the two begin to differ, inputs on which these differ are kept, and the rest of them
is changed until an output differs too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.observe import telling
from onnxtool.equality.trials.trial import Budget, Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds, flatten

Score = tuple[float, float]  # compared from the left
Run = Callable[[Feeds], Mapping[str, Any]]
_RTOL, _ATOL = 1e-3, 1e-5
_MOST_STEPS = {"quick": 500, "normal": 20_000, "thorough": 200_000}
_BLIND = 20  # times fewer steps where nothing is known of the values inside
_KEPT = 24  # best inputs that are changed further
_SHARES = (0.1, 0.5, 0.9, 1.0)  # of an input's elements that a step changes
_ROUNDED = 1e-6  # numbers as close as that are apart by rounding


@dataclass(frozen=True)
class BothModels:
    """Two models that are run on the same inputs.

    Attributes:
        a, b: take A's inputs.
        pairs: names in A and in B of values at which they begin to differ; both give them beside their outputs.
        outputs: the names of A's own outputs, and of B's, where there are such values.
    """

    a: Run
    b: Run
    pairs: Sequence[tuple[str, str]] = ()
    outputs: tuple[Collection[str], Collection[str]] = ((), ())

    def distance(self, feeds: Feeds) -> tuple[Score, Mapping[str, Any]] | None:
        """How far the outputs are apart, and in how many elements the inner values are; with A's outputs.

        Returns:
            None where A does not run, or gives nothing that proves anything and no inner values either.
        """
        try:
            with np.errstate(all="ignore"):
                left = self.a(feeds)
        except OnnxToolError:
            return None
        outputs = {n: left[n] for n in self.outputs[0]} if self.pairs else left
        tells = telling(outputs, TrialKind.SEARCH)
        if not tells and not self.pairs:
            return None
        try:
            right = self.b(feeds)
        except OnnxToolError:
            return None if self.pairs else ((np.inf, 0.0), outputs)
        other = {n: right[n] for n in self.outputs[1]} if self.pairs else right
        inner = sum(_unlike(np.asarray(left[x]), np.asarray(right[y])) for x, y in self.pairs)
        return (largest_difference(outputs, other) if tells else 0.0, inner), outputs


def _unlike(a: np.ndarray, b: np.ndarray) -> float:
    """In how many elements; of floats, how far as well, so that a larger difference is a better one."""
    if a.shape != b.shape:
        return 1.0
    if a.dtype.kind != "f":
        return float((a != b).sum())
    with np.errstate(all="ignore"):
        off = np.abs(a.astype(np.float64) - b) / (np.abs(a) + np.abs(b) + 1e-30)
    off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.nan_to_num(off, nan=1.0))
    return float(off[off > _ROUNDED].sum())


def search(
    models: BothModels,
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
        models: which are run.
        specs: the inputs.
        starts: inputs that A takes.
        facts: what is known of the inputs.
        budget: how long.
        fails: the verdict on one input; asked only where the difference is near the tolerance or beyond.
        seed: of random numbers.

    Returns:
        An input on which `fails`; None when none was found.
    """
    generator = np.random.default_rng(seed + 11)
    pool: list[tuple[Score, Feeds]] = []
    pending = list(starts)
    for _ in range(len(pending) + _MOST_STEPS[budget.effort] // (1 if models.pairs else _BLIND)):
        if budget.left <= 0 or not (pending or pool):
            return None
        before: Score | None = None
        if pending:
            feeds = pending.pop(0)
        else:
            before, parent = pool[int(generator.integers(len(pool)))]
            feeds = _partly(parent, mutated(specs, parent, facts, generator), generator)
        found = models.distance(feeds)
        if found is None:
            continue
        score, outputs = found
        trial = Trial("an input that the search came to", TrialKind.SEARCH, feeds, outputs)
        if score[0] > 0.5 and fails(trial):
            return trial
        if score[0] < np.inf and (before is None or score >= before or len(pool) < _KEPT):
            pool = sorted([*pool, (score, feeds)], key=lambda item: item[0], reverse=True)[:_KEPT]
    return None


def _partly(before: Feeds, after: Feeds, generator: np.random.Generator) -> Feeds:
    """A share of the changes, so that what makes the inner values differ may stay."""
    share = generator.choice(_SHARES)
    made = {}
    for name, x in after.items():
        chosen = generator.random(np.shape(x)) < share
        made[name] = np.where(chosen, x, before[name]).astype(x.dtype) if x is not before[name] else x
    return made


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

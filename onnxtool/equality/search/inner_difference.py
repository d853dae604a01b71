"""A search that knows where two models begin to differ: inputs on which a difference that arises there comes out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtool.equality.search.counterexample import renamed
from onnxtool.equality.search.difference import Score, apart, climb, mutated
from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.observe import telling
from onnxtool.equality.trials.trial import Budget, Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.spec import TensorSpec
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import Runner

_MOST_STEPS = {"quick": 500, "normal": 20_000, "thorough": 200_000}
_KEPT = 24
_SHARES = (0.1, 0.5, 0.9, 1.0)  # of an input's elements that a step changes
_ROUNDED = 1e-6  # numbers as close as that are apart by rounding


@dataclass(frozen=True)
class InnerValues:
    """Two models with the values at which they begin to differ among their outputs.

    Attributes:
        a, b: take the same inputs.
        pairs: names of these values in A and in B.
        outputs: the names of A's own outputs, and of B's.
    """

    a: Runner
    b: Runner
    pairs: Sequence[tuple[str, str]]
    outputs: tuple[Collection[str], Collection[str]]

    def distance(self, feeds: Feeds) -> tuple[tuple[float, float], Mapping[str, Any]]:
        """How far the outputs are apart, and in how many elements the inner values are; with A's outputs.

        Raises:
            OnnxToolError: a model does not run.
        """
        left, right = self.a.run(feeds), self.b.run(renamed(feeds, self.a, self.b))
        inner = sum(_unlike(np.asarray(left[x]), np.asarray(right[y])) for x, y in self.pairs)
        outputs, other = ({n: run[n] for n in names} for run, names in zip((left, right), self.outputs, strict=True))
        with np.errstate(all="ignore"):
            outer = apart(outputs, other) if telling(outputs, TrialKind.SEARCH) else 0.0
        return (min(outer, 1e30), inner), outputs


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


def search_inside(
    models: InnerValues,
    specs: Sequence[TensorSpec],
    starts: Sequence[Feeds],
    facts: GraphHints,
    budget: Budget,
    fails: Callable[[Trial], bool],
    *,
    seed: int = 0,
) -> Trial | None:
    """Keep inputs on which the inner values differ, and change the rest of them until an output differs too.

    Args:
        models: with their inner values.
        specs: the inputs.
        starts: inputs that A takes.
        facts: what is known of the inputs.
        budget: how long.
        fails: the verdict on one input; asked only where an output differs.
        seed: of random numbers.
    """
    generator = np.random.default_rng(seed + 11)

    def step(feeds: Feeds) -> Trial | Score | None:
        try:
            with np.errstate(all="ignore"):
                found, outputs = models.distance(feeds)
        except OnnxToolError:
            return None
        trial = Trial("an input that the search came to", TrialKind.SEARCH, feeds, outputs)
        return trial if found[0] > 1.0 and fails(trial) else found

    return climb(
        starts,
        step,
        lambda feeds: _partly(feeds, mutated(specs, feeds, facts, generator), generator),
        budget,
        generator,
        steps=_MOST_STEPS[budget.effort],
        kept=_KEPT,
        level=True,
    )


def _partly(before: Feeds, after: Feeds, generator: np.random.Generator) -> Feeds:
    """A share of the changes, so that what makes the inner values differ may stay."""
    share = generator.choice(_SHARES)
    made = {}
    for name, x in after.items():
        chosen = generator.random(np.shape(x)) < share
        made[name] = np.where(chosen, x, before[name]).astype(x.dtype) if x is not before[name] else x
    return made

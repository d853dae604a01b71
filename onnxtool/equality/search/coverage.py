"""Inputs that reach what others have not: branches of a graph, sought within a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtool.equality.search.branches import BranchWatch
from onnxtool.equality.search.difference import mutated
from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.trial import Budget
from onnxtool.equality.trials.values import value_changes
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds

_STEPS, _KEPT, _CHANGES = 3000, 4, 150


def seek(
    watch: BranchWatch,
    specs: Sequence[TensorSpec],
    runs: Sequence[Feeds],
    facts: GraphHints,
    budget: Budget,
    *,
    seed: int = 0,
) -> list[Feeds]:
    """Look for inputs that run the parts which `watch` has not seen yet.

    First the values that the graph compares with, then changes to the inputs whose compared numbers come nearest to one
    another.

    Args:
        watch: it has seen the usual inputs.
        specs: the inputs.
        runs: inputs on which the model runs.
        facts: what is known of the inputs.
        budget: how long.
        seed: of random numbers.

    Returns:
        Inputs of which each reached something new.
    """
    generator = np.random.default_rng(seed + 3)
    found: list[Feeds] = []
    pool: list[tuple[float, Feeds]] = []

    def attempt(feeds: Feeds) -> float:
        fresh, near = watch.run(feeds)
        if fresh:
            found.append(feeds)
        return near

    for run in runs:
        pool.append((attempt(run), run))
    for count, (_, _, feeds) in enumerate(value_changes(specs, runs[0], facts, generator)):
        if not watch.unreached or budget.left <= 0 or count >= _CHANGES:
            break
        pool.append((attempt(feeds), feeds))
    pool = sorted(pool, key=lambda item: item[0])[:_KEPT]
    for _ in range(_STEPS):
        if not watch.unreached or budget.left <= 0:
            break
        near, feeds = pool[int(generator.integers(len(pool)))]
        changed = mutated(specs, feeds, facts, generator)
        own = attempt(changed)
        if own < near:
            pool = sorted([*pool, (own, changed)], key=lambda item: item[0])[:_KEPT]
    return found

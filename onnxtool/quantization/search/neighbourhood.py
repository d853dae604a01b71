"""What differs from the best candidate in one choice: tried before the end, so that chance decides less.

A search that goes on from whatever was fastest in a short timing comes to one of several places. From each of them one
step leads to the others: another granularity of weights, other fused operators, static where it is dynamic. When none
of these steps gains, two searches that began differently have met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.accuracy_budget import DENSE_DB
from onnxtool.quantization.search.evaluator import RecipeTrial
from onnxtool.quantization.search.side_by_side import TOO_CLOSE

_MOST_PLANS = 2
_SLOWER = 1.03  # beyond what two sessions of one model differ by
_NOISIER_DB = 6.0  # so much more noise is not worth a try, unless there is little of it


def neighbours(best: RecipeTrial, trials: Sequence[RecipeTrial]) -> list[tuple[str, QuantRecipe]]:
    """Recipes that differ from the best one in one choice, each under a name; only choices that some trial has made.

    Args:
        best: the fastest within the budget.
        trials: all that was tried, timed or not.
    """
    recipe = best.recipe
    if not recipe.plan:
        return []
    found = []
    granularity: dict[str, Any] = {"per_channel": not recipe.per_channel, "per_tensor_nodes": ()}
    if not _has_made_worse(granularity, recipe, trials):
        label = "per-tensor" if recipe.per_channel else "per-channel"
        found.append((f"{best.name}, {label} weights", replace(recipe, shifts=None, **granularity)))
    for fuse in sorted({t.recipe.fuse for t in trials} - {recipe.fuse}):
        if not _has_made_worse({"fuse": fuse}, recipe, trials):
            found.append((f"{best.name}, {fuse or 'nothing'} fused", replace(recipe, fuse=fuse)))
    near = sorted(
        (t for t in trials if t.recipe.plan and t.speed <= TOO_CLOSE * best.speed and not _noisier(t, best)),
        key=lambda t: t.speed,
    )
    plans = [recipe.plan]
    for trial in near:
        plan = trial.recipe.plan
        if not plan or plan in plans or trial.recipe.exclude != recipe.exclude or len(plans) > _MOST_PLANS:
            continue
        if not _has_made_worse({"plan": plan}, recipe, [t for t in trials if t is not best]):
            plans.append(plan)
            found.append((f"{best.name}, nodes as of {trial.name}", replace(recipe, plan=plan, shifts=None)))
    return found


def _has_made_worse(change: Mapping[str, Any], recipe: QuantRecipe, trials: Sequence[RecipeTrial]) -> bool:
    """True when the same change has made another candidate, which is as the recipe in what is changed, surely worse."""
    bare = {"shifts": None, "ranges": None, "channels": None, **change}
    timed = [t for t in trials if t.latency is not None and t.recipe.plan]
    begun = [t for t in timed if all(getattr(t.recipe, name) == getattr(recipe, name) for name in change)]
    ended = [t for t in timed if all(getattr(t.recipe, name) == value for name, value in change.items())]
    changed = [(t, replace(t.recipe, **bare)) for t in ended]
    return any(
        _worse(after, before) and replace(before.recipe, **bare) == known
        for before in begun
        for after, known in changed
    )


def _worse(after: RecipeTrial, before: RecipeTrial) -> bool:
    """True when a candidate is surely slower, or far noisier."""
    slower = after.latency is not None and after.latency.low > _SLOWER * before.speed
    return slower or _noisier(after, before)


def _noisier(after: RecipeTrial, before: RecipeTrial) -> bool:
    if after.fidelity is None or before.fidelity is None:
        return False
    return after.fidelity.channel_db < min(before.fidelity.channel_db, DENSE_DB) - _NOISIER_DB

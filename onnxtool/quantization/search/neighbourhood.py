"""What differs from the best candidate in one choice: tried before the end, so that chance decides less.

A search that goes on from whatever was fastest in a short timing comes to one of several places. From each of them one
step leads to the others: another granularity of weights, other fused operators, static where it is dynamic. When none
of these steps gains, two searches that began differently have met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.evaluator import TOO_CLOSE, Trial

_MOST_PLANS = 2


def neighbours(best: Trial, trials: Sequence[Trial]) -> list[tuple[str, QuantRecipe]]:
    """Recipes that differ from the best one in one choice, each under a name; only choices that some trial has made.

    Args:
        best: the fastest within the budget.
        trials: all that was tried, timed or not.
    """
    recipe = best.recipe
    if not recipe.plan:
        return []
    found = [
        (
            f"{best.name}, {'per-tensor' if recipe.per_channel else 'per-channel'} weights",
            replace(recipe, per_channel=not recipe.per_channel, per_tensor_nodes=(), shifts=None),
        )
    ]
    for fuse in sorted({t.recipe.fuse for t in trials} - {recipe.fuse}):
        found.append((f"{best.name}, {fuse or 'nothing'} fused", replace(recipe, fuse=fuse)))
    near = sorted((t for t in trials if t.recipe.plan and t.speed <= TOO_CLOSE * best.speed), key=lambda t: t.speed)
    plans = [recipe.plan]
    for trial in near:
        plan = trial.recipe.plan
        if plan and plan not in plans and trial.recipe.exclude == recipe.exclude and len(plans) <= _MOST_PLANS:
            plans.append(plan)
            found.append((f"{best.name}, nodes as of {trial.name}", replace(recipe, plan=plan, shifts=None)))
    return found

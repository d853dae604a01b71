"""Which nodes cost the accuracy, and the fewest of them to leave in float."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnxtool import progress
from onnxtool.quantize.cost import macs
from onnxtool.quantize.recipe import QuantRecipe
from onnxtool.quantize.trial import Laboratory, Trial


def node_noise(lab: Laboratory, recipe: QuantRecipe, in_time: Callable[[], bool]) -> dict[str, float]:
    """Noise share at the outputs when one node alone is quantized, by node name.

    What cannot be measured in time counts as average.
    """
    plan = dict(recipe.plan or {})
    noise: dict[str, float] = {}
    with progress.task("measuring sensitivity", len(plan)) as task:
        for name, how in plan.items():
            if in_time():
                noise[name] = lab.noise_of(replace(recipe, plan={name: how}))
            task.advance()
    average = sum(noise.values()) / max(len(noise), 1)
    return {name: noise.get(name, average) for name in plan}


def repair(
    lab: Laboratory,
    trial: Trial,
    keeps: Callable[[Trial], bool],
    in_time: Callable[[], bool],
    nodes: Sequence[ir.Node],
) -> Trial | None:
    """Leave the costliest nodes in float: the fewest that bring a candidate within the budget.

    Nodes are ordered by noise for each multiply-accumulate that float would cost, and their number is found by
    bisection.

    Returns:
        The repaired candidate; None when no number of nodes in time does it.
    """
    trial = _better_ranges(lab, trial, in_time)
    if keeps(trial):
        return trial
    plan = dict(trial.recipe.plan or {})
    noise = node_noise(lab, trial.recipe, in_time)
    cost = macs(nodes, lab.seen)
    floor = 0.01 * sum(cost.values()) / max(len(cost), 1)
    order = sorted(plan, key=lambda n: noise[n] / (cost.get(n, 0.0) + floor), reverse=True)
    low, high, best = 0, len(order), None
    while high - low > 1 and in_time():
        middle = (low + high) // 2
        left = {n: how for n, how in plan.items() if n not in order[:middle]}
        tried = lab.try_out(f"{trial.name}, {middle} nodes float", replace(trial.recipe, plan=left))
        if keeps(tried):
            high, best = middle, tried
        else:
            low = middle
    return best


def _better_ranges(lab: Laboratory, trial: Trial, in_time: Callable[[], bool]) -> Trial:
    """The same plan under the range method and weight scales that lose least."""
    best = trial
    if "static" not in (trial.recipe.plan or {}).values():
        return best
    for method in ("mse", "percentile"):
        for per_channel in {best.recipe.per_channel, True}:
            if not in_time():
                return best
            recipe = replace(best.recipe, method=method, per_channel=per_channel)
            tried = lab.try_out(f"{trial.name}, {method}{', per-channel' if per_channel else ''}", recipe)
            if tried.fidelity and best.fidelity and tried.fidelity.channel_db > best.fidelity.channel_db:
                best = tried
    return best

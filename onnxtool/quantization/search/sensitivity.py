"""Which nodes cost the accuracy, and the fewest of them to leave in float."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnxtool import progress
from onnxtool.quantization.evaluation.fidelity import noise_share
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.accuracy_budget import CLASSES_DB, DENSE_DB
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.node_cost import macs

_PER_NODE = 0.5  # what the conversions around a node in float cost, in multiply-accumulates of the mean node


def node_noise(evaluator: CandidateEvaluator, recipe: QuantRecipe, in_time: Callable[[], bool]) -> dict[str, float]:
    """Noise share at the outputs when one node alone is quantized, by node name.

    What cannot be measured in time counts as average.
    """
    plan = dict(recipe.plan or {})
    noise: dict[str, float] = {}
    with progress.task("measuring sensitivity", len(plan)) as task:
        for name in plan:
            if in_time():
                noise[name] = evaluator.noise_of(name, recipe)
            task.advance()
    average = sum(noise.values()) / max(len(noise), 1)
    return {name: noise.get(name, average) for name in plan}


def first_guess(trial: RecipeTrial, noise: Sequence[float]) -> int:
    """How many of the first nodes to leave in float, if the noise of nodes added up: at least one, not all.

    Args:
        trial: what all of them together came to.
        noise: of each node alone, in the order in which they would be left.
    """
    fidelity = trial.fidelity
    if fidelity is None or len(noise) < 2 or not 0 < sum(noise) < float("inf"):
        return 1
    allowed = 10 ** (-(DENSE_DB if fidelity.agreement is None else CLASSES_DB) / 10)
    left = noise_share(fidelity)
    count = 0
    while left > allowed and count < len(noise) - 1:
        left -= noise_share(fidelity) * noise[count] / sum(noise)
        count += 1
    return max(count, 1)


def repair(
    evaluator: CandidateEvaluator,
    trial: RecipeTrial,
    is_within: Callable[[RecipeTrial], bool],
    in_time: Callable[[], bool],
    nodes: Sequence[ir.Node],
    measuring: Callable[[], bool] | None = None,
) -> RecipeTrial | None:
    """Leave the costliest nodes in float: the fewest that bring a candidate within the budget.

    Nodes are ordered by noise for each multiply-accumulate that float would cost, and some more for the conversions
    around each of them. Their number is guessed from the noise that would be left, if it added up, and found from there
    by doubling (or half of what is left) and bisection. Only what that ends at is timed.

    Args:
        evaluator: builds and judges.
        trial: what to repair.
        keeps: the budget.
        in_time: candidates may still be tried.
        nodes: compute nodes, for what they cost.
        measuring: noise may still be measured; what that leaves out counts as average. `in_time` unless given.

    Returns:
        The repaired candidate; None when no number of nodes in time does it.
    """
    plan = dict(trial.recipe.plan or {})
    noise = node_noise(evaluator, trial.recipe, measuring or in_time)
    cost = macs(nodes, evaluator.seen)
    floor = _PER_NODE * sum(cost.values()) / max(len(cost), 1) or 1.0
    order = sorted(plan, key=lambda n: noise[n] / (cost.get(n, 0.0) + floor), reverse=True)

    def without(count: int) -> RecipeTrial:
        left = {n: how for n, how in plan.items() if n not in order[:count]}
        name = f"{trial.name}, {count} node{'s' if count > 1 else ''} float"
        return evaluator.try_out(name, replace(trial.recipe, plan=left), timed=False)

    low, high, best = 0, first_guess(trial, [noise[n] for n in order]), None
    while low < high < len(order) and in_time():
        tried = without(high)
        if is_within(tried):
            best = tried
            break
        low, high = high, min(2 * high, (high + len(order)) // 2)
    while best is not None and high - low > 1 and in_time():
        middle = (low + high) // 2
        tried = without(middle)
        if is_within(tried):
            high, best = middle, tried
        else:
            low = middle
    return None if best is None else evaluator.try_out(best.name, best.recipe)

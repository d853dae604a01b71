"""Which candidates that break the accuracy budget are repaired, and the fewest of their nodes to leave in float."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from onnxtool import progress
from onnxtool.quantization.evaluation.fidelity import noise_share
from onnxtool.quantization.evaluation.output_statistics import CLASSES_DB, VALUES_DB
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.node_cost import macs

LESS_NOISE = 0.9  # what one candidate must have of another's noise to be clearly quieter
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
    allowed = 10 ** (-(VALUES_DB if fidelity.agreement is None else CLASSES_DB) / 10)
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


_WORTH_REPAIRING = 2
_STILL_FASTER = 0.93  # of the winner's latency: nodes that go back to float take some of what is gained


class AccuracyRepairs:
    """Nodes of a few candidates are put back to float; what one repair has shown is not looked for again."""

    def __init__(
        self, evaluator: CandidateEvaluator, nodes: Sequence[ir.Node], is_within: Callable[[RecipeTrial], bool]
    ) -> None:
        """Repair what does not keep the budget; `nodes` are the compute nodes, for what they cost."""
        self.evaluator, self.nodes, self.is_within = evaluator, nodes, is_within
        self.done: list[tuple[RecipeTrial, RecipeTrial | None]] = []  # and what each repair came to

    def of_the_fastest(self, fastest: Callable[[], Iterator[RecipeTrial]], in_time: Callable[[], bool]) -> None:
        """Bring the fastest that break the budget back within it, as long as they could still win.

        Args:
            fastest: all that could be repaired, the fastest first.
            in_time: candidates may still be tried.
        """
        for _ in range(_WORTH_REPAIRING):
            trial = self._next(fastest())
            if trial is None or not in_time():
                return
            # Measuring must leave time to try what it tells.
            measuring = self.evaluator.clock.first_half("repair")
            self.done.append((trial, repair(self.evaluator, trial, self.is_within, in_time, self.nodes, measuring)))

    def of_noisy(self, fastest: Iterable[RecipeTrial], in_time: Callable[[], bool]) -> None:
        """Very noisy candidates that are faster than float: few nodes may be what makes them so (one recurrent layer
        whose states run away, say).
        """
        known = [trial for trial, _ in self.done]
        noisy = [t for t in fastest if t.speed < 1.0 and t not in known and len(t.recipe.plan or {}) > 1]
        for trial in [t for t in noisy if not self.is_within(t)][:_WORTH_REPAIRING]:
            if not in_time() or repair(self.evaluator, trial, self.is_within, in_time, self.nodes) is not None:
                return

    def _next(self, fastest: Iterator[RecipeTrial]) -> RecipeTrial | None:
        """The fastest that breaks the budget, unless one within it is about as fast; slower ones are not judged."""
        chosen = None
        for trial in fastest:
            if chosen is not None and chosen.speed < _STILL_FASTER * trial.speed:
                break
            if self.is_within(trial):
                return None
            if chosen is None and not self._would_end_alike(trial):
                chosen = trial
        return chosen

    def _would_end_alike(self, trial: RecipeTrial) -> bool:
        """True where a repair is known that this one's would come to.

        That of one as fast and about as accurate, with its nodes on the same integers as far as both have them on
        integers: the same nodes would have to go back to float. Or that of one as fast which ended with nodes in
        float, among them all that this one has in float.
        """
        plan = trial.recipe.plan or {}
        for known, repaired in self.done:
            if known.integers == trial.integers:
                return True
            if known.speed > trial.speed or known.first_look is None or trial.first_look is None:
                continue
            same = all(plan.get(name, how) == how for name, how in (known.recipe.plan or {}).items())
            if same and noise_share(trial.first_look) >= LESS_NOISE * noise_share(known.first_look):
                return True
            if repaired is not None and (repaired.recipe.plan or {}).items() <= plan.items():
                return True
        return False

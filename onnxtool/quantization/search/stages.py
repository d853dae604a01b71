"""The search of `auto`: the fastest recipe on this machine that keeps the accuracy budget, found by measuring.

1. Families: a handful of whole-model recipes (static or dynamic, which operators, one weight scale or one per
   channel), each judged and timed beside the float model.
2. Conditioning: smoothing, equalization and bias correction, where accuracy is short and they help.
3. Paying: in the fastest ones, groups of nodes are put back to float where that is faster.
4. Repair: the fastest that break the budget get the nodes that cost most accuracy back in float, the fewest that do.
5. What differs from the best in one choice is tried, so that two searches end at the same.
6. The winner is the fastest within the budget; among equally fast ones the most accurate, or the smallest of those that
   are accurate enough. It is timed once more, and nothing is written unless it beats float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir

from onnxtool import progress
from onnxtool.quantization.algorithms.qdq_placement import is_product
from onnxtool.quantization.evaluation.fidelity import noise_share
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.accuracy_budget import AccuracyBudget, Samples
from onnxtool.quantization.search.accuracy_refinement import (
    compacted,
    compacted_unjudged,
    condition,
    with_float_kernels,
)
from onnxtool.quantization.search.accuracy_repair import AccuracyRepairs
from onnxtool.quantization.search.candidates import (
    MINOR,
    chosen_by,
    natural_plan,
    neighbours,
    share_of_linear,
    whole_model_plans,
)
from onnxtool.quantization.search.choice import (
    COMPACTING,
    TIMING_AGAIN,
    finalists,
    is_faster,
    nearest_miss,
    not_faster,
    surely_faster,
    surely_slower,
    undominated,
)
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.latency_refinement import (
    CLEARLY_FASTER,
    with_attention,
    with_fusions,
    without_gates,
    without_groups,
)
from onnxtool.quantization.search.node_cost import group_nodes, macs, weight_count
from onnxtool.quantization.search.side_by_side import ABOUT_AS_FAST, TOO_CLOSE
from onnxtool.quantization.search.time_budget import TimeBudget
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.runner import OnnxRunner

_AS_SMALL = 1.05  # of files about as small, the fastest
_ACCURATE_DB = 35.0  # beyond this more accuracy is worth no time at all
_WORTH_FUSING = 1.25  # times the fastest's latency: what fusing may gain more on another plan
_STEPS = 2  # from the best to what is next to it
_LOST_DB = 4.0  # so noisy that leaving nodes in float is not a repair
_METHODS: tuple[tuple[str, float], ...] = (
    ("minmax", 1.0),
    ("mse", 1.0),
    ("percentile", 0.9999),
    ("percentile", 0.99999),
)
_ANY_METHOD_DB = 40.0  # from here on it is no matter how ranges are chosen
_LAST_RESORT = 1.1  # of the time limit
_HEAVY = 20_000_000  # weights, beyond which a candidate takes seconds to build


@dataclass(frozen=True)
class SearchOutcome:
    """What the search found.

    Attributes:
        best: the winner; None when nothing keeps the budget and beats float.
        smallest: the smallest that keeps the budget, for --smallest; only where there is no winner.
        trials: everything tried, in order.
        budget: the accuracy budget that was used.
        verdict: one sentence.
        reference: a session of the float model.
        clock: the time limit.
        is_within: whether a candidate keeps the budget; judges it where it was not judged yet.
        notes: what else to know about the choice.
    """

    best: RecipeTrial | None
    smallest: RecipeTrial | None
    trials: tuple[RecipeTrial, ...]
    budget: AccuracyBudget
    verdict: str
    reference: OnnxRunner
    clock: TimeBudget
    is_within: Callable[[RecipeTrial], bool]
    notes: tuple[str, ...] = ()


class RecipeSearch:
    """One search: every stage starts from what the stages before found in the laboratory."""

    def __init__(
        self,
        evaluator: CandidateEvaluator,
        budget: AccuracyBudget,
        nodes: list[ir.Node],
        base: QuantRecipe,
        measured: DataSource | None,
        inner: list[ir.Node],
    ) -> None:
        self.evaluator, self.budget, self.nodes, self.base = evaluator, budget, nodes, base
        self.static_possible, self.inner = measured is not None, inner
        self.cost = macs(nodes, evaluator.seen)
        self.replaced: list[RecipeTrial] = []
        self.costly: set[frozenset[str]] = set()  # changes that made a candidate clearly slower
        self.sure = False  # the winner has been judged on all samples, not on a first few
        self.stage = "searching recipes"

    def run(self) -> SearchOutcome:
        """All stages, as far as there is time."""
        with progress.task("searching recipes") as task:
            self.evaluator.after_trial = partial(self._tell, task)
            self._tell(task, "choosing how ranges are measured")
            self._method()
            self._tell(task, "trying families of recipes")
            self._families()
            # Whatever is done to these later keeps the fusions.
            self._fusions()
            self._tell(task, "smoothing, equalizing, correcting biases")
            self._condition()
            self._tell(task, "looking for nodes that do not pay")
            for trial in self._promising():
                self._paying(trial)
            self._tell(task, "repairing accuracy")
            self.sure = True
            self._repairs()
            # The optimized float model may itself be faster than what integers give.
            self._float_kernels()
            self._tell(task, "trying what is next to the best")
            self._neighbours()
            self._tell(task, "choosing")
            return self._choose()

    def _tell(self, task: progress.Task, stage: str = "") -> None:
        """Say what is being done, how much was tried, the best so far, and what is left of the time."""
        self.stage = stage or self.stage
        within = [
            t.latency.value for t in self.evaluator.trials if t.latency is not None and self.evaluator.is_within(t)
        ]
        best = f", best {min(within):.3g} of float's latency" if within else ""
        left = f", {self.evaluator.clock.left:.0f} s left" if self.evaluator.clock.left < float("inf") else ""
        task.describe(f"{self.stage}: {len(self.evaluator.trials)} tried{best}{left}")

    def _timely(self, stage: str, doing: str, tries: int = 1) -> Callable[[], bool]:
        return lambda: self.evaluator.clock.allows(stage, doing, tries)

    def _method(self) -> None:
        """The range method that loses least with everything static."""
        if not self.static_possible or "static" not in natural_plan(self.nodes).values():
            return
        base, best = replace(self.base, plan=natural_plan(self.nodes)), -float("inf")
        heavy = sum(map(weight_count, self.nodes)) > _HEAVY
        for method, coverage in _METHODS:
            if best > -float("inf") and not self.evaluator.clock.allows(
                "families", "the choice of the range method", 2
            ):
                return
            recipe = replace(base, method=method, coverage=coverage)
            label = f"{method} {coverage:g}" if method == "percentile" else method
            # Where building takes long, the first one is one of the families at the same time.
            timed = heavy and best == -float("inf")
            trial = self.evaluator.try_out(f"static, per-channel, {label}", recipe, timed=timed)
            self.evaluator.look(trial)
            if trial.fidelity is not None and trial.fidelity.channel_db > best:
                best = trial.fidelity.channel_db
                self.base = replace(self.base, method=method, coverage=coverage)
            if best >= _ANY_METHOD_DB:
                return

    def _families(self) -> None:
        """Whole-model plans, with a scale for each channel; the fastest of them with one for all as well."""
        for name, plan in whole_model_plans(self.nodes, self.cost, self.static_possible, self.inner):
            for per_channel in (True,) if self.evaluator.times or self.base.form else (True, False):
                timed = any(t.speed < float("inf") for t in self.evaluator.trials)
                if timed and not self.evaluator.clock.allows("families", "families of recipes"):
                    return
                recipe = replace(self.base, plan=plan, per_channel=per_channel)
                self.evaluator.try_out(f"{name}, {'per-channel' if per_channel else 'per-tensor'}", recipe)
        fastest = next(self._hopeful(), None)
        if (
            fastest is not None
            and self.evaluator.times
            and self.evaluator.clock.allows("families", "families of recipes")
        ):
            name = fastest.name.replace("per-channel", "per-tensor")
            self.evaluator.try_out(name, replace(fastest.recipe, per_channel=False))

    def _hopeful(self) -> Iterator[RecipeTrial]:
        """What is not so noisy that it could not be repaired, the fastest first."""
        return (t for t in self._fastest(len(self.evaluator.trials)) if self._repairable(t))

    def _repairable(self, trial: RecipeTrial) -> bool:
        self.evaluator.look(trial)
        return trial.fidelity is not None and trial.fidelity.channel_db > _LOST_DB

    def _fusions(self) -> None:
        """What the fastest leave in float, fused; the second is only tried with what has helped the first."""
        in_time = self._timely("condition", "fused float operators", 2)
        fastest = next(self._hopeful(), None)
        if fastest is None:
            return
        fused = with_fusions(self.evaluator, fastest, in_time).recipe.fuse
        plan = fastest.recipe.plan
        other = next(
            (t for t in self._hopeful() if t.recipe.plan != plan and t.speed < _WORTH_FUSING * fastest.speed), None
        )
        if other is not None and fused:
            with_fusions(self.evaluator, other, in_time, (fused,))

    def _promising(self) -> list[RecipeTrial]:
        """What may become the fastest: the fastest beyond the budget that could be brought back, the fastest within it,
        and the fastest with most nodes on integers, which a few changes can make faster still.
        """
        winner = self._winner()
        widest = max((len(t.recipe.plan or {}) for t in self.evaluator.trials), default=0)
        wide = (t for t in self._hopeful() if 2 * len(t.recipe.plan or {}) > widest)
        broken = next(self._broken(winner), None)
        return list({id(t): t for t in (broken, next(wide, None), winner) if t is not None}.values())

    def _condition(self) -> None:
        """Lessen the error of what may win, where it costs no time; what that replaces is out of the race."""
        conditioned: list[QuantRecipe] = []
        for trial in self._promising() if self.static_possible else []:
            # Fused operators do not change what rounding costs.
            if trial.integers in conditioned:
                continue
            conditioned.append(trial.integers)
            accurate = trial.fidelity is not None and trial.fidelity.channel_db >= _ACCURATE_DB
            if not (accurate and self._is_within(trial)):
                linear = share_of_linear(self.nodes, self.cost) > MINOR
                in_time = self._timely("condition", "smoothing, equalization and bias correction")
                best = condition(self.evaluator, trial, self._is_within, in_time, linear=linear)
                self.replaced += [] if best is trial else [trial]

    def _broken(self, winner: RecipeTrial | None) -> Iterator[RecipeTrial]:
        """Clearly faster than the winner but beyond the budget, not hopelessly; the fastest first."""
        limit = winner.speed * CLEARLY_FASTER if winner is not None else float("inf")
        return (t for t in self._hopeful() if t.speed < limit and not self._is_within(t))

    def _paying(self, trial: RecipeTrial) -> None:
        """Put groups of nodes back to float, and keep what is clearly faster."""
        in_time = self._timely("paying", "the search for nodes that do not pay")
        best = without_gates(self.evaluator, trial, in_time)
        if self.static_possible:
            products = [n for n in self.evaluator.job.prepared.graph if is_product(n) and chosen_by(self.base, n)]
            best = with_attention(self.evaluator, best, products, in_time, self.costly)
        # What breaks the budget is to be repaired, and stretches would take the time for that.
        groups = group_nodes(self.nodes, self.cost, stretches=self._is_within(trial))
        without_groups(self.evaluator, best, groups, in_time, self.costly, self.cost)

    def _repairs(self) -> None:
        """Bring the fastest that break the budget back within it, as long as they could still win."""
        repairs = AccuracyRepairs(self.evaluator, self.nodes, self._is_within)
        in_time = self._timely("repair", "the repair of accuracy")
        repairs.of_the_fastest(self._hopeful, in_time)
        # Where nothing within the budget is faster than float, even very noisy ones.
        winner = self._winner()
        if winner is None or winner.speed >= 1.0:
            repairs.of_noisy(self._fastest(len(self.evaluator.trials)), in_time)

    def _float_kernels(self) -> None:
        """The float model itself; the last resort where nothing else keeps the budget, so that it may come late."""
        in_time = self._timely("floats", "float kernels")
        if in_time() or (
            self._winner() is None and self.evaluator.clock.spent < _LAST_RESORT * self.evaluator.clock.seconds
        ):
            winner = self._winner()
            fastest = winner.speed if winner is not None else float("inf")
            with_float_kernels(self.evaluator, self.base, self._is_within, in_time, fastest)

    def _neighbours(self) -> None:
        """What differs from the best in one choice, until none of these steps is clearly faster."""
        in_time = self._timely("neighbours", "what is next to the best")
        for _ in range(_STEPS):
            winner = self._winner()
            if winner is None or not self.evaluator.times:
                return
            for name, recipe in neighbours(winner, self.evaluator.trials):
                if not in_time():
                    return
                if not self.evaluator.breaks(self.evaluator.calibrated(recipe)):
                    self.evaluator.try_out(name, recipe)
            found = self._winner()
            if found is None or found.speed > CLEARLY_FASTER * winner.speed:
                return

    def _fastest(self, count: int, among: list[RecipeTrial] | None = None) -> list[RecipeTrial]:
        timed = [
            t
            for t in (self.evaluator.trials if among is None else among)
            if t.speed < float("inf") and not t.note and not any(t is r for r in self.replaced)
        ]
        # Of those that are as fast, the most accurate one that is known.
        return sorted(timed, key=lambda t: (t.speed, noise_share(t.fidelity) if t.fidelity else 1.0))[:count]

    def _is_clearly_outside(self, trial: RecipeTrial) -> bool:
        """Whether a first look, or another candidate with the same integers, shows that the budget is not kept."""
        self.evaluator.look(trial)
        return (
            trial.fidelity is None
            or self.budget.is_clearly_outside(trial.fidelity)
            or self.evaluator.breaks(trial.recipe)
        )

    def _is_within(self, trial: RecipeTrial, samples: Samples = Samples.FEW_WITH_ROOM) -> bool:
        """Whether a candidate is within the budget.

        Args:
            trial: any candidate.
            samples: how many of them have to say so.
        """
        if self._is_clearly_outside(trial) or trial.fidelity is None:
            return False
        if trial.judged_on_few and samples is not Samples.ALL:
            if self.budget.allows_with_room(trial.fidelity):
                return True
            if samples is Samples.FEW and not self.budget.labelled:
                return self.budget.allows(trial.fidelity) or (self.sure and self._is_within(trial, Samples.ALL))
        self.evaluator.judge_fully(trial)
        return trial.fidelity is not None and self.budget.allows(trial.fidelity, self.evaluator.score(trial))

    def _is_within_in_all(self, trial: RecipeTrial) -> bool:
        return self._is_within(trial, Samples.ALL)

    def _winner(self, among: list[RecipeTrial] | None = None) -> RecipeTrial | None:
        """The fastest within the budget; of those about as fast the most accurate, or of accurate ones the smallest."""
        while True:
            found = self._likely_winner(among)
            if found is None or not self.sure or self._is_within(found, Samples.ALL):
                return found

    def _likely_winner(self, among: list[RecipeTrial] | None) -> RecipeTrial | None:
        timed = self._fastest(len(self.evaluator.trials), among)
        first = next((t for t in timed if self._is_within(t, Samples.FEW)), None)
        if first is None or first.fidelity is None:
            return None
        accurate = first.fidelity.channel_db >= _ACCURATE_DB
        limit = first.speed * ABOUT_AS_FAST
        near = [(t, t.fidelity) for t in timed if t.speed <= limit and self._is_within(t, Samples.FEW) and t.fidelity]
        if accurate:  # so that chance does not decide between them
            near = [(t, f) for t, f in near if f.channel_db >= _ACCURATE_DB and not surely_slower(t, first)]
        return min(near, key=lambda pair: (pair[0].bytes - pair[0].spare if accurate else 0, noise_share(pair[1])))[0]

    def _choose(self) -> SearchOutcome:
        winner = self._winner()
        clock = self.evaluator.clock
        fastest = winner.latency.value if winner is not None and winner.latency is not None else None
        timed_again = fastest is not None and clock.allows("choice", "the last timing", TIMING_AGAIN + COMPACTING)
        if fastest is not None and timed_again:
            # Quick timings have misled: the leaders once more, all in one alternation.
            near = [t for t in self._fastest(len(self.evaluator.trials)) if t.speed <= fastest * TOO_CLOSE]
            close = finalists([t for t in near if self._is_within(t, Samples.FEW)])
            self.evaluator.time_again(close)
            winner = surely_faster(self.evaluator, close, self._winner) or self._winner()
        if winner is not None and clock.allows("choice", "judging smaller float weights", COMPACTING):
            winner = compacted(self.evaluator, winner, self._is_within_in_all)
        elif winner is not None:
            winner = compacted_unjudged(self.evaluator, winner)
        if winner is not None:
            winner = undominated(
                self.evaluator,
                winner,
                self._fastest(len(self.evaluator.trials)),
                self._is_within_in_all,
            )
        best, verdict = winner, ""
        if winner is None:
            verdict = "no recipe keeps the accuracy budget"
            if clock.cuts:
                verdict += f", of the {len(self.evaluator.trials)} tried within the time limit"
            verdict += nearest_miss(self.budget, self.evaluator.trials)
        elif winner.latency is not None and not is_faster(winner.latency, timed_again):
            best = None
            verdict = not_faster(winner.name, winner.latency)
        outcome = SearchOutcome(
            best,
            None,
            tuple(self.evaluator.trials),
            self.budget,
            verdict,
            self.evaluator.reference,
            clock,
            self._is_within_in_all,
        )
        return outcome if best is not None else replace(outcome, smallest=self._smallest(winner))

    def _smallest(self, winner: RecipeTrial | None) -> RecipeTrial | None:
        """Of the smallest within the budget the fastest; the winner has been judged, whatever else is known of it."""
        least, found = 0, []
        for trial in sorted((t for t in self.evaluator.trials if t.bytes), key=lambda t: t.bytes):
            if least and trial.bytes > _AS_SMALL * least:
                break
            in_time = self.evaluator.clock.left > 0
            if trial is winner or (self._is_within(trial, Samples.ALL) if in_time else self.evaluator.is_within(trial)):
                least = least or trial.bytes
                found.append(trial)
        return min(found, key=lambda t: t.speed, default=None)

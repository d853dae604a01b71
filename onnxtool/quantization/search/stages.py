"""The search of `auto`: the fastest recipe on this machine that keeps the accuracy budget, found by measuring.

A recipe is a point: in which way each node runs, one weight scale or one for each channel, what is fused, which weights
are stored in fewer bits, what is done against the error of rounding.

1. Starting points: a handful of whole-model recipes and the float model, each judged and timed beside the float model.
2. Moves: from the leaders (the fastest within the budget, the fastest that could be brought back within it, and the
   fastest of each way to run nodes) all that differs in one choice is tried, until nothing is left that may help or the
   time is over. What surely gained nothing from one candidate is not tried from another.
3. Repair: the fastest that break the budget get the nodes that cost most accuracy back in float, the fewest that do;
   moves go on from there.
4. The winner is the fastest within the budget; among equally fast ones the most accurate, or the smallest of those that
   are accurate enough. It is timed once more, and nothing is written unless it beats float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import onnx_ir as ir

from onnxtool import progress
from onnxtool.quantization.algorithms.weight_storage import compactable
from onnxtool.quantization.calibration.range_estimators import ObservedRange
from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator, noise_share
from onnxtool.quantization.inputs import FIDELITY_SAMPLES
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.accuracy_repair import LESS_NOISE, AccuracyRepairs
from onnxtool.quantization.search.candidates import natural_plan, whole_model_plans
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
from onnxtool.quantization.search.moves import CLEARLY_FASTER, RecipeMove, RecipeMoves, renamed, scheme_of
from onnxtool.quantization.search.node_cost import macs, weight_count
from onnxtool.quantization.search.side_by_side import ABOUT_AS_FAST, TOO_CLOSE
from onnxtool.quantization.search.smaller_weights import compacted, compacted_unjudged
from onnxtool.quantization.search.time_budget import TimeBudget
from onnxtool.runtime.data.source import DataSource
from onnxtool.runtime.runner import OnnxRunner

_AS_SMALL = 1.05  # of files about as small, the fastest
_ACCURATE_DB = 35.0  # beyond this more accuracy is worth no time at all
_WORTH_MOVING = 1.25  # times the fastest's latency: what moves may gain more where nodes run in another way
_LOST_DB = 4.0  # so noisy that leaving nodes in float is not a repair
_METHODS: tuple[tuple[str, float], ...] = (
    ("minmax", 1.0),
    ("mse", 1.0),
    ("percentile", 0.9999),
    ("percentile", 0.99999),
)
_ANY_METHOD_DB = 40.0  # from here on it is no matter how ranges are chosen
_LAST_RESORT = 1.1  # of the time limit
_MOST_TOGETHER = 180_000_000  # bytes of the leaders' models: each session takes two to three times as much
_HEAVY = 20_000_000  # weights, beyond which a candidate takes seconds to build


class Samples(Enum):
    """How many samples have to show that a candidate keeps the budget."""

    ALL = "all of them"
    FEW_WITH_ROOM = "a first few, where that leaves room to spare"
    FEW = "a first few, where there are no labels"


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
        judge: what it gives on the samples that candidates are judged on.
        clock: the time limit.
        is_within: whether a candidate keeps the budget; judges it where it was not judged yet.
        notes: what else to know about the choice.
    """

    best: RecipeTrial | None
    smallest: RecipeTrial | None
    trials: tuple[RecipeTrial, ...]
    budget: Criterion
    verdict: str
    reference: OnnxRunner
    judge: FidelityEvaluator
    clock: TimeBudget
    is_within: Callable[[RecipeTrial], bool]
    notes: tuple[str, ...] = ()

    def settled(self) -> SearchOutcome:
        """Without the candidates' models and sessions, and most samples: none is judged any more."""
        return replace(self, is_within=_judges_nothing, judge=self.judge.limited(FIDELITY_SAMPLES))


class RecipeSearch:
    """One search: every stage starts from what the stages before found in the laboratory."""

    def __init__(
        self,
        evaluator: CandidateEvaluator,
        budget: Criterion,
        nodes: list[ir.Node],
        base: QuantRecipe,
        measured: DataSource | None,
        inner: list[ir.Node],
        observe: Callable[[], Mapping[str, ObservedRange]] | None = None,
    ) -> None:
        """Take what is measured; `observe` sees all calibration samples, where the evaluator knows a few of them."""
        self.observe = observe
        self.evaluator, self.budget, self.nodes, self.base = evaluator, budget, nodes, base
        self.static_possible, self.inner = measured is not None, inner
        self.moves = RecipeMoves(evaluator, base, nodes, macs(nodes, evaluator.seen), calibrated=self.static_possible)
        self._left: dict[int, list[RecipeMove]] = {}  # moves that were not made, by candidate
        self.sure = False  # the winner has been judged on all samples, not on a first few
        self.stage = "searching recipes"
        self.keep: Callable[[RecipeTrial], None] | None = None  # takes the first that is kept, once

    def run(self) -> SearchOutcome:
        """Starting points, moves, repairs and moves from these, as far as there is time."""
        with progress.task("searching recipes") as task:
            self.evaluator.after_trial = partial(self._after_trial, task)
            self._tell(task, "trying families of recipes")
            self._families(static=False)  # which hang on no ranges, so that there is a first file soon
            self._tell(task, "measuring ranges")
            if self.observe is not None:
                self.evaluator.take_observed(self.observe())
            self._tell(task, "choosing how ranges are measured")
            self._method()
            self._tell(task, "trying families of recipes")
            self._families(static=True)
            if not self._heavy:  # else only where nothing on integers is within the budget: loading takes much
                self._float_kernels("families")
            self._tell(task, "trying what differs in one choice")
            self._move("moves")
            self._tell(task, "repairing accuracy")
            self.sure = True
            self._repairs()
            self._tell(task, "trying what differs in one choice")
            self._move("late moves")
            if self._winner() is None:
                self._float_kernels("choice")
            self._tell(task, "choosing")
            return self._choose()

    def _after_trial(self, task: progress.Task) -> None:
        """Hand on the first candidate that keeps the budget and is surely faster than float; say what was tried."""
        if self.keep is not None:
            fast = (t for t in self._fastest() if t.latency and is_faster(t.latency, False))
            first = next((t for t in fast if self._looks_good(t) and self._is_within(t, Samples.ALL)), None)
            if first is not None:
                keep, self.keep = self.keep, None
                keep(first)
        self._tell(task)

    def _looks_good(self, trial: RecipeTrial) -> bool:
        """Whether what was measured so far is within the budget, however few samples show it."""
        return trial.fidelity is not None and all(
            loss.measured <= 1 for loss in self.budget.judge(trial.fidelity, trial.metric).losses
        )

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

    @property
    def _heavy(self) -> bool:
        return sum(map(weight_count, self.nodes)) > _HEAVY

    def _method(self) -> None:
        """The range method that loses least with everything static."""
        if not self.static_possible or "static" not in natural_plan(self.nodes).values():
            return
        base, best = replace(self.base, plan=natural_plan(self.nodes)), -float("inf")
        for method, coverage in _METHODS:
            tried = best > -float("inf") or any(t.speed < float("inf") for t in self.evaluator.trials)
            if tried and not self.evaluator.clock.allows("families", "the choice of the range method", 2):
                return
            recipe = replace(base, method=method, coverage=coverage)
            label = f"{method} {coverage:g}" if method == "percentile" else method
            # Where building takes long, the first one is one of the families at the same time.
            timed = self._heavy and best == -float("inf")
            trial = self.evaluator.try_out(f"static, per-channel, {label}", recipe, timed=timed)
            self.evaluator.look(trial)
            if trial.fidelity is not None and trial.fidelity.channel_db > best:
                best = trial.fidelity.channel_db
                self.base = replace(self.base, method=method, coverage=coverage)
            if best >= _ANY_METHOD_DB:
                return

    def _families(self, *, static: bool) -> None:
        """Whole-model plans with static nodes or without, with a scale for each channel; where nothing is timed, with
        one for all as well.
        """
        plans = whole_model_plans(self.nodes, self.moves.cost, self.static_possible, self.inner)
        for name, plan in [one for one in plans if ("static" in one[1].values()) is static]:
            for per_channel in (True,) if self.evaluator.times or self.base.form else (True, False):
                timed = any(t.speed < float("inf") for t in self.evaluator.trials)
                if timed and not self.evaluator.clock.allows("families", "families of recipes"):
                    return
                recipe = replace(self.base, plan=plan, per_channel=per_channel)
                self.evaluator.try_out(f"{name}, {'per-channel' if per_channel else 'per-tensor'}", recipe)

    def _repairable(self, trial: RecipeTrial) -> bool:
        """Whether a candidate is not so noisy that it could not be repaired."""
        self.evaluator.look(trial)
        return trial.fidelity is not None and trial.fidelity.channel_db > _LOST_DB

    def _leaders(self) -> list[RecipeTrial]:
        """From where to move on: the winner, the fastest that may be brought back within the budget, and the fastest of
        each way to run nodes that is not far behind.
        """
        winner = self._winner()
        found = [winner, next(self._broken(winner), None)]
        fastest = min((t.speed for t in found if t is not None), default=float("inf"))
        schemes = {scheme_of(t.recipe) for t in found if t is not None}
        for trial in self._fastest():
            if scheme_of(trial.recipe) not in schemes and trial.speed < _WORTH_MOVING * fastest:
                schemes.add(scheme_of(trial.recipe))
                found.append(trial if self._repairable(trial) else None)
        return list({id(t): t for t in found if t is not None}.values())

    def _broken(self, winner: RecipeTrial | None) -> Iterator[RecipeTrial]:
        """Clearly faster than the winner but beyond the budget, not hopelessly; the fastest first, and none that is
        clearly noisier than another one about as fast.
        """
        limit = winner.speed * CLEARLY_FASTER if winner is not None else float("inf")
        broken = [t for t in self._fastest() if t.speed < limit and self._repairable(t)]
        for trial in broken:
            quieter = (t for t in broken if t.noise < LESS_NOISE * trial.noise)
            if not any(t.speed <= ABOUT_AS_FAST * trial.speed for t in quieter) and not self._is_within(trial):
                yield trial

    def _move(self, stage: str) -> None:
        """Make moves from the leaders, one from each in turn, until none is left or the stage is over."""
        in_time = self._timely(stage, "what differs in one choice")
        made: dict[int, int] = {}
        while True:
            leaders = [t for t in self._leaders() if self._moves_of(t)]
            if not leaders or not in_time():
                return
            trial = min(leaders, key=lambda t: made.get(id(t), 0))
            made[id(trial)] = made.get(id(trial), 0) + 1
            move = self._moves_of(trial).pop(0)
            self.moves.learn(move, trial, self.evaluator.try_out(renamed(trial.name, move.label), move.recipe))

    def _moves_of(self, trial: RecipeTrial) -> list[RecipeMove]:
        """Moves that were not made from a candidate and may help; what keeps the budget is not moved beyond it."""
        within = self._is_within(trial)
        if id(trial) not in self._left:
            accurate = within and trial.fidelity is not None and trial.fidelity.channel_db >= _ACCURATE_DB
            self._left[id(trial)] = list(self.moves.of(trial, accurate=accurate, within=within))
        left = self._left[id(trial)]
        while left and (self.moves.is_useless(left[0], trial) or (within and self._breaks(left[0].recipe))):
            left.pop(0)
        return left

    def _breaks(self, recipe: QuantRecipe) -> bool:
        return self.evaluator.breaks(self.evaluator.calibrated(recipe))

    def _repairs(self) -> None:
        """Bring the fastest that break the budget back within it, as long as they could still win."""
        repairs = AccuracyRepairs(self.evaluator, self.nodes, self._is_within)
        in_time = self._timely("repair", "the repair of accuracy")
        repairs.of_the_fastest(self._repair_order, in_time)
        # Where nothing within the budget is faster than float, even very noisy ones.
        winner = self._winner()
        if winner is None or winner.speed >= 1.0:
            repairs.of_noisy(self._fastest(), in_time)

    def _repair_order(self) -> Iterator[RecipeTrial]:
        """What could be repaired and what is within the budget, the fastest first."""
        broken = [id(t) for t in self._broken(None)]
        hopeful = (t for t in self._fastest() if self._repairable(t))
        return (t for t in hopeful if id(t) in broken or self._is_within(t))

    def _float_kernels(self, stage: str) -> None:
        """The float model with its weights stored in 8 bits, or 16: it may be faster than what integers give."""
        if not compactable(self.evaluator.job.prepared.graph):
            return
        in_time = self._timely(stage, "float kernels")
        for bits in (8, 16):
            late = stage == "choice" and self.evaluator.clock.spent < _LAST_RESORT * self.evaluator.clock.seconds
            if not late and not in_time():
                return
            recipe = replace(self.base, plan={}, compact=bits)
            if self._is_within(self.evaluator.try_out(f"float, weights in {bits} bits", recipe)):
                return

    def _fastest(self, among: list[RecipeTrial] | None = None) -> list[RecipeTrial]:
        known = self.evaluator.trials if among is None else among
        timed = [t for t in known if t.speed < float("inf") and not t.note]
        # Of those that are as fast, the most accurate one that is known.
        return sorted(timed, key=lambda t: (t.speed, t.noise))

    def _is_clearly_outside(self, trial: RecipeTrial) -> bool:
        """Whether a first look, or another candidate with the same integers, shows that the budget is not kept."""
        self.evaluator.look(trial)
        return (
            trial.fidelity is None or self.budget.judge(trial.fidelity).hopeless or self.evaluator.breaks(trial.recipe)
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
            if self.budget.judge(trial.fidelity).has_room:
                return True
            if samples is Samples.FEW and not self.budget.labelled:
                return self.budget.judge(trial.fidelity).kept or (self.sure and self._is_within(trial, Samples.ALL))
        self.evaluator.judge_fully(trial)
        return trial.fidelity is not None and self.budget.judge(trial.fidelity, self.evaluator.score(trial)).kept

    def _is_within_in_all(self, trial: RecipeTrial) -> bool:
        return self._is_within(trial, Samples.ALL)

    def _is_within_in_time(self, trial: RecipeTrial) -> bool:
        """The same as far as there is time to judge a candidate."""
        in_time = self.evaluator.clock.allows("choice", "judging what may be smaller or more accurate")
        return self._is_within_in_all(trial) if in_time else self.evaluator.is_within(trial)

    def _winner(self, among: list[RecipeTrial] | None = None) -> RecipeTrial | None:
        """The fastest within the budget; of those about as fast the most accurate, or of accurate ones the smallest."""
        while True:
            found = self._likely_winner(among)
            if found is None or not self.sure or self._is_within(found, Samples.ALL):
                return found

    def _likely_winner(self, among: list[RecipeTrial] | None) -> RecipeTrial | None:
        timed = self._fastest(among)
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
            near = [t for t in self._fastest() if t.speed <= fastest * TOO_CLOSE]
            close = finalists([t for t in near if self._is_within(t, Samples.FEW)])
            # Those that are not loaded any more have to be built again, and all are loaded together.
            while len(close) > 1 and (
                clock.next_build * len(close) + clock.writing > clock.left
                or sum(t.bytes for t in close) > _MOST_TOGETHER
            ):
                close.pop()
            self.evaluator.time_again(close)
            winner = surely_faster(self.evaluator, close, self._winner) or self._winner()
        if winner is not None and clock.allows("choice", "judging smaller float weights", COMPACTING):
            winner = compacted(self.evaluator, winner, self._is_within_in_time)
        elif winner is not None:
            winner = compacted_unjudged(self.evaluator, winner)
        if winner is not None:
            winner = undominated(self.evaluator, winner, self._fastest(), self._is_within_in_time)
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
            self.evaluator.judge,
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


def _judges_nothing(_trial: RecipeTrial) -> bool:
    raise AssertionError("the search is over")

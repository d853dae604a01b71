"""One candidate tried: built, loaded, judged against the float model, timed beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.quantization.apply_recipe import apply_conditioned
from onnxtool.quantization.calibration.cache import CalibrationCache
from onnxtool.quantization.calibration.range_estimators import Observed
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator, Judgement, noise_share
from onnxtool.quantization.inputs import QuantizationInputs
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.accuracy_budget import Budget
from onnxtool.quantization.search.time_budget import TimeBudget
from onnxtool.report.latency import LatencyRatio
from onnxtool.report.quantize import Candidate, Fidelity, TaskMetric
from onnxtool.runtime.latency import compare_latency
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.timing import Ratio, Timing, block_ratio

FIRST_LOOK = 2  # batches of held-out samples
_QUICK_SECONDS = 0.5
_SETTLED = 0.02  # width of an interval, relative to the ratio, from which on more rounds tell nothing that matters
_QUICK_ROUNDS = 7
_FINAL_SECONDS = 3.0
_BLOCKS = 4  # with fresh sessions, for models that take less than _SHORT seconds
_SHORT = 0.003
_MOST_ROUNDS = 250
TOO_CLOSE = 1.12  # quick timings this near each other do not rank


@dataclass
class Trial:
    """A candidate and what was measured of it.

    Attributes:
        name: what sets it apart.
        recipe: calibrated.
        bytes: serialized size.
        fidelity: against the float model; None when it failed to build or run.
        latency: against the float model; None when it was not timed.
        estimate: latency ratio by rule of thumb, where nothing is timed.
        metric: on labelled data; None when it was not measured.
        note: why it was dropped.
        judged_on_few: `fidelity` is of the first few samples alone.
        judgement: what it was read off, to go on from there.
    """

    name: str
    recipe: QuantRecipe
    bytes: int = 0
    fidelity: Fidelity | None = None
    latency: LatencyRatio | None = None
    estimate: float | None = None
    metric: TaskMetric | None = None
    note: str = ""
    judged_on_few: bool = False
    judgement: Judgement = field(default_factory=Judgement, repr=False)

    @property
    def speed(self) -> float:
        """Latency ratio, measured or else estimated; infinite when it is neither."""
        if self.latency is not None:
            return self.latency.value
        return float("inf") if self.estimate is None else self.estimate

    def candidate(self, budget: Budget, chosen: bool) -> Candidate:
        """What the report keeps of it."""
        within = self.fidelity is not None and not self.judged_on_few and budget.allows(self.fidelity, self.metric)
        if budget.labelled and self.metric is None:
            within = False
        fidelity = None if self.fidelity is None else replace(self.fidelity, outputs=())
        note = self.note or ("slower, so judged on few samples" if self.judged_on_few else "")
        return Candidate(
            self.name, self.recipe.summary, self.bytes, self.latency, fidelity, self.metric, within, chosen, note
        )


class CandidateEvaluator:
    """Tries candidates against one float model, with everything that they share measured once."""

    def __init__(
        self,
        job: QuantizationInputs,
        budget: Budget,
        judge: FidelityEvaluator,
        reference: OnnxRunner,
        seen: Mapping[str, Observed],
        estimate: Callable[[QuantRecipe], float] | None = None,
        conditions: CalibrationCache | None = None,
        clock: TimeBudget | None = None,
    ) -> None:
        """Take what all candidates share; with `estimate`, nothing is timed; `conditions` where there is data."""
        self.job = job
        self.budget = budget
        self.estimate = estimate
        self.judge = judge
        self.reference = reference
        self.seen = seen
        self.trials: list[Trial] = []
        self.after_trial: Callable[[], None] = lambda: None
        self.clock = clock or TimeBudget(float("inf"))
        self._float_metric: float | None = None
        self._sample = job.probes().first()
        self.conditions = conditions or CalibrationCache(job.prepared, seen, None)

    @property
    def times(self) -> bool:
        """True where candidates are timed, not estimated."""
        return self.estimate is None

    def calibrated(self, recipe: QuantRecipe) -> QuantRecipe:
        """The recipe with what it needs to know of activations, from what was observed."""
        return self.conditions.calibrated(recipe)

    def build(self, recipe: QuantRecipe) -> ir.Model:
        """The quantized model."""
        return apply_conditioned(self.conditions.model(recipe), recipe)

    def try_out(self, name: str, recipe: QuantRecipe, *, timed: bool = True) -> Trial:
        """Build, judge and time one candidate; one that fails is kept with the reason.

        One that a first look shows to be far from the budget is not judged on all samples; neither is one that is
        clearly slower than another within the budget, or that is not timed, until `judge_fully`.
        """
        recipe = self.calibrated(recipe)
        known = next((t for t in self.trials if t.recipe == recipe and (t.speed < float("inf") or not timed)), None)
        if known is not None:
            return known
        trial = Trial(name, recipe)
        looked_at = next((t for t in self.trials if t.recipe == recipe and t.fidelity is not None), None)
        if looked_at is not None:
            trial.judgement = looked_at.judgement
        self.trials.append(trial)
        began = time.perf_counter()
        try:
            payload = io.to_proto(self.build(recipe)).SerializeToString()
            trial.bytes = len(payload)
            runner = self.job.runner(payload)
            trial.fidelity = self.judge.judge(runner, FIRST_LOOK, begun=trial.judgement)
            if timed and self.estimate is not None:
                trial.estimate = self.estimate(recipe)
            elif timed:
                trial.latency = self.time(runner)
            if not self.budget.hopeless(trial.fidelity):
                trial.judged_on_few = not timed or self._beaten(trial)
                if not trial.judged_on_few:
                    trial.fidelity = self.judge.judge(runner, begun=trial.judgement)
        except OnnxToolError as error:
            trial.note = str(error)
        self.clock.took(time.perf_counter() - began)
        self.after_trial()
        return trial

    def _beaten(self, trial: Trial) -> bool:
        """True when another one within the budget is faster beyond doubt."""
        return any(
            t.latency is not None and trial.latency is not None and t.latency.high < trial.latency.low
            for t in self.trials
            if t.fidelity is not None and not t.judged_on_few and self.within(t)
        )

    def within(self, trial: Trial) -> bool:
        """True when what is known of a candidate keeps the budget; nothing is measured for it."""
        if trial.fidelity is None or (self.budget.labelled and trial.metric is None):
            return False
        return self.budget.allows(trial.fidelity, trial.metric)

    def judge_fully(self, trial: Trial) -> None:
        """Judge a candidate on all samples that was only judged_on_few at."""
        if trial.judged_on_few:
            trial.judged_on_few = False
            runner = self.job.runner(self.build(trial.recipe))
            trial.fidelity = self.judge.judge(runner, begun=trial.judgement)

    def time(self, runner: OnnxRunner) -> LatencyRatio:
        """Latency beside the float model's, quickly, or only until it is clear that it cannot win."""
        kept = [t.latency.high for t in self.trials if t.latency is not None and self.within(t)]
        lost = TOO_CLOSE * min(kept, default=float("inf"))
        (found,) = compare_latency(
            self.reference,
            [runner],
            self._sample,
            threads=self.job.threads,
            budget=_QUICK_SECONDS,
            minimum=_QUICK_ROUNDS,
            maximum=_MOST_ROUNDS,
            enough=lambda ratio: ratio.low > lost or _settled(ratio),
        )
        return found

    def time_again(self, trials: list[Trial], patience: float = 1.0) -> None:
        """Latency of several candidates and the float model in one alternation, so that they can be ranked.

        Args:
            trials: candidates; each one's latency is replaced.
            patience: so many times the usual seconds, as far as there is time.
        """
        models = [io.to_proto(self.build(t.recipe)).SerializeToString() for t in trials]
        seconds = min(patience * _FINAL_SECONDS, max(self.clock.left / 2, _QUICK_SECONDS))
        before = min((t.latency.before for t in trials if t.latency is not None), default=0.0)
        blocks = _BLOCKS if before < _SHORT else 1
        found = [self._side_by_side(models, seconds / blocks, block if blocks > 1 else None) for block in range(blocks)]
        for index, trial in enumerate(trials):
            trial.latency = over_blocks([block[index] for block in found])

    def _side_by_side(self, models: list[bytes], seconds: float, block: int | None) -> list[LatencyRatio]:
        """Several models and the float model in one alternation; in a `block`, the float model's session is fresh too.

        What is loaded first need not lie where it is as fast: in every other block that is the float model.
        """
        reference = self.reference if block is None else None
        if block is not None and block % 2:
            reference = self.job.runner(self.job.source)
        runners = [self.job.runner(model) for model in models]
        return compare_latency(
            reference or self.job.runner(self.job.source),
            runners,
            self._sample,
            threads=self.job.threads,
            budget=seconds,
            minimum=20 if block is None else 7,
            enough=lambda ratio: _settled(ratio, _SETTLED / 2),
        )

    def noise_of(self, recipe: QuantRecipe) -> float:
        """Noise share of a candidate that is only looked at, not kept."""
        try:
            runner = self.job.runner(io.to_proto(self.build(self.calibrated(recipe))).SerializeToString())
            return noise_share(self.judge.judge(runner, 1))
        except OnnxToolError:
            return float("inf")

    def score(self, trial: Trial) -> TaskMetric | None:
        """The task metric, measured once; None without labelled data."""
        task = self.job.task
        if task is None or trial.metric is not None:
            return trial.metric
        if self._float_metric is None:
            self._float_metric = task.score(self.reference)
        value = task.score(self.job.runner(self.build(trial.recipe)))
        trial.metric = TaskMetric(task.name, self._float_metric, value, len(task.labels))
        return trial.metric


def _settled(ratio: Ratio, width: float = _SETTLED) -> bool:
    return ratio.high - ratio.low < width * ratio.value


def over_blocks(found: Sequence[LatencyRatio]) -> LatencyRatio:
    """One ratio from several blocks, each with sessions of its own; of one block its own.

    Where memory happens to lie gives a session of a small model a latency of its own, some percent up or down: the
    fastest of many candidates is often just a lucky one, and more rounds of the same sessions do not tell.
    """
    if len(found) == 1:
        return found[0]
    before, after = ([Timing((getattr(one, side),)) for one in found] for side in ("before", "after"))
    whole = block_ratio(after, before)
    usual = [float(np.median([t.median for t in side])) for side in (before, after)]
    return LatencyRatio(whole.value, whole.low, whole.high, usual[0], usual[1], found[0].threads)

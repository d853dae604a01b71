"""One candidate tried: built, loaded, judged against the float model, timed beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.editing import release_mapped
from onnxtool.quantization.algorithms.float_fusions import FUSIONS, fuse_floats
from onnxtool.quantization.apply_recipe import apply_conditioned
from onnxtool.quantization.calibration.cache import CalibrationCache
from onnxtool.quantization.calibration.range_estimators import ObservedRange
from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator, Judgement, noise_share
from onnxtool.quantization.inputs import QuantizationInputs
from onnxtool.quantization.recipe import Fusions, QuantRecipe
from onnxtool.quantization.search.opened_candidates import Built, OpenedCandidates
from onnxtool.quantization.search.side_by_side import SHORT, TINY, TOO_CLOSE, beside_fastest, time_leaders
from onnxtool.quantization.search.time_budget import TimeBudget
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.quantize import Candidate, Fidelity, TaskMetric
from onnxtool.runtime.feeds import Outputs
from onnxtool.runtime.runner import OnnxRunner

_MORE = 2  # timings of tiny models with fresh sessions


@dataclass
class RecipeTrial:
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
        judged_on_few: `fidelity` is of the first few samples alone, or of a candidate with the same integers.
        judgement: what it was read off, to go on from there.
        first_look: `fidelity` as it was on the first few samples.
        spare: bytes of `bytes` that storing float weights in 8 bits would save.
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
    first_look: Fidelity | None = None
    spare: int = 0

    @property
    def integers(self) -> QuantRecipe:
        """What decides its accuracy: fused operators compute what their parts do."""
        return replace(self.recipe, fuse="")

    @property
    def speed(self) -> float:
        """Latency ratio, measured or else estimated; infinite when it is neither."""
        if self.latency is not None:
            return self.latency.value
        return float("inf") if self.estimate is None else self.estimate

    @property
    def noise(self) -> float:
        """Noise share; 1 where it is not known."""
        return 1.0 if self.fidelity is None else noise_share(self.fidelity)

    def candidate(self, budget: Criterion, chosen: bool) -> Candidate:
        """What the report keeps of it."""
        is_within = (
            self.fidelity is not None and not self.judged_on_few and budget.judge(self.fidelity, self.metric).kept
        )
        fidelity = None if self.fidelity is None else replace(self.fidelity, outputs=())
        note = self.note or _unjudged(self, budget)
        return Candidate(
            self.name, self.recipe.summary, self.bytes, self.latency, fidelity, self.metric, is_within, chosen, note
        )


class CandidateEvaluator:
    """Tries candidates against one float model, with everything that they share measured once."""

    def __init__(
        self,
        job: QuantizationInputs,
        budget: Criterion,
        judge: FidelityEvaluator,
        reference: OnnxRunner,
        seen: Mapping[str, ObservedRange],
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
        self.trials: list[RecipeTrial] = []
        self.after_trial: Callable[[], None] = lambda: None
        self.clock = clock or TimeBudget(float("inf"))
        self._building = 0.0  # seconds, the last time
        self._float_outputs: Outputs | None = None
        self._sample = job.probes().first()
        self.conditions = conditions or CalibrationCache(job.prepared, seen, None)
        self._opened = OpenedCandidates(
            self.build, self._load, lambda: release_mapped(job.prepared), on_disk=job.one_at_a_time
        )
        self._fastest: tuple[RecipeTrial, OnnxRunner] | None = None
        self._noise: dict[tuple[str, str, bool, float, bool], float] = {}

    def take_observed(self, seen: Mapping[str, ObservedRange]) -> None:
        """Take what all calibration samples show in place of what a few did."""
        self.seen = seen
        self.conditions = CalibrationCache(self.job.prepared, seen, self.conditions.data, self.conditions.stored)

    @property
    def times(self) -> bool:
        """True where candidates are timed, not estimated."""
        return self.estimate is None

    def calibrated(self, recipe: QuantRecipe) -> QuantRecipe:
        """The recipe with what it needs to know of activations, from what was observed."""
        self.job.turn.end()
        return self.conditions.calibrated(recipe)

    def build(self, recipe: QuantRecipe) -> ir.Model:
        """The quantized model."""
        self.job.turn.end()
        began = time.perf_counter()
        model = apply_conditioned(self.conditions.model(recipe), recipe)
        self._building = time.perf_counter() - began
        return model

    def _load(self, built: Built) -> OnnxRunner:
        began = time.perf_counter()
        runner = self.job.runner(built.model)
        self.clock.built(self._building + time.perf_counter() - began)
        return runner

    def try_out(self, name: str, recipe: QuantRecipe, *, timed: bool = True) -> RecipeTrial:
        """Build, time and judge one candidate; one that fails is kept with the reason.

        What is surely slower than another within the budget is not judged, and others on a first few samples alone,
        until `look` or `judge_fully` is called.

        Args:
            name: what sets it apart.
            recipe: without what calibration tells.
            timed: measure its latency.
        """
        if not recipe.fits_form:
            return RecipeTrial(name, recipe, note=f"not in the form that {recipe.form} takes")
        recipe = self.calibrated(recipe)
        known = next((t for t in self.trials if t.recipe == recipe and (t.speed < float("inf") or not timed)), None)
        if known is not None:
            return known
        trial = next((t for t in self.trials if t.recipe == recipe), None)  # judged, and not timed so far
        if trial is None:
            trial = RecipeTrial(name, recipe)
            self.trials.append(trial)
        trial.name = name
        began = time.perf_counter()
        try:
            runner, slower = self.session(trial), False
            if timed and self.estimate is not None:
                trial.estimate = self.estimate(recipe)
            elif timed:
                trial.latency, slower = self.time(trial)
            if not slower:
                self.look(trial)
                self._take_for_fastest(trial, runner)
        except OnnxToolError as error:
            trial.note = str(error)
        self.clock.took(time.perf_counter() - began)
        self.after_trial()
        return trial

    def session(self, trial: RecipeTrial) -> OnnxRunner:
        """A session of a candidate; its size is noted."""
        if not trial.bytes:
            built = self.built(trial)
            trial.bytes, trial.spare = built.size, built.spare
        return self._opened.session(trial.recipe, lambda: trial.speed)

    def built(self, trial: RecipeTrial) -> Built:
        """A candidate's model, serialized, and what is known of it."""
        return self._opened.built(trial.recipe, lambda: trial.speed)

    @cached_property
    def fusable(self) -> tuple[Fusions, ...]:
        """What the float model has something to fuse of: much quicker to see than in each candidate."""
        return tuple(fusions for fusions in FUSIONS if _fuses(self.job.prepared, fusions))

    def look(self, trial: RecipeTrial) -> None:
        """Judge a candidate on the first few samples, unless it was; what has the same integers is as accurate."""
        if trial.fidelity is not None or trial.note:
            return
        known = next((t for t in self.trials if t.fidelity is not None and t.integers == trial.integers), None)
        if known is None:
            trial.fidelity = self.judge.judge(self.session(trial), few=True, begun=trial.judgement)
            trial.first_look = trial.fidelity
        else:
            trial.fidelity, trial.first_look = known.fidelity, known.first_look
        trial.judged_on_few = not self.budget.judge(trial.fidelity).hopeless  # type: ignore[arg-type]

    def _take_for_fastest(self, trial: RecipeTrial, runner: OnnxRunner) -> None:
        if trial.latency is None or not self.likely(trial):
            return
        if self._fastest is None or trial.speed < self._fastest[0].speed:
            self._fastest = (trial, runner)

    def likely(self, trial: RecipeTrial) -> bool:
        """True when what is known of a candidate keeps the budget with room to spare; nothing is measured for it."""
        return trial.fidelity is not None and (self.budget.judge(trial.fidelity).has_room or self.is_within(trial))

    def is_within(self, trial: RecipeTrial) -> bool:
        """True when a candidate was judged and keeps the budget; nothing is measured for it."""
        return (
            trial.fidelity is not None
            and self._judged_fully(trial)
            and self.budget.judge(trial.fidelity, trial.metric).kept
        )

    def breaks(self, recipe: QuantRecipe) -> bool:
        """True when a candidate with the same integers was judged and does not keep the budget."""
        integers = replace(recipe, fuse="")
        judged = (t for t in self.trials if t.fidelity is not None and t.integers == integers)
        return any(not self.is_within(t) for t in judged if self._judged_fully(t))

    def _judged_fully(self, trial: RecipeTrial) -> bool:
        return not trial.judged_on_few and (not self.budget.labelled or trial.metric is not None)

    def judge_fully(self, trial: RecipeTrial) -> None:
        """Judge a candidate on all samples that was judged on few of them."""
        self.look(trial)
        if trial.judged_on_few:
            trial.judged_on_few = False
            trial.fidelity = self.judge.judge(self.session(trial), begun=trial.judgement)

    def time(self, trial: RecipeTrial) -> tuple[LatencyRatio, bool]:
        """Latency beside the fastest candidate that is likely to be within the budget; whether it surely is slower.

        Tiny models are timed with fresh sessions twice more, and the middle one counts, unless they lose at once.
        """
        best = None if self._fastest is None else self._fastest[0].latency
        fastest = self.reference if self._fastest is None else self._fastest[1]
        first = beside_fastest(self.session(trial), fastest, best, self._sample, self.job.threads)
        if first[0].before >= TINY or first[0].low > TOO_CLOSE * (1.0 if best is None else best.value):
            return first
        rival = self.job.source if self._fastest is None else self.built(self._fastest[0]).model
        found = [first]
        for _ in range(_MORE):
            pair = self.job.runner(self.built(trial).model), self.job.runner(rival)
            found.append(beside_fastest(*pair, best, self._sample, self.job.threads))
        return sorted(found, key=lambda one: one[0].value)[len(found) // 2]

    def time_again(self, trials: list[RecipeTrial], patience: float = 1.0) -> None:
        """Latency of several candidates and the float model in one alternation, so that they can be ranked.

        Args:
            trials: candidates; each one's latency is replaced.
            patience: so many times the usual seconds, as far as there is time.
        """
        before = min((t.latency.before for t in trials if t.latency is not None), default=0.0)
        short = before < SHORT
        models = [self.built(t).model for t in trials] if short else []

        def opened(block: int, wanted: Sequence[int]) -> list[OnnxRunner]:
            """What is loaded first need not lie where it is as fast: in every other block that is the float model."""
            if not short:
                return [self.reference, *(self.session(trials[i]) for i in wanted)]
            reference = self.job.runner(self.job.source) if block % 2 else None
            runners = [self.job.runner(models[i]) for i in wanted]
            return [reference or self.job.runner(self.job.source), *runners]

        shared = (self._sample, self.job.threads, self.clock)
        found = time_leaders(opened, len(trials), *shared, short=short, patience=patience)
        for trial, latency in zip(trials, found, strict=True):
            trial.latency = latency

    def noise_of(self, name: str, recipe: QuantRecipe) -> float:
        """Noise share when one node alone is quantized as in a recipe.

        It is measured once for all recipes that treat the node alike: what is fused costs no accuracy, and correcting
        biases matters little for which nodes are the worst. Four neighbours measured together are no measure of each:
        on a text recogniser they came to 0.019 where the four alone came to 0.004.
        """
        how = (recipe.plan or {})[name]
        alone = replace(recipe, plan={name: how}, fuse="", compact=0, bias_correction=False, shifts=None)
        key = (name, how, recipe.per_channel, recipe.smooth, recipe.equalize)
        if key not in self._noise:
            try:
                runner = self.job.runner(self.build(self.calibrated(alone)))
                self._noise[key] = noise_share(self.judge.glance(runner))
            except OnnxToolError:
                self._noise[key] = float("inf")
        return self._noise[key]

    def score(self, trial: RecipeTrial) -> TaskMetric | None:
        """The task metric, measured once; None without labelled data."""
        task = self.job.task
        if task is None or trial.metric is not None:
            return trial.metric
        if self._float_outputs is None:
            self._float_outputs = task.predict(self.reference)
        outputs = task.predict(self.session(trial))
        trial.metric = task.compared(self._float_outputs, outputs, self.budget.max_drop)
        return trial.metric


def _fuses(model: ir.Model, fusions: Fusions) -> bool:
    try:
        return fuse_floats(model.clone(), fusions) > 0
    except OnnxToolError:
        return False


def _unjudged(trial: RecipeTrial, budget: Criterion) -> str:
    slower = "" if trial.latency is None else "slower, so "
    if trial.fidelity is None:
        return slower and f"{slower}not judged"
    if trial.judged_on_few:
        return f"{slower}judged on few samples"
    return "not run on the labelled data" if budget.labelled and trial.metric is None else ""

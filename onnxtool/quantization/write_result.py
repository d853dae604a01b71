"""What `quantize` writes: a recipe applied, verified, measured and put into its file; or why nothing was written."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxtool.equality.provider_proof import prove_on_provider
from onnxtool.errors import UsageError, VerdictError
from onnxtool.lint.rules.quantized_forms import tensorrt_faults
from onnxtool.model import io
from onnxtool.model.file import ModelFile
from onnxtool.model.ir.editing import release_mapped
from onnxtool.model.provenance.metadata import add_history, versions
from onnxtool.quantization.algorithms.qdq_placement import counts
from onnxtool.quantization.apply_recipe import apply, select
from onnxtool.quantization.diagnostics import remarks, remarks_on_metric
from onnxtool.quantization.evaluation.criterion import DEFAULT_DROP, AccuracyVerdict, Criterion
from onnxtool.quantization.evaluation.fidelity import FidelityEvaluator, outputs_fit
from onnxtool.quantization.inputs import FIDELITY_SAMPLES, QuantizationInputs
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.evaluator import RecipeTrial
from onnxtool.quantization.search.stages import SearchOutcome
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.quantize import Fidelity, QuantizeReport, TaskMetric
from onnxtool.runtime.feeds import Outputs
from onnxtool.runtime.in_turn import RunnerInTurn
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.runner import CastingRunner, Runner
from onnxtool.runtime.session.memory import release_memory
from onnxtool.runtime.session.ort_kernels import opened_and_counted
from onnxtool.runtime.session.session import SessionOptions, requested_providers
from onnxtool.runtime.timing.timing import compare_session_latency, measure_in_turn

_PATIENCE = 0.03  # of the time limit: by then the winner has run on what it is judged on once more,
_FEW_PROBES = 4  # or on so many samples
_PROBES_OF_KNOWN = 8  # samples that a file is held to, whose recipe the search has judged on many more
_TIMED = 0.3  # seconds
_JUDGING = 20.0  # seconds for a verdict on a mode that is named


class FirstResult:
    """The first candidate that keeps the budget, in place while the search goes on: who stops it has a file."""

    def __init__(self, job: QuantizationInputs, target: Path) -> None:
        """Put it at `target`, unless there is something already: that is replaced once, by what the search chose."""
        self.job, self.target = job, target
        self._free, self._placed = not target.exists(), False

    def place(self, trial: RecipeTrial) -> None:
        """Write a candidate that was judged on all samples."""
        if self._free:
            model = apply(self.job.prepared, trial.recipe)
            stamp(model, self.job, trial.recipe)
            io.save(model, self.target)
            self._placed = True

    def withdraw(self) -> None:
        """Take it away again: the search came to another verdict."""
        if self._placed:
            for file in (*io.external_files(self.target), self.target):
                file.unlink(missing_ok=True)


def written_nothing(job: QuantizationInputs, outcome: SearchOutcome, began: float) -> QuantizeReport:
    """The report of a search that wrote nothing."""
    hint = " The smallest one within the budget: --smallest." if outcome.smallest is not None else ""
    return replace(
        _report(job, QuantRecipe(mode="auto"), {}, job.source.bytes, began),
        summary="",
        recipe={},
        budget=outcome.budget.words,
        frontier=tuple(t.candidate(outcome.budget, False) for t in outcome.trials),
        verdict=f"{outcome.verdict}; nothing was written.{hint}",
        warnings=(*outcome.notes, *remarks(job, QuantRecipe(mode="auto"))),
    )


def on_providers(report: QuantizeReport, job: QuantizationInputs, options: SessionOptions) -> QuantizeReport:
    """Add what the result gives on the provider asked for; there it may be off by as much as quantizing it took."""
    if report.output is None or report.fidelity is None or requested_providers(options) == (CPU,):
        return report
    feeds = [dict(f) for f in job.probes().limited(_FEW_PROBES).batches(1)]
    proof = prove_on_provider(report.output, replace(options, threads=job.threads), feeds=feeds)
    noise = 10 ** (-report.fidelity.sqnr_db / 20)
    if proof.error is not None and proof.error <= noise:
        proof = replace(proof, ok=True)
    return replace(report, providers=(proof,))


def finish(
    job: QuantizationInputs,
    recipe: QuantRecipe,
    target: Path,
    began: float,
    known: RecipeTrial | None = None,
    outcome: SearchOutcome | None = None,
    max_drop: float | None = None,
) -> QuantizeReport:
    """Apply a calibrated recipe, verify, measure, write, report.

    A recipe that no search has judged is judged here: beyond a budget that was given nothing is written; beyond the
    default one, or slower than float, it is written with a warning.

    Args:
        job: model, data, labels.
        recipe: with ranges for whatever it quantizes statically.
        target: the file to write.
        began: reading of the clock when all of it began.
        known: the same recipe as the search has seen it: what was measured there is not measured again.
        outcome: of the search, whose clock and float session are used on.
        max_drop: the accuracy budget that was asked for; None for none.

    Raises:
        InputError: the quantized model does not load or run.
        VerdictError: it gives other names or shapes than float, or NaN or infinity where float does not.
    """
    probes = job.probes()  # first of all: random ones are drawn with a session of their own
    float_runner = job.runner(job.source) if outcome is None else outcome.reference
    judged = None if known is None or known.judged_on_few else known.fidelity
    latency = None if known is None else known.latency
    if outcome is None or latency is None:
        # One sample at a time: the activations of several would be most of what a static quantization takes of memory.
        judge = FidelityEvaluator(
            job.original, float_runner, probes, batch=1, kinds=job.kinds, confidence=job.confidence
        )
    else:
        few = max(int(_PATIENCE * outcome.clock.seconds / latency.after), _FEW_PROBES)
        judge = outcome.judge.limited(min(few, FIDELITY_SAMPLES if judged is None else _PROBES_OF_KNOWN))

    def fit(expected: Outputs, actual: Outputs) -> None:
        wrong = outputs_fit(expected, actual, judge.detections.names if judge.detections else ())
        if wrong is not None:
            raise VerdictError(f"{job.source}: not written, because the quantized model's {wrong}.")

    metric = None if known is None else known.metric
    expected = job.task.predict(float_runner) if job.task is not None and metric is None else None
    stored = recipe.mode == "float16" and job.one_at_a_time  # the CPU side makes float32 of all, and packs that
    to_time = latency is None and not recipe.form and not stored
    if to_time and isinstance(float_runner, RunnerInTurn):
        measure_in_turn([float_runner], judge.feeds[0], job.threads, _TIMED)  # while it is loaded
    with _built(job, recipe, target) as built:
        opener = replace(job, session=_as_stored(job.session)) if stored else job
        runner, kernels = opened_and_counted(lambda path: opener.runner(built, path))
        release_mapped(job.prepared)
        fidelity = judge.judge(runner, detailed=True, check=fit)
        fidelity = fidelity if judged is None else replace(judged, outputs=fidelity.outputs)
        if job.task is not None and expected is not None:
            drop = DEFAULT_DROP if max_drop is None else max_drop
            metric = job.task.compared(expected, job.task.predict(runner), drop)
        if to_time:
            latency = compare_session_latency(float_runner, runner, judge.feeds[0], job.threads, _TIMED)
        size = job.source.bytes
        plan = set(select(job.prepared.graph, recipe))
        budget = Criterion(DEFAULT_DROP if max_drop is None else max_drop, labelled=metric is not None)
        why = ""
        if outcome is None:
            fidelity, verdict = verdict_on_all(job, float_runner, runner, fidelity, budget, metric)
            why = "" if verdict.kept else verdict.worst.text
        if not why or max_drop is None:
            job.turn.end()
            io.save(_graph(built), target)
            report = _in_its_form(_written(job, recipe, target, plan, size, began), recipe)
        else:
            report = _report(job, recipe, counts(job.prepared.graph, plan), size, began)
            report = replace(report, verdict=f"more is lost than --max-drop allows: {why}; nothing was written.")
    return replace(
        report,
        kernels=kernels,
        latency=latency,
        fidelity=fidelity,
        metric=metric,
        budget="" if max_drop is None else budget.words,
        calibration=_origin(job, recipe),
        warnings=(
            *report.warnings,
            *remarks(job, recipe, plan),
            *remarks_on_metric(job.task, metric),
            *["latency was not measured: the CPU side computes float16 in float32, as long as float takes"] * stored,
            *(() if outcome is not None else _shortfalls(report, why, latency)),
        ),
    )


def verdict_on_all(
    job: QuantizationInputs,
    float_runner: Runner,
    runner: Runner,
    seen: Fidelity,
    budget: Criterion,
    metric: TaskMetric | None = None,
) -> tuple[Fidelity, AccuracyVerdict]:
    """The verdict on a result: on all samples that time allows, unless the few `seen` show it to be far out.

    Few samples show little where noise varies between samples, and rows that are rare are not among them. Models that
    are not in memory together stay with the few: each would be loaded again.
    """
    verdict = budget.judge(seen, metric)
    if verdict.hopeless or job.one_at_a_time or job.probes(None).count in (None, seen.samples):
        return seen, verdict
    began = time.perf_counter()
    for runs in (float_runner, runner):
        runs.run(job.probes().first())
    samples = job.probes(int(_JUDGING / (time.perf_counter() - began)))
    if (samples.count or 0) <= seen.samples:
        return seen, verdict
    judge = FidelityEvaluator(job.original, float_runner, samples, batch=1, kinds=job.kinds, confidence=job.confidence)
    seen = replace(judge.judge(runner), outputs=seen.outputs)
    return seen, budget.judge(seen, metric)


@contextmanager
def _built(job: QuantizationInputs, recipe: QuantRecipe, target: Path) -> Iterator[ir.Model | Path]:
    """The quantized model; where two would be too much to have in memory, as a file beside the target."""
    release_memory(io.weight_bytes(job.prepared))
    job.turn.end()
    model = apply(job.prepared, recipe)
    stamp(model, job, recipe)
    if not job.one_at_a_time:
        yield model
        return
    with tempfile.TemporaryDirectory(prefix=".onnxtool-", dir=target.parent) as scratch:
        draft = Path(scratch) / target.name
        io.save(model, draft, external=True)
        del model
        release_mapped(job.prepared)
        yield draft


def _as_stored(options: SessionOptions) -> SessionOptions:
    """Each weight only when its turn comes: casting or packing them all first would copy them all."""
    return replace(options, optimization="off", prepack=False, outputs_early=True)


def _graph(built: ir.Model | Path) -> ir.Model:
    return built if isinstance(built, ir.Model) else io.load(built)


def _in_its_form(report: QuantizeReport, recipe: QuantRecipe) -> QuantizeReport:
    """Hold a file that was written for a provider against what that takes; it need not be on this machine."""
    if not recipe.form or report.output is None:
        return report
    faults = tensorrt_faults(ModelFile(report.output).view)
    left = [f"TensorRT does not take {text}: {places[0]}" for text, places in faults.items()]
    checked = (
        "checked as structure: TensorRT was not run. Accuracy was measured on this processor; latency was not, because "
        "it runs this form without integer kernels."
    )
    return replace(report, warnings=(*report.warnings, checked, *left))


def _shortfalls(report: QuantizeReport, why: str, latency: LatencyRatio | None) -> list[str]:
    """What a mode asked for by name gives that `auto` would not have written; `why`: what breaks the budget."""
    found = []
    if report.ok and why:
        found.append(
            f"loses more than {DEFAULT_DROP * 100:g} point of accuracy, which auto would not write: {why}. --max-drop "
            "sets a limit for this mode too."
        )
    if latency is not None and latency.low > 1:
        found.append(f"runs slower than float here: {latency.value:.3g} times its latency.")
    return found


def finish_large(job: QuantizationInputs, recipe: QuantRecipe, target: Path, began: float) -> QuantizeReport:
    """Write a model whose float weights should not be loaded: one tensor at a time, from and to mapped files.

    The result is loaded and run from a folder beside the target before it gets the target's name.

    Raises:
        UsageError: a mode that has to run the float model.
    """
    if recipe.mode not in ("int4", "int8", "float16"):
        raise UsageError(
            f"{job.source}: with {io.weight_bytes(job.original) / 1e9:.1f} GB of weights, choose --mode int4, int8 or "
            "float16, which do not have to run the float model."
        )
    recipe = recipe if recipe.ranges is not None else recipe.with_ranges({})
    with _built(job, recipe, target) as draft:
        runner = CastingRunner.open(draft, _as_stored(SessionOptions(threads=job.threads)))
        for output in runner.run(job.probes().first()).values():
            if np.asarray(output).dtype.kind == "f" and not np.isfinite(output).all():
                raise VerdictError(f"{job.source}: not written, because the quantized model's outputs are not finite.")
        before = job.source.bytes
        io.save(_graph(draft), target, external=True)
    report = _written(job, recipe, target, set(select(job.prepared.graph, recipe)), before, began)
    unknown = "the float model was not run, for its size: neither error nor latency are known."
    return replace(report, warnings=(unknown,))


def _written(
    job: QuantizationInputs, recipe: QuantRecipe, target: Path, plan: set[str], before: int, began: float
) -> QuantizeReport:
    """The report of a file that was written, without what was measured; `before`: bytes of the source, which may have
    been replaced.
    """
    report = _report(job, recipe, counts(job.prepared.graph, plan), before, began)
    return replace(report, output=str(target), bytes_after=io.total_bytes(target), verdict="written")


def _report(
    job: QuantizationInputs, recipe: QuantRecipe, quantized: dict[str, tuple[int, int]], before: int, began: float
) -> QuantizeReport:
    """The report of a recipe that loses more than was allowed, so that nothing was written."""
    return QuantizeReport(
        source=str(job.source),
        output=None,
        mode=recipe.mode,
        summary=recipe.summary,
        recipe=recipe.without_measurements().to_dict(),
        bytes_before=before,
        bytes_after=before,
        confidence=job.confidence,
        quantized=quantized,
        kernels={},
        latency=None,
        fidelity=None,
        seconds=time.perf_counter() - began,
    )


def stamp(model: ir.Model, job: QuantizationInputs, recipe: QuantRecipe) -> None:
    """Write provenance into the model: the recipe (ranges are in the graph itself) and what it was made from."""
    details = {
        "source_sha256": job.source.sha256,
        "recipe": recipe.without_measurements().to_dict(),
        "versions": versions("onnx", "onnx-ir", "onnxruntime"),
    }
    add_history(model, "quantize", details)


def _origin(job: QuantizationInputs, recipe: QuantRecipe) -> str:
    if not recipe.ranges or job.data is None:
        return ""
    count = "" if job.data.count is None else f"{job.data.count} sample{'' if job.data.count == 1 else 's'} of "
    return f"{count}{job.data.label}, {recipe.method}"

"""`quantize`: a float model to a smaller, faster one whose accuracy is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxtool.errors import InputError, OnnxToolError, UsageError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.model import io
from onnxtool.model.file import ModelFile
from onnxtool.model.io.atomic import write_atomic
from onnxtool.model.io.in_memory import ModelLike, as_path, takes_models
from onnxtool.options.quantize import QuantizeOptions
from onnxtool.quantization.apply_recipe import calibrate
from onnxtool.quantization.diagnostics import check_samples
from onnxtool.quantization.evaluation.criterion import DEFAULT_DROP
from onnxtool.quantization.inputs import QuantizationInputs, open_inputs
from onnxtool.quantization.preprocess.widen_half import has_half
from onnxtool.quantization.recipe import QuantRecipe, dump_recipe, load_recipe, requested_recipe
from onnxtool.quantization.search.choice import choose_within_limits
from onnxtool.quantization.search.search import search
from onnxtool.quantization.search.time_budget import beginning
from onnxtool.quantization.targets import Target, find_target
from onnxtool.quantization.write_result import FirstResult, finish, finish_large, on_providers, written_nothing
from onnxtool.report.quantize import QuantizeReport
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.worker.apart import try_in_child
from onnxtool.runtime.worker.errors import OutOfTableError


@options_as_keywords(QuantizeOptions)
@takes_models("source", output="output")
def quantize(
    source: ModelLike,
    output: str | os.PathLike[str] | None = None,
    *,
    options: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
    **settings: Any,
) -> QuantizeReport:
    """Quantize a float32 ONNX model, verify the result, and write it.

    Args:
        source: the float model: an .onnx file, or a model in memory.
        output: the file to write; may be `source`. None: the report carries the result as a model.
        options: the execution providers that candidates are timed and judged on; the result is held against the CPU.
        settings: fields of QuantizeOptions by name:

    Raises:
        UsageError: options that do not fit together; static without data.
        InputError: model or data cannot be used.
        UnsupportedError: nothing to quantize.
    """
    began = beginning()
    file = ModelFile.of(source)
    path = as_path(output)
    io.check_model_output(path)
    asked = with_settings(QuantizeOptions(), settings, "quantize")
    target = find_target(asked.target)
    kept = asked.recipe_file
    replayed = load_recipe(kept) if kept is not None and Path(kept).exists() else None
    recipe = replayed or requested_recipe(asked)
    if asked.target is not None and recipe.mode == "static" and not target.form:
        raise UsageError(f"--target {asked.target} does nothing with --mode static: it goes with auto.")
    if replayed is None:
        recipe = _for_target(recipe, target, asked)
    if recipe.mode == "static" and asked.data is None and recipe.ranges is None:
        raise UsageError(
            "--mode static needs --data: the ranges of activations have to be measured on real inputs. Random inputs "
            "have other ranges than real ones, so that the file would look fine and predict badly."
        )
    try_in_child(file.path, options, runs=asked.data is None)
    job = open_inputs(file, asked, recipe.optimize, options)
    if not asked.data_as_is:
        check_samples(job)
    with _ids_located(job):
        if job.is_large:
            if asked.max_drop is not None:
                raise UsageError(
                    "--max-drop: the float model is too large to be run here, so that no loss can be measured."
                )
            return finish_large(job, recipe, path, began)
        if replayed is None and recipe.mode not in ("auto", "float16") and not recipe.form and has_half(job.original):
            # What stays float takes no more than it took.
            recipe = replace(recipe, compact=recipe.compact or 16)
        if replayed is not None or recipe.mode != "auto":
            recipe = calibrate(job.prepared, recipe, job.data, None)
            report = finish(job, recipe, path, began, max_drop=asked.max_drop)
            notes = (target.note,) if recipe.reduced and replayed is None else ()
            report = replace(report, warnings=(*notes, *report.warnings))
            if not report.ok:
                return report
            return on_providers(_saved(report, recipe, kept, replayed), job, options)
        first = FirstResult(job, path)
        try:
            report = _searched(job, recipe, asked, path, began, first)
        except OnnxToolError:
            first.withdraw()
            raise
        if report.output is None:
            first.withdraw()
        return on_providers(report, job, options)


def _searched(
    job: QuantizationInputs,
    recipe: QuantRecipe,
    asked: QuantizeOptions,
    path: Path,
    began: float,
    first: FirstResult,
) -> QuantizeReport:
    """What `auto` finds, written."""
    drop = DEFAULT_DROP if asked.max_drop is None else asked.max_drop
    keep = first.place if asked.limits is None else None  # else the first one may be none that is wanted
    outcome = search(job, recipe, drop, asked.time_limit, asked.target, began, keep)
    best = outcome.best or (outcome.smallest if asked.smallest else None)
    if asked.limits is not None:
        best = choose_within_limits(asked.limits, outcome.trials, outcome.is_within, best)
        if best is None:
            outcome = replace(outcome, verdict="no candidate keeps the accuracy budget and all limits")
    outcome = outcome.settled()
    if best is None:
        return written_nothing(job, outcome, began)
    report = _saved(finish(job, best.recipe, path, began, best, outcome), best.recipe, asked.recipe_file, None)
    return replace(
        report,
        mode="auto",
        budget=outcome.budget.words,
        frontier=tuple(t.candidate(outcome.budget, t is best) for t in outcome.trials),
        verdict=outcome.verdict or report.verdict,
        warnings=(*outcome.notes, *report.warnings),
    )


def _for_target(recipe: QuantRecipe, target: Target, asked: QuantizeOptions) -> QuantRecipe:
    """A recipe in the form and with the integers that a kind of processor takes; `auto` does that for each candidate.

    Raises:
        UsageError: options that do not fit to it.
    """
    if not target.form:
        saturates = target.reduced and recipe.weights == "s8" and recipe.mode in ("static", "dynamic")
        return replace(recipe, reduced=saturates)
    if recipe.mode not in ("auto", "static"):
        raise UsageError(f"--target {asked.target} goes with --mode auto or static, not {recipe.mode}.")
    if recipe.fuse or recipe.compact or asked.data is None:
        wrong = "needs --data" if asked.data is None else "goes without --fuse and --compact"
        raise UsageError(f"--target {asked.target} {wrong}: {target.name} takes calibrated Q/DQ pairs alone.")
    return replace(recipe, form=target.form, activations=target.activations, weights="s8")


@contextmanager
def _ids_located(job: QuantizationInputs) -> Iterator[None]:
    """Say in which file and sample an id lies that a table has no row for."""
    try:
        yield
    except OutOfTableError as error:
        sources = [d for d in (job.data, None if job.task is None else job.task.data) if d is not None]
        places = [d.locate(error.input, error.value) for d in sources]
        where = next((p for p in places if ", sample " in p), str(job.source))
        raise InputError(f"{where}: {error}") from error


def _saved(
    report: QuantizeReport,
    recipe: QuantRecipe,
    path: str | os.PathLike[str] | None,
    replayed: QuantRecipe | None,
) -> QuantizeReport:
    """Keep the recipe where the caller asked for it, unless that is where it came from."""
    if path is None:
        return report
    if replayed is None:
        write_atomic(Path(path), dump_recipe(recipe).encode())
    return replace(report, recipe_file=str(path))

"""`quantize`: a float model to a smaller, faster one whose accuracy is known."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.model.image_options import ImageOptions, parse_options
from onnxtool.model.io.atomic import write_atomic
from onnxtool.model.io.in_memory import ModelLike, as_path, takes_models
from onnxtool.quantization.apply_recipe import calibrate
from onnxtool.quantization.inputs import QuantizationInputs, open_inputs
from onnxtool.quantization.recipe import (
    ActivationType,
    Fusions,
    Mode,
    QuantRecipe,
    WeightType,
    dump_recipe,
    load_recipe,
)
from onnxtool.quantization.search.accuracy_budget import DEFAULT_DROP
from onnxtool.quantization.search.limits import ResultLimits
from onnxtool.quantization.search.search import search
from onnxtool.quantization.targets import find_target
from onnxtool.quantization.write_result import finish, finish_large, on_providers, written_nothing
from onnxtool.report.quantize import QuantizeReport
from onnxtool.runtime.latency import DEFAULT_THREADS
from onnxtool.runtime.runner import OutOfTableError
from onnxtool.runtime.session import SessionOptions


@takes_models("source", output="output")
def quantize(
    source: ModelLike,
    output: str | os.PathLike[str] | None = None,
    *,
    mode: Mode = "auto",
    data: Any = None,
    samples: int | None = None,
    eval_data: Any = None,
    labels: str | np.ndarray | None = None,
    metric: Any = "accuracy",
    per_channel: bool = True,
    activations: ActivationType = "u8",
    weights: WeightType = "s8",
    method: str = "minmax",
    coverage: float = 0.9999,
    op_types: Collection[str] = (),
    exclude: Collection[str] = (),
    max_drop: float | None = None,
    time_limit: float = 100.0,
    smallest: bool = False,
    recipe_file: str | os.PathLike[str] | None = None,
    keep_io: bool = False,
    block_size: int = 32,
    symmetric: bool = True,
    search_scale: bool = True,
    smooth: float = 0.0,
    equalize: bool = False,
    bias_correction: bool = False,
    compact: int = 0,
    attention: bool = False,
    fuse: Fusions = "",
    images: ImageOptions | str = "",
    target: str | None = None,
    threads: int = DEFAULT_THREADS,
    limits: ResultLimits | None = None,
    output_kinds: Sequence[str] = (),
    steps: int | None = None,
    states: Sequence[str] = (),
    options: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
) -> QuantizeReport:
    """Quantize a float32 ONNX model, verify the result, and write it.

    Args:
        source: the float model: an .onnx file, or a model in memory.
        output: the file to write; may be `source`. None: the report carries the result as a model.
        mode: "auto" (the fastest recipe within the accuracy budget, found by measuring), "static" (calibrated Q/DQ,
            needs `data`), "dynamic" (MatMul and Gemm, activations quantized at run time), "float16", or "int8" and
            "int4" (weights of MatMul and Gemm alone, in blocks).
        data: calibration samples: an .npz or .npy file, a folder of them, "file.py:generator", named arrays, a list
            of feeds, or a function that returns feeds (see `calibration.open_data`).
        samples: use at most this many.
        eval_data: labelled samples, likewise.
        labels: the labels, or the name of their array in the `eval_data` file.
        metric: "accuracy", "f1", "auc", "r2", "perplexity", "cer", "wer", "miou", "map" or "retrieval" (see
            `evaluation.metrics`), "file.py:function", or a function of (outputs by name, labels); higher is better.
        per_channel: one weight scale for each output channel.
        activations: integer type of activations (static).
        weights: integer type of weights.
        method: how static ranges are read off the observed values.
        coverage: share of values kept by method "percentile".
        op_types: quantize only these of Conv, Gemm, MatMul.
        exclude: nodes that stay float: names, or glob patterns of node names or output tensors.
        max_drop: the accuracy budget; 0.01 is one point. None: 0.01 in auto; in other modes a loss beyond that is a
            warning, and the file is written.
        time_limit: auto: seconds that all of it may take; what was found by then is written.
        smallest: auto: when nothing beats float, write the smallest within the budget all the same.
        recipe_file: replay the recipe in this file (no data needed, same bytes); where there is no such file, the
            recipe that was found is saved to it.
        keep_io: float16: inputs and outputs stay float32.
        block_size: int8 and int4: weights that share a scale.
        symmetric: int8 and int4: no zero points.
        target: auto: another machine's traits ("avx2", "avx512", "vnni", "amx", "arm64", "generic"), to choose without
            timing.
        fuse: what stays float becomes the runtime's own fused operators (com.microsoft): "attention" (with rotary
            embeddings and SiLU), or "all" (additions with the normalization behind them too); auto tries both.
        attention: static: products of two activations are quantized too; auto tries it where that may be faster.
        images: how pictures become tensors (see `images.parse_options`).
        search_scale: int4: choose each block's scale by its squared error.
        smooth: static, dynamic: share of the outliers in what linear layers read that goes into their weights
            (SmoothQuant); 0.5 is usual, 0 leaves it off; needs `data`. auto: every candidate has it; without it, auto
            tries it where it may help.
        equalize: static: neighbouring convolutions share their range, channel by channel; likewise.
        bias_correction: static, dynamic: biases take back the mean error of rounded weights; needs `data`; likewise.
        compact: weights of nodes that stay float (embeddings, recurrent layers, ...) are stored in so many bits (8 or
            16), and made float by the runtime when it loads the model; auto does so where the budget allows it.
        threads: of the runtime while measuring latency.
        output_kinds: "NAME:KIND" for outputs whose use the graph does not tell: "logits", "embedding", "boxes", "mask",
            "values" or "linear" (see `output_kind.OutputKind`).
        steps: samples are steps of a model with states: so many follow one another, each with the states that the model
            gave for the one before; the first of them starts with zeros, or with what the data has.
        states: "OUTPUT:INPUT" for each state, where the names do not tell.
        options: the execution providers that candidates are timed and judged on; the result is held against the CPU.
        limits: auto: what the result has to keep besides the budget; then it need not be faster than float.

    Raises:
        UsageError: options that do not fit together; static without data.
        InputError: model or data cannot be used.
        UnsupportedError: nothing to quantize.
    """
    began = time.perf_counter()
    source, path = as_path(source), as_path(output)
    io.check_output(path)
    find_target(target)
    pictures = parse_options(images) if isinstance(images, str) else images
    replayed = load_recipe(recipe_file) if recipe_file is not None and Path(recipe_file).exists() else None
    recipe = replayed or QuantRecipe(
        mode=mode,
        activations=activations,
        weights=weights,
        per_channel=per_channel,
        method=method,
        coverage=coverage,
        op_types=tuple(op_types),
        exclude=tuple(exclude),
        keep_io=keep_io,
        block_size=block_size,
        symmetric=symmetric,
        search_scale=search_scale,
        smooth=smooth,
        equalize=equalize,
        bias_correction=bias_correction,
        compact=compact,
        attention=attention,
        fuse=fuse,
    )
    if recipe.mode == "static" and data is None and recipe.ranges is None:
        raise UsageError(
            "--mode static needs --data: the ranges of activations have to be measured on real inputs. Random inputs "
            "have other ranges than real ones, so that the file would look fine and predict badly."
        )
    job = open_inputs(
        *(source, data, samples, eval_data, labels, metric, threads, recipe.optimize, pictures, options),
        output_kinds=output_kinds,
        steps=steps,
        states=states,
    )
    with _ids_located(job):
        if job.is_large:
            if max_drop is not None:
                raise UsageError(
                    "--max-drop: the float model is too large to be run here, so that no loss can be measured."
                )
            return finish_large(job, recipe, path, began)
        if replayed is not None or recipe.mode != "auto":
            recipe = calibrate(job.prepared, recipe, job.data, None)
            report = finish(job, recipe, path, began, max_drop=max_drop)
            if not report.ok:
                return report
            return on_providers(_saved(report, recipe, recipe_file, replayed), job, options)
        outcome = search(job, recipe, DEFAULT_DROP if max_drop is None else max_drop, time_limit, target, began)
        best = outcome.best or (outcome.smallest if smallest else None)
        if limits is not None:
            best = limits.choose(outcome.trials, outcome.budget, best)
            if best is None:
                outcome = replace(outcome, verdict="no candidate keeps the accuracy budget and all limits")
        if best is None:
            return written_nothing(job, outcome, began)
        report = _saved(finish(job, best.recipe, path, began, best, outcome), best.recipe, recipe_file, None)
        report = on_providers(report, job, options)
        return replace(
            report,
            mode="auto",
            budget=outcome.budget.words,
            frontier=tuple(t.candidate(outcome.budget, t is best) for t in outcome.trials),
            verdict=outcome.verdict or report.verdict,
            warnings=(*outcome.notes, *report.warnings),
        )


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

"""`quantize`: a float model to a smaller, faster one whose accuracy is known."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.errors import InputError, UsageError
from onnxtool.model import io
from onnxtool.model.domains import input_domains
from onnxtool.model.graph import input_specs
from onnxtool.model.metadata import add_history, versions
from onnxtool.quantize.accuracy import References, Task, open_task
from onnxtool.quantize.apply import apply, calibrate, select
from onnxtool.quantize.calibration import DataSource, open_data
from onnxtool.quantize.kernels import count_kernels
from onnxtool.quantize.latency import DEFAULT_THREADS, compare_latency
from onnxtool.quantize.placement import counts
from onnxtool.quantize.prepare import prepare
from onnxtool.quantize.recipe import ActivationType, Method, Mode, QuantRecipe, WeightType
from onnxtool.report.quantize import QuantizeReport, TaskMetric
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session import SessionOptions
from onnxtool.validate.equality import probe_feeds

FIDELITY_SAMPLES = 32


@dataclass(frozen=True)
class Job:
    """What a quantization works on.

    Attributes:
        source: the float model's path.
        original: the float model as it came.
        prepared: optimized and named.
        data: calibration samples; None without.
        task: labelled data; None without.
        threads: for timing.
    """

    source: Path
    original: ir.Model
    prepared: ir.Model
    data: DataSource | None
    task: Task | None
    threads: int

    def runner(self, model: ir.Model | Path) -> OnnxRunner:
        """A session as latency is measured with."""
        return OnnxRunner.open(model, SessionOptions(threads=self.threads))

    def probes(self) -> DataSource:
        """Samples to judge on: the calibration data, or seeded random inputs."""
        if self.data is not None:
            return self.data.limited(FIDELITY_SAMPLES)
        specs = input_specs(self.original)
        feeds = probe_feeds(specs, domains=input_domains(self.original))
        return open_data(feeds, specs)


def quantize(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    mode: Mode | None = None,
    data: Any = None,
    samples: int | None = None,
    eval_data: Any = None,
    labels: str | np.ndarray | None = None,
    metric: Any = "accuracy",
    per_channel: bool = True,
    activations: ActivationType = "u8",
    weights: WeightType = "s8",
    method: Method = "minmax",
    coverage: float = 0.9999,
    op_types: Collection[str] = (),
    exclude: Collection[str] = (),
    threads: int = DEFAULT_THREADS,
) -> QuantizeReport:
    """Quantize a float32 ONNX model, verify the result, and write it.

    Args:
        source: the float model.
        output: the file to write; may be `source`.
        mode: "static" (calibrated Q/DQ, needs `data`) or "dynamic" (MatMul and Gemm, activations quantized at run
            time). None: static with data, dynamic without.
        data: calibration samples: an .npz or .npy file, a folder of them, "file.py:generator", named arrays, a list
            of feeds, or a function that returns feeds (see `calibration.open_data`).
        samples: use at most this many.
        eval_data: labelled samples, likewise.
        labels: the labels, or the name of their array in the `eval_data` file.
        metric: "accuracy", "file.py:function", or a function of (outputs by name, labels); higher is better.
        per_channel: one weight scale for each output channel.
        activations: integer type of activations (static).
        weights: integer type of weights.
        method: how static ranges are read off the observed values.
        coverage: share of values kept by method "percentile".
        op_types: quantize only these of Conv, Gemm, MatMul.
        exclude: nodes that stay float: names, or glob patterns of node names or output tensors.
        threads: of the runtime while measuring latency.

    Raises:
        UsageError: options that do not fit together; static without data.
        InputError: model or data cannot be used.
        UnsupportedError: nothing to quantize.
    """
    began = time.perf_counter()
    target = Path(output)
    io.check_output(target)
    recipe = QuantRecipe(
        mode=mode or ("static" if data is not None else "dynamic"),
        activations=activations,
        weights=weights,
        per_channel=per_channel,
        method=method,
        coverage=coverage,
        op_types=tuple(op_types),
        exclude=tuple(exclude),
    )
    if recipe.mode == "static" and data is None:
        raise UsageError(
            "--mode static needs --data: the ranges of activations have to be measured on real inputs. Random inputs "
            "have other ranges than real ones, so that the file would look fine and predict badly."
        )
    job = open_job(source, data, samples, eval_data, labels, metric, threads, recipe.optimize)
    return finish(job, calibrate(job.prepared, recipe, job.data, None), target, began)


def open_job(
    source: str | os.PathLike[str],
    data: Any,
    samples: int | None,
    eval_data: Any,
    labels: str | np.ndarray | None,
    metric: Any,
    threads: int,
    level: str,
) -> Job:
    """Load the model and open the data; all that can be wrong with either is said here."""
    original = io.load(source)
    specs = input_specs(original)
    opened = None if data is None else open_data(data, specs, samples=samples)
    if opened is not None:
        opened.first()
    task = None
    if eval_data is not None:
        task = open_task(eval_data, open_data(eval_data, specs), labels, metric)
    elif labels is not None:
        raise UsageError("--labels goes with --eval: the labelled data.")
    return Job(Path(source), original, prepare(original, level), opened, task, threads)


def finish(job: Job, recipe: QuantRecipe, target: Path, began: float) -> QuantizeReport:
    """Apply a calibrated recipe, verify, measure, write, report."""
    model = apply(job.prepared, recipe)
    stamp(model, job, recipe)
    runner = verified(job, model)
    float_runner = job.runner(job.source)
    references = References(float_runner, job.probes())
    fidelity = references.judge(runner)
    metric = None
    if job.task is not None:
        base = job.task.score(float_runner)
        metric = TaskMetric(job.task.name, base, job.task.score(runner), len(job.task.labels))
    (latency,) = compare_latency(float_runner, [runner], job.probes().first(), threads=job.threads)
    before = io.total_bytes(job.source)
    kernels = count_kernels(model)
    io.save(model, target)
    plan = select(job.prepared.graph, recipe)
    return QuantizeReport(
        source=str(job.source),
        output=str(target),
        mode=recipe.mode,
        summary=recipe.summary,
        recipe=replace(recipe, ranges=None).to_dict(),
        bytes_before=before,
        bytes_after=io.total_bytes(target),
        quantized=counts(job.prepared.graph, set(plan)),
        kernels=kernels,
        latency=latency,
        fidelity=fidelity,
        metric=metric,
        calibration=_origin(job, recipe),
        seconds=time.perf_counter() - began,
        verdict="written",
        warnings=_warnings(job),
    )


def verified(job: Job, model: ir.Model) -> OnnxRunner:
    """Load the quantized model and run it; what it gives must have the float model's names, shapes and no NaN.

    Raises:
        InputError: it does not load or run, or gives other shapes, NaN or infinity where float does not.
    """
    runner = job.runner(model)
    float_runner = job.runner(job.source)
    for feeds in job.probes().limited(3).samples():
        expected, actual = float_runner.run(feeds), runner.run(feeds)
        for name, right in expected.items():
            found = actual.get(name)
            if found is None or np.shape(found) != np.shape(right):
                raise InputError(f"{job.source}: the quantized model's output {name!r} has another shape; not written.")
            finite = np.asarray(right).dtype.kind != "f" or not np.isfinite(right).all() or np.isfinite(found).all()
            if not finite:
                raise InputError(f"{job.source}: the quantized model's output {name!r} is not finite; not written.")
    return runner


def stamp(model: ir.Model, job: Job, recipe: QuantRecipe) -> None:
    """Write provenance into the model: the recipe (ranges are in the graph itself) and what it was made from."""
    details = {
        "source_sha256": io.sha256(job.source),
        "recipe": replace(recipe, ranges=None).to_dict(),
        "versions": versions("onnx", "onnx-ir", "onnxruntime"),
    }
    add_history(model, "quantize", details)


def _origin(job: Job, recipe: QuantRecipe) -> str:
    if not recipe.ranges or job.data is None:
        return ""
    count = "" if job.data.count is None else f"{job.data.count} samples of "
    return f"{count}{job.data.label}, {recipe.method}"


def _warnings(job: Job) -> tuple[str, ...]:
    if job.data is not None:
        return ()
    return ("without --data the error is measured on random inputs, which says little about real ones.",)

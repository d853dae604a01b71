"""`bench`: latency, throughput, load time and memory of models, side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import onnxruntime

from onnxtool import progress
from onnxtool.benchmark.baseline import against_baseline
from onnxtool.equality.equivalence_check import match_names
from onnxtool.errors import InputError, UsageError
from onnxtool.model.file import ModelFile
from onnxtool.model.io.in_memory import ModelLike, takes_models
from onnxtool.model.spec import TensorSpec
from onnxtool.report.measurement.bench import BenchedModel, BenchReport, Latency
from onnxtool.report.measurement.placement import Placement
from onnxtool.report.measurement.profile import Peaks, Profile
from onnxtool.runtime import cpu
from onnxtool.runtime.data.read_feeds import read_feeds
from onnxtool.runtime.feeds import Feeds, adapt, check_feeds
from onnxtool.runtime.probes import runnable_feeds
from onnxtool.runtime.providers.placement import placement
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import DEFAULT, SessionOptions, provider_names, requested_providers
from onnxtool.runtime.timing.load_cost import load_cost
from onnxtool.runtime.timing.profile import measure_peaks, profile
from onnxtool.runtime.timing.timing import Ratio, Timing, block_ratio, measure, median_interval
from onnxtool.runtime.worker.apart import try_in_child

# Differences below this are of no use to anyone, and are in the reach of chance on a busy machine.
MARGIN = 0.02
# An interval that reaches so far has told nothing.
_UNCLEAR = 1.5


class Setting(NamedTuple):
    """What a measurement is made for."""

    batch: int | None
    threads: int | None


@takes_models("models")
def bench(
    models: ModelLike | Sequence[ModelLike],
    *,
    data: str | os.PathLike[str] | Mapping[str, np.ndarray] | None = None,
    batches: Sequence[int] = (),
    threads: Sequence[int] = (),
    budget: float = 2.0,
    seed: int = 0,
    options: SessionOptions = DEFAULT,
    profiled: bool = False,
    trace: str | os.PathLike[str] | None = None,
    baseline: str | os.PathLike[str] | None = None,
    max_regression: float = 0.05,
    require_provider: bool = False,
) -> BenchReport:
    """Measure models in alternation, so that a slow moment of the machine hits all of them.

    Args:
        models: .onnx files, or models in memory, that take the same inputs; ratios are to the first.
        data: inputs as .npz, folder of .npy, or named arrays; seeded random ones unless given. Its first rows are
            taken for each batch size, repeated when there are too few.
        batches: sizes of the inputs' first dim; unless given, 1 where it is dynamic.
        threads: numbers of intra-op threads; unless given, that of `options`.
        budget: seconds of measuring for each setting and model.
        seed: of random inputs.
        options: provider and custom-operator libraries.
        profiled: also tell where the time of each model goes, in the first setting.
        trace: where to leave the first model's events in the Chrome trace format; implies `profiled`.
        baseline: JSON of an earlier report; what got slower than it allows makes the verdict bad.
        max_regression: 0.05 allows medians 5 % above the baseline's.
        require_provider: make it a bad verdict when a node does not run on the provider asked for.

    Raises:
        InputError: a model or the data cannot be used, or the models do not take the same inputs.
        UsageError: a batch size that a model with a fixed batch cannot take.
    """
    several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    files = [ModelFile.of(model) for model in several]
    if not files:
        raise UsageError("bench needs at least one model.")
    for file in files:
        file.verify()
        if data is None:
            try_in_child(file.path, options, seed)
    settings = [Setting(b, t) for t in (threads or (options.threads,)) for b in (batches or (None,))]
    arrays: dict[str, np.ndarray] | None = None
    notes: tuple[str, ...] = ()
    latencies: list[Latency] = []
    benched: list[BenchedModel] = []
    profiles: list[Profile] = []
    placements: list[Placement] = []
    elsewhere = requested_providers(options) != (CPU,)
    peaks: Peaks | None = None
    with progress.task("measuring", len(settings) + len(files)) as task:
        for file in files:
            runner = OnnxRunner.open(file, _quiet(options, settings[0].threads))
            if data is not None and arrays is None:
                given = read_feeds(data, runner.inputs)
                arrays, notes = given.joined(), given.notes
            feeds = bench_feeds(file, runner, arrays, settings[0].batch, seed)
            runner.run(feeds)  # a model that fails is reported from here, with the runtime's own words
            cost = load_cost(file, feeds, options)
            benched.append(BenchedModel(str(file), file.bytes, cost))
            if profiled or trace is not None:
                place = Path(trace) if trace is not None and file is files[0] else None
                own = replace(options, threads=settings[0].threads)
                peaks = measure_peaks(own) if peaks is None else peaks
                profiles.append(profile(file, feeds, own, trace=place, peaks=peaks))
            if require_provider or (profiled and elsewhere):
                placements.append(placement(file, feeds, replace(options, threads=settings[0].threads)))
            task.advance()
        for setting in settings:
            latencies += _setting(files, arrays, setting, budget, seed, options)
            task.advance()
    report = BenchReport(
        models=tuple(benched),
        latencies=tuple(latencies),
        data=_origin(data, seed),
        provider=provider_names(options),
        cpu=cpu.model_name(),
        cores=cpu.usable_cores(),
        runtime=f"onnxruntime {onnxruntime.__version__}",
        warnings=(*notes, *_warnings(latencies)),
        profiles=tuple(profiles),
        placements=tuple(placements),
        provider_required=require_provider,
    )
    return report if baseline is None else against_baseline(report, Path(baseline), max_regression)


def _quiet(options: SessionOptions, threads: int | None) -> SessionOptions:
    # Threads that keep spinning after their session's run would slow the other model's next run.
    return replace(options, threads=threads, spinning="runs")


def _setting(
    files: Sequence[ModelFile],
    arrays: Mapping[str, np.ndarray] | None,
    setting: Setting,
    budget: float,
    seed: int,
    options: SessionOptions,
) -> list[Latency]:
    """All models in one setting: several blocks, each with fresh sessions that run in alternation."""
    feeds: Feeds = {}

    def open_all() -> list[Callable[[], object]]:
        nonlocal feeds
        calls, feeds = _open_all(files, arrays, setting, seed, options, feeds)
        return calls

    by_model = timed_blocks(open_all, budget * len(files), alone=len(files) == 1)
    size = next((a.shape[0] for a in feeds.values() if isinstance(a, np.ndarray) and a.ndim), 1)
    return [
        _latency(p, size, setting, own, by_model[0] if i else None)
        for i, (p, own) in enumerate(zip(files, by_model, strict=True))
    ]


def _open_all(
    files: Sequence[ModelFile],
    arrays: Mapping[str, np.ndarray] | None,
    setting: Setting,
    seed: int,
    options: SessionOptions,
    shared: Feeds,
) -> tuple[list[Callable[[], object]], Feeds]:
    """Fresh sessions, each run once, on the feeds of earlier ones (`shared`), or on new ones. Also these feeds."""
    calls: list[Callable[[], object]] = []
    for file in files:
        runner = OnnxRunner.open(file, _quiet(options, setting.threads))
        if not shared:
            shared = feeds = bench_feeds(file, runner, arrays, setting.batch, seed)
        else:
            feeds = _same_feeds(file, runner.inputs, shared)
        runner.run(feeds)
        calls.append(session_call(runner, feeds))
    return calls, shared


def _same_feeds(file: ModelFile, specs: Sequence[TensorSpec], shared: Feeds) -> Feeds:
    try:
        names = match_names(list(shared), [s.name for s in specs], "inputs")
        feeds = adapt(specs, {names[name]: array for name, array in shared.items()})
        check_feeds(specs, feeds)
    except InputError as error:
        raise InputError(f"{file}: does not take the first model's inputs: {error}") from error
    return feeds


def _latency(
    file: ModelFile, batch: int, setting: Setting, blocks: Sequence[Timing], baseline: Sequence[Timing] | None
) -> Latency:
    timing = Timing(tuple(s for block in blocks for s in block.samples))
    low, high = median_interval(timing.samples)
    relation = None if baseline is None else block_ratio(blocks, baseline)
    return Latency(
        model=str(file),
        batch=batch,
        threads=setting.threads,
        runs=len(timing.samples),
        median=timing.median,
        p90=timing.percentile(90),
        p99=timing.percentile(99),
        low=low,
        high=high,
        throughput=batch / timing.median,
        ratio=relation.value if relation else None,
        ratio_low=relation.low if relation else None,
        ratio_high=relation.high if relation else None,
        verdict=judge(relation) if relation else "",
        quantiles=tuple(timing.percentile(q) for q in range(0, 101, 5)),
    )


def judge(relation: Ratio, margin: float = MARGIN) -> str:
    """What the interval of a ratio says.

    "faster" or "slower" when it leaves 1 out and the ratio is off by more than `margin`; "unclear" when it does not,
    but is so wide that the one model could be half as fast again as the other; else "same".
    """
    if relation.verdict != "same":
        return relation.verdict if abs(relation.value - 1) > margin else "same"
    return "unclear" if relation.high > _UNCLEAR or relation.low < 1 / _UNCLEAR else "same"


def bench_feeds(
    file: os.PathLike[str], runner: OnnxRunner, arrays: Mapping[str, np.ndarray] | None, batch: int | None, seed: int
) -> Feeds:
    """Inputs of one batch size: the first rows of `arrays`, repeated when there are too few, or seeded random ones."""
    specs = runner.inputs
    fixed = {s.shape[0] for s in specs if s.shape and isinstance(s.shape[0], int)}
    if batch is not None and fixed and batch not in fixed and all(s.shape for s in specs):
        raise UsageError(f"--batch {batch}: {file} has a fixed batch of {min(fixed)}.")
    if arrays is None:
        try:
            return runnable_feeds(runner, specs, seed, batch=batch or 1)[0]
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
    try:
        feeds = adapt(specs, arrays)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    wanted = batch or (next(iter(fixed)) if len(fixed) == 1 else 1)
    return {s.name: _rows(feeds[s.name], _own_batch(s, wanted)) if s.shape else feeds[s.name] for s in specs}


def _own_batch(spec: TensorSpec, wanted: int) -> int:
    """The batch that an input has, where it is fixed."""
    first = (spec.shape or (None,))[0]
    return first if isinstance(first, int) else wanted


def _rows(array: np.ndarray, count: int) -> np.ndarray:
    """The first `count` rows, going round when there are fewer."""
    if array.ndim == 0 or len(array) == 0:
        return array
    return np.ascontiguousarray(array[np.arange(count) % len(array)])


def _origin(data: object, seed: int) -> str:
    if data is None:
        return f"random, seed {seed}"
    return "given arrays" if isinstance(data, Mapping) else str(data)


def _warnings(latencies: Sequence[Latency]) -> list[str]:
    """One line for each model whose runs vary, with its worst setting, and one for unclear verdicts."""
    worst: dict[str, float] = {}
    for item in latencies:
        if item.p90 > 2 * item.median and item.runs >= 20:
            worst[item.model] = max(worst.get(item.model, 0.0), item.p90 / item.median)
    lines = [
        f"{model}: runs vary a lot (p90 is up to {spread:.1f}x the median); the machine is busy, trust the ratios more "
        "than the times"
        for model, spread in worst.items()
    ]
    if any(item.verdict == "unclear" for item in latencies):
        lines.append("a verdict is unclear: the interval is too wide; measure longer (--budget) or on a calmer machine")
    return lines


_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BLOCKS, FEWEST_BLOCKS = 8, 4


def session_call(runner: OnnxRunner, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """One run. The session itself where it can take the arrays: holding them against the model costs time too."""
    if any(s.dtype == _BFLOAT16 for s in (*runner.inputs, *runner.outputs)):
        return partial(runner.run, feeds)
    return partial(runner.session.run, None, feeds)


def timed_block(calls: Sequence[Callable[[], object]], budget: float) -> list[Timing]:
    """Warm up for a tenth of the budget (seconds), then measure all calls in alternation."""
    began = time.perf_counter()
    for call in calls:
        call()
    once = max(time.perf_counter() - began, 1e-6)
    rounds = min(max(int(0.1 * budget / once), 2), 100)
    return measure(calls, budget=budget, minimum=5, maximum=5000, warmup=rounds)


def timed_blocks(
    open_all: Callable[[], Sequence[Callable[[], object]]], budget: float, *, alone: bool = False
) -> list[tuple[Timing, ...]]:
    """Several blocks with fresh sessions in each (see `timing.block_ratio`); one where there is nothing to compare.

    Args:
        open_all: fresh sessions, each run once.
        budget: seconds of measuring for all of it.
        alone: there is one candidate only.

    Returns:
        For each candidate its timings, one a block.
    """
    blocks: list[list[Timing]] = []
    wanted = 1 if alone else BLOCKS
    while len(blocks) < wanted:
        began = time.perf_counter()
        calls = open_all()
        opening = time.perf_counter() - began
        if not blocks and not alone:
            # Slow to load: fewer blocks, but never so few that an interval means nothing.
            wanted = max(FEWEST_BLOCKS, min(BLOCKS, int(budget / max(opening, 1e-3))))
        blocks.append(timed_block(calls, budget / wanted))
    return list(zip(*blocks, strict=True))

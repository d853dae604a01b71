"""Latency, measured so that a noisy machine does not decide: warm-up, alternation, medians, intervals."""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import NormalDist

import numpy as np
import onnx_ir as ir

from onnxtool import progress
from onnxtool.model.domains import Domain
from onnxtool.model.spec import TensorSpec
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.runtime.feeds import Feeds, random_feeds
from onnxtool.runtime.in_turn import RunnerInTurn
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import OnnxRunner, fit_dtypes
from onnxtool.runtime.session.session import SessionOptions

_NORMAL = 1.96  # two-sided 95 %


@dataclass(frozen=True)
class Timing:
    """Latencies of one candidate, in seconds, in the order they were taken."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median latency, seconds."""
        return float(np.median(self.samples))

    def percentile(self, q: float) -> float:
        """Latency percentile, q in [0, 100], seconds."""
        return float(np.percentile(self.samples, q))


@dataclass(frozen=True)
class Ratio:
    """How two candidates relate: median of the paired ratios and its interval (95 %)."""

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """ "faster", "slower", or "same" when the interval holds 1."""
        if self.high < 1.0:
            return "faster"
        return "slower" if self.low > 1.0 else "same"


_TICK = 1e-9  # seconds, of a clock that did not move


def measure(
    candidates: Sequence[Callable[[], object]],
    *,
    budget: float = 2.0,
    minimum: int = 10,
    maximum: int = 1000,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    enough: Callable[[list[Timing]], bool] | None = None,
) -> list[Timing]:
    """Time several callables in alternation, so that a slow moment of the machine hits all of them.

    Each round calls every candidate once, in an order drawn anew.

    Args:
        candidates: what to time; each call is one sample.
        budget: seconds for all of it together, warm-up left out. At least `minimum` rounds are run anyway.
        minimum: least number of rounds.
        maximum: largest number of rounds.
        warmup: rounds that are not counted.
        clock: `time.perf_counter` for elapsed time; `time.thread_time`, for candidates that compute in the calling
            thread alone (one-thread sessions), leaves out the time that other processes took the processor away.
        enough: is asked after `minimum` rounds, and whenever there are half as many again; True ends the measurement.

    Returns:
        One Timing for each candidate, in order; sample i of each comes from round i.
    """
    for _ in range(warmup):
        for call in candidates:
            call()
    samples: list[list[float]] = [[] for _ in candidates]
    # A fixed order can fall in step with the scheduler's time slices: one candidate is then interrupted every time.
    orders = np.random.default_rng(0)
    deadline = time.perf_counter() + budget
    rounds, look = 0, minimum
    while rounds < maximum and (rounds < minimum or time.perf_counter() < deadline):
        for index in orders.permutation(len(candidates)):
            start = clock()
            candidates[index]()
            samples[index].append(max(clock() - start, _TICK))
        rounds += 1
        if enough is not None and rounds >= look:
            look = rounds + max(rounds // 2, 1)
            if enough([Timing(tuple(s)) for s in samples]):
                break
    return [Timing(tuple(s)) for s in samples]


def clock_for(threads: int | None) -> Callable[[], float]:
    """The steadier clock for sessions of so many threads (None: all cores); see `measure`."""
    return time.thread_time if threads == 1 else time.perf_counter


def median_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Interval of the median that assumes nothing: between two of the ordered values, by the binomial distribution.

    95 %; of five values 94 %, which is as much as these can tell. It takes no time beside the measurement itself.

    Source: Conover 1999, "Practical nonparametric statistics", section 3.2 (confidence interval for a quantile).
    """
    ordered = np.sort(values)
    first = max(int((len(ordered) - _NORMAL * math.sqrt(len(ordered))) / 2), 0)
    return float(ordered[first]), float(ordered[-1 - first])


def ratio(candidate: Timing, baseline: Timing) -> Ratio:
    """Latency of `candidate` over that of `baseline`: the median of the ratios of rounds that `measure` took side by
    side, and its interval.
    """
    ratios = np.divide(candidate.samples, baseline.samples)
    return Ratio(float(np.median(ratios)), *median_interval(ratios))


def block_ratio(candidate: Sequence[Timing], baseline: Sequence[Timing]) -> Ratio:
    """Latency of `candidate` over that of `baseline`, from several blocks with fresh sessions in each.

    Where memory happens to lie gives two sessions of one model latencies that differ by a percent or two, run
    after run. More runs of the same two sessions only make that chance difference look certain; more sessions
    average it out. So the block is the unit: the mean of the log ratios of the blocks' medians, with Student's
    95 % interval.

    Args:
        candidate: one Timing for each block; block i was measured in alternation with the baseline's block i.
        baseline: what to divide by. At least two blocks.

    Source: Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time" (repetition at the level that
        brings the variation).
    """
    logs = [math.log(a.median / b.median) for a, b in zip(candidate, baseline, strict=True)]
    centre = statistics.fmean(logs)
    half = student_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


_MANY = 2000  # degrees of freedom, from which on it is the normal distribution to four digits
_BISECTIONS = 60


@lru_cache(maxsize=512)
def student_quantile(confidence: float, free: int) -> float:
    """One-sided quantile of Student's t with so many degrees of freedom; 0.975 for a two-sided interval of 95 %.

    Source: Abramowitz and Stegun 1964, "Handbook of mathematical functions", 26.7.3 and 26.7.4.
    """
    if free >= _MANY:
        return NormalDist().inv_cdf(confidence)
    low, high = 0.0, 1e4
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, free) < 2 * confidence - 1 else (low, middle)
    return (low + high) / 2


def _within(t: float, free: int) -> float:
    """Chance of a value between -t and t."""
    angle = math.atan2(t, math.sqrt(free))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = free % 2
    term, total = cosine if odd else 1.0, 0.0
    for power in range(odd + 2, free + 1, 2):
        total += term
        term *= cosine * cosine * (power - 1) / power
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


_LENGTHS = (16, 128)
_BUDGET = 1.0  # seconds
_BLOCKS = 5
_IN_TURN = 7  # rounds
_LEAST_ROUNDS = 3
_PATIENCE = 3  # times the budget, that the minimum of rounds may take


def session_run(runner: OnnxRunner, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """One run of a session itself: holding the arrays against the model costs time too."""
    fitting = fit_dtypes(runner, feeds)
    return lambda: runner.session.run(None, fitting)


def measure_in_turn(
    runners: Sequence[RunnerInTurn], feeds: Mapping[str, np.ndarray], threads: int | None, seconds: float
) -> list[Timing]:
    """Time models of which one is loaded at a time, each by itself and once: a slow moment may hit one alone.

    Args:
        runners: whose times are kept with them.
        feeds: of each run.
        threads: of all sessions.
        seconds: for each.

    Returns:
        One Timing for each, of as many runs.
    """
    for runner in runners:
        if runner.seconds is None:
            call = session_run(runner, feeds)
            timed = measure([call], budget=seconds, minimum=_IN_TURN, warmup=2, clock=clock_for(threads))
            runner.seconds = timed[0].samples
    kept = [runner.seconds or () for runner in runners]
    return [Timing(times[: min(map(len, kept))]) for times in kept]


def compare_session_latency(
    reference: OnnxRunner, candidate: OnnxRunner, feeds: Mapping[str, np.ndarray], threads: int, seconds: float
) -> LatencyRatio:
    """Latency of a session beside another one: in alternation, or in turn where that is how they are loaded.

    Args:
        reference: what the other is compared with.
        candidate: the other.
        feeds: of each run.
        threads: of both.
        seconds: for all of it together.
    """
    if isinstance(reference, RunnerInTurn) and isinstance(candidate, RunnerInTurn):
        timings = measure_in_turn([reference, candidate], feeds, threads, seconds)
        return _as_report(ratio(timings[1], timings[0]), timings, threads)
    before, after = (session_run(r, feeds) for r in (reference, candidate))
    # For small models a thousand rounds took longer than all the rest.
    return compare_latency(before, after, threads, budget=seconds, minimum=7, maximum=100, warmup=1)


def compare_latency(
    reference: Callable[[], object],
    candidate: Callable[[], object],
    threads: int | None,
    *,
    budget: float,
    minimum: int = 10,
    maximum: int = 1000,
    warmup: int = 3,
) -> LatencyRatio:
    """Run a model and another one in alternation.

    Slow models get fewer rounds than `minimum`, three at least: they are steadier, and would take minutes.

    Args:
        reference: runs what the other is compared with.
        candidate: runs the other.
        threads: of both.
        budget: seconds for all of it together.
        minimum: least number of rounds.
        maximum: largest number of rounds.
        warmup: rounds that are not counted, one at least.
    """
    began = time.perf_counter()
    reference()
    candidate()
    once = time.perf_counter() - began
    timings = measure(
        [reference, candidate],
        budget=budget,
        minimum=max(_LEAST_ROUNDS, min(minimum, int(_PATIENCE * budget / once))),
        maximum=maximum,
        warmup=min(warmup - 1, int(budget / once)),
        clock=clock_for(threads),
    )
    return _as_report(ratio(timings[1], timings[0]), timings, threads)


def timing_feeds(
    specs: Sequence[TensorSpec], seed: int, domains: Mapping[str, Domain], probes: Sequence[Probe]
) -> list[Feeds]:
    """Inputs to time fusions on: lengths 16 and 128 where a length is dynamic, then those the source has run on.

    What pays at 16 need not pay at 128, and the model may refuse either.
    """
    usual = [random_feeds(specs, seed, batch=1, length=length, domains=domains) for length in _LENGTHS]
    shapes = [{name: np.shape(array) for name, array in feeds.items()} for feeds in usual]
    return [*(usual if shapes[0] != shapes[1] else usual[:1]), *(p.feeds for p in probes[:2])]


def measure_ratio(
    source: os.PathLike[str] | ir.Model, result: ir.Model, feeds: Feeds, options: SessionOptions
) -> LatencyRatio:
    """Latency of the result over that of the source, with the runtime's own optimizations on for both."""
    # Unless asked otherwise one thread: the steadiest measure on a machine that does other things too.
    options = dataclasses.replace(options, threads=options.threads or 1, spinning="runs")
    before, after = OnnxRunner.open(source, options), OnnxRunner.open(result, options)
    with progress.task("measuring"):
        return compare_latency(partial(before.run, feeds), partial(after.run, feeds), options.threads, budget=_BUDGET)


def confirmed_ratio(
    source: os.PathLike[str] | ir.Model, result: ir.Model, feeds: Feeds, options: SessionOptions
) -> LatencyRatio:
    """The same, measured longer with fresh sessions several times: two sessions of one file differ by chance."""
    options = dataclasses.replace(options, threads=options.threads or 1, spinning="runs")
    blocks: list[list[Timing]] = []
    with progress.task("measuring once more", _BLOCKS) as task:
        for _ in range(_BLOCKS):
            runners = [OnnxRunner.open(m, options) for m in (source, result)]
            calls = [partial(r.run, feeds) for r in runners]
            blocks.append(measure(calls, budget=_BUDGET / 2, minimum=3, warmup=1, clock=clock_for(options.threads)))
            task.advance()
    before, after = zip(*blocks, strict=True)
    whole = [Timing(tuple(s for block in side for s in block.samples)) for side in (before, after)]
    return _as_report(block_ratio(after, before), whole, options.threads)


def _as_report(found: Ratio, timings: Sequence[Timing], threads: int | None) -> LatencyRatio:
    return LatencyRatio(
        before=timings[0].median,
        after=timings[1].median,
        value=found.value,
        low=found.low,
        high=found.high,
        threads=threads or 1,
    )

"""What measuring gives: of models side by side, of one model in several settings, of an endpoint under load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxtool.report.base import Report
from onnxtool.report.compare import ProviderProof
from onnxtool.report.measurement.placement import Placement
from onnxtool.report.measurement.profile import Profile


@dataclass(frozen=True)
class LatencyRatio:
    """Latency of a result against that of its source, measured side by side, the runtime's own optimizations on.

    Attributes:
        value: median latency of the result divided by that of the source; below 1 is faster.
        low: lower end of its 95 % interval.
        high: upper end.
        before: median latency of the source, seconds.
        after: median latency of the result, seconds.
        threads: of the runtime while measuring; None = all cores.
    """

    value: float
    low: float
    high: float
    before: float
    after: float
    threads: int | None = None


@dataclass(frozen=True)
class LoadResult:
    """One way of sending requests.

    Attributes:
        loop: "closed" (a connection sends when it has its answer), "open" (requests are due at given times, whether or
            not earlier ones are answered), or "session" (the file in a loop in this process).
        connections: at a time.
        rate: requests due in a second, of an open loop; None otherwise.
        requests: answers counted, errors included.
        errors: how many of each status that is not 200; "none" for no answer.
        seconds: of measuring.
        throughput: good answers in a second.
        median, p90, p99, p999, longest: latency in seconds; in an open loop from when a request was due.
    """

    loop: str
    connections: int
    rate: float | None
    requests: int
    errors: Mapping[str, int]
    seconds: float
    throughput: float
    median: float
    p90: float
    p99: float
    p999: float
    longest: float


@dataclass(frozen=True, repr=False)
class EndpointBenchReport(Report, kind="endpoint_bench"):
    """An endpoint under load, beside the file in this process where one was given.

    Attributes:
        url: of the model.
        model: the file; None without one.
        equal: whether the endpoint's answer is that of the file, by the rule of `compare`; None without a file.
        request_bytes, response_bytes: of one exchange, bodies alone.
        results: of each loop; those of the file first.
        latency_ratio: median of one connection over that of the file; None without a file.
        overhead: their difference in seconds.
        throughput_ratio: best throughput of a closed loop over that of the file.
    """

    url: str
    model: str | None
    equal: bool | None
    request_bytes: int
    response_bytes: int
    results: tuple[LoadResult, ...]
    latency_ratio: float | None = None
    overhead: float | None = None
    throughput_ratio: float | None = None
    cpu: str = ""
    cores: int = 0

    @property
    def ok(self) -> bool:
        """True when every request was answered with 200 and the answers are those of the file."""
        return self.equal is not False and not any(r.errors for r in self.results)


@dataclass(frozen=True)
class MeasuredSetting:
    """One way to run the model.

    Attributes:
        name: in words: "openvino, 2 threads, no arena".
        provider: as it was asked for, with its options.
        threads: intra-op threads; None when left to the runtime.
        changes: session settings that are not the usual ones.
        verdict: "equal" or "differs" from the CPU without the runtime's optimizations, or "failed".
        proof: how far its outputs are off, and in which precision; None when it failed in a process of its own.
        load: load time and memory in a process of its own; None when it failed there.
        median: latency in seconds; None where it was not measured.
        ratio: to the CPU's default, measured in alternation, with its 95 % interval; None for that itself.
        speed: "faster", "slower", "same" or "unclear"; "" for the CPU's default and where it was not measured.
        failure: one line; "" where it ran.
    """

    name: str
    provider: str
    threads: int | None
    changes: tuple[str, ...]
    verdict: str
    proof: ProviderProof | None
    load: LoadCost | None
    median: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    speed: str = ""
    failure: str = ""


@dataclass(frozen=True)
class BestSetting:
    """The fastest setting whose outputs are equal; the CPU's default when none is surely faster.

    Attributes:
        name: of the row.
        ratio, ratio_low, ratio_high: to the CPU's default, measured again with fresh sessions: the fastest of many
            measurements is fast by chance too.
        settings: as plain values: provider, options, threads and whatever is not the usual.
        code: "python", "csharp" and "cpp": what makes such a session.
    """

    name: str
    ratio: float
    ratio_low: float
    ratio_high: float
    settings: Mapping[str, Any]
    code: Mapping[str, str]


@dataclass(frozen=True, repr=False)
class BenchMatrixReport(Report, kind="bench_matrix"):
    """One model in several settings, measured in one alternation.

    Attributes:
        model: the file.
        rows: the CPU's default first.
        best: which one to use.
        batch: size of the inputs' first dim.
        data: where the inputs came from.
        cpu: model name of the processor.
        cores: logical cores that the process could use.
        runtime: "onnxruntime 1.31.1".
        warnings: one line each.
        show_code: whether the terminal shows the code.
    """

    model: str
    rows: tuple[MeasuredSetting, ...]
    best: BestSetting
    batch: int
    data: str
    cpu: str
    cores: int
    runtime: str
    warnings: tuple[str, ...] = ()
    show_code: bool = False


@dataclass(frozen=True)
class LoadCost:
    """What loading one model takes, measured in a fresh process.

    Attributes:
        seconds: making the session, median of `repeats`.
        peak_bytes: peak resident memory of that process, after loading and a few runs.
        model_bytes: the part of `peak_bytes` beyond the same process before it loaded the model.
    """

    seconds: float
    repeats: int
    peak_bytes: int | None
    model_bytes: int | None


@dataclass(frozen=True)
class Latency:
    """Latency of one model in one setting, in seconds.

    Attributes:
        model: the file.
        batch: size of the inputs' first dim.
        threads: intra-op threads; None when left to the runtime.
        median, p90, p99, low, high: of single runs; [low, high] is the 95 % interval of the median.
        quantiles: the runs' 0 %, 5 %, 10 %, ... 100 % points, in seconds.
        throughput: batch items in a second, at the median.
        ratio: latency over that of the first model, measured in alternation; None for the first model itself.
        ratio_low, ratio_high: its 95 % bootstrap interval.
        verdict: "faster", "slower", "same" (the interval holds 1), "unclear" (it is too wide to say anything), or ""
            for the first model.
    """

    model: str
    batch: int
    threads: int | None
    runs: int
    median: float
    p90: float
    p99: float
    low: float
    high: float
    throughput: float
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    verdict: str = ""
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True)
class BenchedModel:
    """One model on the bench."""

    model: str
    bytes: int
    load: LoadCost


@dataclass(frozen=True, repr=False)
class BenchReport(Report, kind="bench"):
    """Models measured side by side.

    Attributes:
        models: in the order given; the first is what the others are held against.
        latencies: for every setting (batch, threads), every model.
        data: where the inputs came from.
        provider: the execution provider.
        cpu: model name of the processor.
        cores: logical cores that the process could use.
        profiles: where each model's time goes, when it was asked for.
        placements: where each model's nodes run, when it was asked for or has to be known.
        provider_required: whether a node that does not run on the provider asked for makes the verdict bad.
        regressions: what got slower than a baseline allows; empty without a baseline.
    """

    models: tuple[BenchedModel, ...]
    latencies: tuple[Latency, ...]
    data: str
    provider: str
    cpu: str
    cores: int
    runtime: str
    warnings: tuple[str, ...] = ()
    regressions: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()
    placements: tuple[Placement, ...] = ()
    provider_required: bool = False

    @property
    def ok(self) -> bool:
        """False when something got slower than a baseline allows, or a node fell back that must not."""
        return not self.regressions and not (self.provider_required and any(p.fallbacks for p in self.placements))

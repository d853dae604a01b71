"""What measuring models gives."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report
from onnxtool.report.measurement.placement import Placement
from onnxtool.report.measurement.profile import Profile


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

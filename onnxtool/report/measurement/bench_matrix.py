"""What measuring one model in several settings gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxtool.report.base import Report
from onnxtool.report.measurement.bench import LoadCost
from onnxtool.report.provider_proof import ProviderProof


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

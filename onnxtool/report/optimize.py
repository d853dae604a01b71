"""What optimizing a model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxtool.report.base import NOT_IN_JSON, Report, TensorInfo
from onnxtool.report.certificate import suffices
from onnxtool.report.compare import CompareReport, ProviderProof
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.proof import Assumption


@dataclass(frozen=True)
class PassSummary:
    """One pass, as `--list-passes` shows it.

    Attributes:
        name: what it does, verb first.
        level: the lowest level at which it runs.
        description: one line.
        origin: "onnxtool", or the package that added it through the entry points "onnxtool.passes".
    """

    name: str
    level: str
    description: str
    origin: str = "onnxtool"


@dataclass(frozen=True, repr=False)
class PassListReport(Report, kind="passes"):
    """All passes, in the order in which they run."""

    passes: tuple[PassSummary, ...]


@dataclass(frozen=True)
class PassResult:
    """What one pass did to a model.

    Attributes:
        name: the pass.
        level: its level.
        rewrites: how often it changed something, over all rounds.
        seconds: time it took, over all rounds.
    """

    name: str
    level: str
    rewrites: int
    seconds: float


@dataclass(frozen=True)
class PipelineResult:
    """What the whole pipeline did to a model.

    Attributes:
        level: the level that was run.
        passes: every pass that ran, in order.
        rounds: how often the sequence of passes was run until nothing changed any more.
        seconds: time of it all.
        settled: False when the round limit ended it.
    """

    level: str
    passes: tuple[PassResult, ...]
    rounds: int
    seconds: float
    settled: bool = True

    @property
    def rewrites(self) -> int:
        """Rewrites of all passes together."""
        return sum(p.rewrites for p in self.passes)


@dataclass(frozen=True)
class ModelSize:
    """How large a model is.

    Attributes:
        nodes: nodes of all graphs, subgraphs and functions included.
        operators: operator name -> number of nodes.
        bytes: size on disk, external data included.
    """

    nodes: int
    operators: Mapping[str, int]
    bytes: int


@dataclass(frozen=True)
class DroppedPass:
    """A pass, or a family of fusions, that was left out.

    Attributes:
        name: the pass.
        reason: the first output that differed, the error it caused, or the latency it cost.
        fault: True when the pass made a wrong or broken model; False when it was merely not worth it.
    """

    name: str
    reason: str
    fault: bool = True


@dataclass(frozen=True)
class CompiledForm:
    """A model as one execution provider has compiled it.

    Attributes:
        output: the file.
        provider: as it was asked for; the file is to be loaded with the same options.
        nodes: parts that are compiled.
        bytes: size of the file.
        compile_seconds: loading the model without it.
        load_seconds: loading the compiled form.
    """

    output: str
    provider: str
    nodes: int
    bytes: int
    compile_seconds: float
    load_seconds: float


@dataclass(frozen=True)
class FamilyTrial:
    """A family of fusions into the runtime's own operators, at level all.

    Attributes:
        name: the pass.
        kept: whether it is in the result.
        ratio: latency with it over latency without it, at the size where it did worst; None when it was not timed.
        reason: why it was kept or not, in a few words.
    """

    name: str
    kept: bool
    ratio: float | None
    reason: str


@dataclass(frozen=True, repr=False)
class OptimizeReport(Report, kind="optimize"):
    """What optimizing did.

    Attributes:
        source: the file that was read.
        output: the file that was written.
        level: "basic", "extended" or "all".
        inputs: the model's inputs (unchanged, unless dims were frozen).
        outputs: its outputs (unchanged).
        before: size of the source.
        after: size of the result.
        passes: rewrites and time of each pass.
        rounds: runs of the sequence of passes until nothing changed.
        seconds: time of the rewriting alone.
        comparison: the result against the source on the same inputs, both with the runtime's optimizations off;
            None when it was not asked for.
        latency: None when it was not measured.
        dropped: passes that were left out, and why.
        families: at level all, the fusions into the runtime's own operators that were tried, or that the table for
            `target` has.
        target: the kind of processor that the fusions were chosen for; None for this machine.
        strict: whether a faulty pass makes the verdict bad.
        verdict: why the source was left as it is, where it was: the output is the same model then; else "".
        assumptions: that dims of one name are equal: what a run has shown of each name that several dims share.
        warnings: one line each.
        compiled: what the provider has compiled of the result, when it was asked for; proven like the result itself.
        providers: the result on the other providers that were asked for, held against the CPU.
        require: the verdict that is good: "tested", or nothing less than "certified".
        result: the written model as an `onnx_ir.Model` where no output path was named; not part of the JSON form.
    """

    source: str
    output: str
    level: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    before: ModelSize
    after: ModelSize
    passes: tuple[PassResult, ...]
    rounds: int
    seconds: float
    comparison: CompareReport | None = None
    latency: LatencyRatio | None = None
    dropped: tuple[DroppedPass, ...] = ()
    families: tuple[FamilyTrial, ...] = ()
    target: str | None = None
    strict: bool = False
    verdict: str = ""
    assumptions: tuple[Assumption, ...] = ()
    warnings: tuple[str, ...] = ()
    providers: tuple[ProviderProof, ...] = ()
    compiled: CompiledForm | None = None
    require: str = "tested"
    result: Any = field(default=None, repr=False, compare=False, metadata=NOT_IN_JSON)

    @property
    def ok(self) -> bool:
        """True when every output was compared and none differs (and, with `strict`, no pass was at fault)."""
        faults = self.strict and any(d.fault for d in self.dropped)
        # A copy of the source needs no proof.
        proven = self.comparison is None or self.verdict or self.comparison.verdict in ("certified", "tested")
        tested = "not tested" if self.comparison is None else self.comparison.verdict
        enough = suffices("certified" if self.verdict else tested, self.require)
        return bool(proven) and enough and not faults and all(p.ok for p in self.providers)

"""What a build gives, and what its cache, its history and its first file are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxtool.report.base import Report


@dataclass(frozen=True)
class StepOutcome:
    """One step of one model.

    Attributes:
        command: convert, optimize, quantize, edit, check, compare or bench.
        state: "built", "cached", "stale" (would be built), "waiting" (what it reads is not built yet), "failed",
            "skipped" (a step before it failed).
        reason: why it was or would be built, or why it failed.
        key: of its entry in the cache; empty while what it reads is not known.
        seconds: time that building it took, whenever that was.
        summary: one line on its result.
    """

    command: str
    state: str
    reason: str = ""
    key: str = ""
    seconds: float = 0.0
    summary: str = ""


@dataclass(frozen=True)
class ConstraintVerdict:
    """One limit and what was measured; seconds, bytes, ratio or share of accuracy. None: not known."""

    name: str
    limit: float
    value: float | None
    kept: bool


@dataclass(frozen=True)
class CandidatePoint:
    """One candidate of a model's search.

    Attributes:
        name: what sets it apart; "float" is the model before quantization.
        bytes: size.
        seconds: median latency; None when it was not timed.
        ratio: the same against float.
        drop: accuracy lost against float, on labels or estimated; None when it is not known.
        within_budget: it keeps the accuracy budget.
        pareto: no other candidate is better in latency, size and accuracy at once.
        excess: by how much it is beyond the limits, each as a share of itself, added up; 0 when it keeps all.
    """

    name: str
    bytes: int
    seconds: float | None = None
    ratio: float | None = None
    drop: float | None = None
    within_budget: bool = False
    pareto: bool = False
    excess: float = 0.0


@dataclass(frozen=True)
class ModelOutcome:
    """One model of a build.

    Attributes:
        name: with its place in the matrix.
        state: "built", "unchanged", "stale" or "failed".
        output: the file; relative to the build file's folder where it lies below it.
        sha256: digest of the output; empty when there is none.
        bytes: size of the output with its external data.
        ratio: latency against float, where a step measured it.
        seconds: latency, likewise.
        drop: accuracy lost, likewise.
        memory: peak memory, likewise.
        error: one line when it failed.
        exit_code: that the failing step would give as a command.
        steps: in order.
        constraints: limits and what was measured.
        candidates: what the search tried, where limits were set.
        axes: place in the matrix.
        tags: as in the file.
        notes: what else to know.
    """

    name: str
    state: str
    output: str
    sha256: str = ""
    bytes: int = 0
    ratio: float | None = None
    seconds: float | None = None
    drop: float | None = None
    memory: int | None = None
    error: str = ""
    exit_code: int = 0
    steps: tuple[StepOutcome, ...] = ()
    constraints: tuple[ConstraintVerdict, ...] = ()
    candidates: tuple[CandidatePoint, ...] = ()
    axes: Mapping[str, str] | None = None
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class BuildReport(Report, kind="build"):
    """One build, or with `dry_run` what one would do.

    Attributes:
        file: the build file.
        models: in the order of the file.
        dry_run: nothing was run.
        executor: where steps ran.
        jobs: how many at a time.
        seconds: wall time.
        processor: of the machine that the latencies are of.
        cache: where results are kept, without credentials.
        lock: "written", "unchanged", or "frozen".
    """

    file: str
    models: tuple[ModelOutcome, ...]
    dry_run: bool = False
    executor: str = "local"
    jobs: int = 1
    seconds: float = 0.0
    processor: str = ""
    cache: str = ""
    lock: str = ""

    @property
    def ok(self) -> bool:
        """True when every model is built and keeps its limits; with `dry_run` when nothing is stale."""
        bad = ("failed", "stale") if self.dry_run else ("failed",)
        return not any(m.state in bad for m in self.models)

    def count(self, state: str) -> int:
        """Number of steps in a state."""
        return sum(s.state == state for m in self.models for s in m.steps)


@dataclass(frozen=True)
class PastBuild:
    """One line of the history.

    Attributes:
        when: UTC, to the second, ISO 8601.
        ok: the verdict.
        built: steps that were run.
        cached: steps that were not.
        failed: models that failed.
        seconds: wall time.
        outputs: model -> (sha256, bytes, latency in seconds or None) of each model that has an output.
    """

    when: str
    ok: bool
    built: int
    cached: int
    failed: int
    seconds: float
    outputs: Mapping[str, tuple[str, int, float | None]]


@dataclass(frozen=True, repr=False)
class BuildHistoryReport(Report, kind="build_history"):
    """The builds of a file, the latest last."""

    file: str
    builds: tuple[PastBuild, ...]


@dataclass(frozen=True, repr=False)
class CacheReport(Report, kind="cache"):
    """What is in the cache.

    Attributes:
        action: "size", "prune" or "verify".
        place: where it is, without credentials.
        entries: results of steps that are kept.
        files: files that these hold, each content once.
        bytes: of all files.
        removed_entries: by `prune`, or damaged ones by `verify`.
        removed_files: likewise.
        removed_bytes: likewise.
        damaged: what `verify` found damaged, and removed.
    """

    action: str
    place: str
    entries: int
    files: int
    bytes: int
    removed_entries: int = 0
    removed_files: int = 0
    removed_bytes: int = 0
    damaged: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True unless something was damaged."""
        return not self.damaged


@dataclass(frozen=True, repr=False)
class InitReport(Report, kind="init"):
    """The first build file.

    Attributes:
        output: the file that was written.
        models: name -> what was recognised.
        unknown: sources that nobody recognises.
    """

    output: str
    models: Mapping[str, str]
    unknown: tuple[str, ...] = ()

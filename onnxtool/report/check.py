"""What checking a model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from onnxtool.report.base import Report, TensorInfo


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class Finding:
    """One thing that `check` has to say.

    Attributes:
        id: stable ("OT001"); `onnxtool check --explain OT001` tells more.
        severity: error, warning or note.
        message: what is wrong here, in one line.
        where: the node or tensor, empty when it is the whole model.
        fix: what to do about it.
    """

    id: str
    severity: Severity
    message: str
    where: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Stage:
    """One part of the check.

    Attributes:
        name: "specification", "shapes", "load", "run".
        state: "passed", "failed", "warned" or "skipped".
        seconds: how long it took.
        detail: a few words on what was done or why not.
    """

    name: str
    state: str
    seconds: float
    detail: str = ""


@dataclass(frozen=True, repr=False)
class CheckReport(Report, kind="check"):
    """One model under inspection.

    Attributes:
        model: the file.
        bytes: size on disk, external data included.
        opsets: domain -> version.
        nodes: number of nodes, subgraphs included.
        stages: what was done, in order.
        findings: worst first.
        fail_on: the mildest severity that makes the verdict bad.
    """

    model: str
    bytes: int
    ir_version: int
    opsets: Mapping[str, int]
    producer: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    nodes: int
    stages: tuple[Stage, ...]
    findings: tuple[Finding, ...] = ()
    fail_on: Severity = Severity.ERROR

    @property
    def ok(self) -> bool:
        """True when no finding is as bad as `fail_on`."""
        return all(f.severity.rank > self.fail_on.rank for f in self.findings)

    def count(self, severity: Severity) -> int:
        """Number of findings of one severity."""
        return sum(f.severity is severity for f in self.findings)


@dataclass(frozen=True)
class Unreadable:
    """A file that could not be checked at all.

    Attributes:
        error: the one line that says why.
        exit_code: what checking it alone would end with.
    """

    model: str
    error: str
    exit_code: int


@dataclass(frozen=True, repr=False)
class ChecksReport(Report, kind="checks"):
    """Several models under inspection.

    Attributes:
        reports: one for each model that could be read.
        unreadable: the others.
    """

    reports: tuple[CheckReport, ...]
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def ok(self) -> bool:
        """True when every model could be read and is sound."""
        return not self.unreadable and all(r.ok for r in self.reports)


@dataclass(frozen=True)
class RuleInfo:
    """What a finding id stands for."""

    id: str
    family: str
    severity: Severity
    title: str
    explanation: str
    fix: str


@dataclass(frozen=True, repr=False)
class RulesReport(Report, kind="rules"):
    """Explanations of findings."""

    rules: tuple[RuleInfo, ...]

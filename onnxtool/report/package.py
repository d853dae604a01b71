"""What packaging a model gives."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report
from onnxtool.report.certificate import Verdict
from onnxtool.report.compare import TensorDifference


@dataclass(frozen=True)
class Started:
    """How a package was run to be proven.

    Attributes:
        how: in words: "uvicorn in the present interpreter", "Chromium 120".
        complete: False when only a part could be run here (the file without the server that takes it).
    """

    how: str
    complete: bool = True


@dataclass(frozen=True)
class PackageProof:
    """A package's answers beside those of the file.

    Attributes:
        started: how it was run.
        runs: how many inputs.
        outputs: how far each output is apart.
        equal: by the rule of `compare`.
        verdict: in the words of `compare`.
    """

    started: Started
    runs: int
    outputs: tuple[TensorDifference, ...]
    equal: bool
    verdict: Verdict


@dataclass(frozen=True)
class WrittenPackage:
    """One folder.

    Attributes:
        kind: for what.
        folder: where.
        files: their paths in the folder.
        bytes: of all files.
        proof: that it gives the file's answers.
        commands: what its README says to type.
    """

    kind: str
    folder: str
    files: tuple[str, ...]
    bytes: int
    proof: PackageProof
    commands: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class PackageReport(Report, kind="package"):
    """A model and the folders that run it.

    Attributes:
        model: the file.
        packages: one for each kind.
        workers, threads: processes, and threads of a run in each, that gave the best throughput here.
        warnings: what was not proven, and why.
    """

    model: str
    packages: tuple[WrittenPackage, ...]
    workers: int
    threads: int
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when every package gives the file's answers."""
        return all(p.proof.equal for p in self.packages)

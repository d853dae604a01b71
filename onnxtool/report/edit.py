"""What editing a model gives."""

from __future__ import annotations

from dataclasses import dataclass

from onnxtool.report.base import Report, TensorInfo
from onnxtool.report.certificate import Verdict, suffices
from onnxtool.report.diff import Change
from onnxtool.report.proof import Assumption


@dataclass(frozen=True)
class OperationSummary:
    """One operation, as `--list-operations` shows it.

    Attributes:
        name: the option's name without its dashes.
        value: what it takes; empty for a flag.
        description: one line.
        origin: "onnxtool", or the package that added it through the entry points "onnxtool.edits".
    """

    name: str
    value: str
    description: str
    origin: str = "onnxtool"


@dataclass(frozen=True, repr=False)
class OperationListReport(Report, kind="operations"):
    """All operations of `edit`."""

    operations: tuple[OperationSummary, ...]


@dataclass(frozen=True)
class Proof:
    """How it was shown that an operation did what it should and nothing else.

    Attributes:
        claim: what holds, in one sentence.
        runs: how often the two models were run beside each other; 0 where the graphs themselves were compared.
        exact: True when every output was equal to the last bit.
        max_abs: largest absolute difference of a float output; 0 when exact.
        unproven: what this does not show; empty when there is nothing to say.
        compared: False where the models were only run, because what they give is random; `unproven` names the outputs.
        certified: both are the same real function by exact arithmetic, or the same graph with the same weights.
    """

    claim: str
    runs: int = 0
    exact: bool = True
    max_abs: float = 0.0
    unproven: str = ""
    compared: bool = True
    certified: bool = False


@dataclass(frozen=True)
class EditStep:
    """One operation that was applied.

    Attributes:
        operation: its name ("set-shape").
        value: what it was given.
        done: what it changed, in a few words.
        proof: None when none was asked for.
        assumptions: what it takes for granted, and whether a run has shown it.
    """

    operation: str
    value: str
    done: str
    proof: Proof | None
    assumptions: tuple[Assumption, ...] = ()


@dataclass(frozen=True, repr=False)
class EditReport(Report, kind="edit"):
    """What editing did. A proof that fails is an error, and nothing is written.

    Attributes:
        source: the file that was read.
        output: the file that was written; None for a dry run.
        inputs: the result's inputs.
        outputs: the result's outputs.
        steps: the operations, in the order given.
        bytes_before: size of the source on disk, external data included.
        bytes_after: size of the result.
        changes: what differs from the source, as `diff` shows it; None unless it was a dry run.
        warnings: one line each.
        require: the verdict that is good: "tested", or nothing less than "certified".
        verdict: of the weakest proof: "certified", "tested", or "not tested" where one was left out or only ran.
    """

    source: str
    output: str | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    steps: tuple[EditStep, ...]
    bytes_before: int
    bytes_after: int
    changes: tuple[Change, ...] | None = None
    warnings: tuple[str, ...] = ()
    require: str = "tested"
    verdict: Verdict = "not tested"

    @property
    def ok(self) -> bool:
        """True when nothing is assumed that no run has shown, and the verdict is as required."""
        return not self.unproven and suffices(self.verdict, self.require)

    @property
    def unproven(self) -> tuple[Assumption, ...]:
        """What is assumed, and no run has shown."""
        return tuple(a for step in self.steps for a in step.assumptions if not a.holds)

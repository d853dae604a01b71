"""Judges a candidate on inputs beyond the usual ones, and changes these towards a larger difference."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxtool.equality.equivalence_check import match_names
from onnxtool.equality.reference import Reference
from onnxtool.equality.rule.difference import repeats
from onnxtool.equality.rule.masked import kept_positions
from onnxtool.equality.rule.movement import movements
from onnxtool.equality.rule.noise import rounding_explains
from onnxtool.equality.rule.non_finite import finite_in_one
from onnxtool.equality.trials.observe import Observed
from onnxtool.equality.trials.trial import EXACTLY, Budget, Trial, count_elements
from onnxtool.errors import InputError, OnnxToolError, ResourceError, UsageError
from onnxtool.model.io import check_output
from onnxtool.model.spec import TensorSpec
from onnxtool.options.shared import Effort
from onnxtool.report.compare import CompareReport
from onnxtool.report.proof import Branch, Counterexample, Coverage, TrialKind
from onnxtool.runtime.feeds import Feeds, flatten
from onnxtool.runtime.runner import Runner

FAILS = " (there it fails)"  # how what is said of an input ends that the candidate does not take
_LAST_BITS = 2.0**-20  # of the largest number of an output: 8 units in the last place
# The comparison on one trial; of positions that a mask lets through only, where these are given (KeptPositions).
Judge = Callable[[Trial, np.ndarray | None], CompareReport]


@dataclass
class Findings:
    """What looking for a counterexample gave.

    Attributes:
        observed: what the reference gave.
        specs: its inputs.
        limits: kinds of inputs on which a difference is said and no failure.
        said: labels of such differences.
        failure: an input on which the candidate differs, or fails to run.
        report: the comparison there; None where the candidate fails to run.
        error: why it fails to run.
        rounding: labels of differences that rounding explains.
        masked: labels of inputs on which only positions differ that a mask leaves out.
        searched: inputs were changed towards a larger difference.
        unreached: branches that no input ran.
        parts: branches that there are.
        informed: outputs of which some input told something.
        certified: both models are the same real function, so that they can differ by rounding alone.
    """

    observed: Observed
    specs: Sequence[TensorSpec] = ()
    limits: Sequence[str] = ()
    said: list[str] = field(default_factory=list)
    failure: Trial | None = None
    report: CompareReport | None = None
    error: str = ""
    rounding: list[str] = field(default_factory=list)
    masked: list[str] = field(default_factory=list)
    searched: bool = False
    unreached: tuple[Branch, ...] = ()
    parts: int = 0
    informed: set[str] = field(default_factory=set)
    certified: bool = False

    def counterexample(self, file: str | None = None) -> Counterexample | None:
        """For the report."""
        if self.failure is None:
            return None
        shapes = {name: tuple(np.shape(a)) for name, a in self.failure.feeds.items()}
        return Counterexample(self.failure.label, self.failure.kind, shapes, file)

    def coverage(self, effort: Effort, seed: int) -> Coverage:
        """For the report."""
        seen = self.observed
        return Coverage(
            effort=effort,
            inputs=dict(Counter(t.kind for t in seen.trials)),
            tried=tuple(t.label for t in seen.trials),
            refused=tuple(seen.refused),
            unusable=tuple(seen.unusable),
            rounding=tuple(self.rounding),
            masked=tuple(self.masked),
            limits=tuple(self.said),
            parts=self.parts,
            unreached=self.unreached,
            searched=self.searched,
            complete=not seen.untried,
            seed=seed,
        )


def judge_trials(
    trials: Sequence[Trial], judge: Judge, reference: Reference | None, candidate: Runner | None, into: Findings
) -> None:
    """Judge a candidate on trials, up to the first that it fails.

    Args:
        trials: with the reference's outputs.
        judge: the comparison on one trial; raises InputError where the candidate fails to run.
        reference: to measure what rounding does where they differ; None when it is no longer there.
        candidate: likewise.
        into: findings that are added to.
    """
    for trial in trials:
        try:
            report = judge(trial, None)
        except UsageError:
            raise
        except OnnxToolError as error:
            if trial.kind.may_fail:
                into.said.append(f"{trial.label}{FAILS}")
                continue
            into.failure, into.report, into.error = trial, None, str(error)
            return
        if not report.differs:
            into.informed |= {o.name for o in report.outputs if not o.untested}
            continue
        if trial.kind == TrialKind.MISSING_BROKEN:
            if (
                TrialKind.MISSING not in into.limits
                and candidate is not None
                and _finite_in_one(trial, reference, candidate)
            ):
                into.said.append(trial.label)
            continue
        if trial.kind == TrialKind.EMPTY and _are_empty(trial, report):
            into.said.append(trial.label)  # nothing but another shape of nothing
            continue
        if trial.kind in into.limits or trial.kind.report_only:
            by_rounding = trial.kind == TrialKind.EXTREME_VALUES and _excused(
                trial, report, reference, candidate, into.certified
            )
            (into.rounding if by_rounding else into.said).append(trial.label)
            continue
        if _only_at_masked(trial, judge, into.specs):
            into.masked.append(trial.label)
            continue
        if _excused(trial, report, reference, candidate, into.certified):
            into.rounding.append(trial.label)
            continue
        if trial.kind == TrialKind.BROKEN:
            into.said.append(f"{trial.label} (there {report.a} gives NaN or infinity)")
            continue
        if reference is not None and not _repeats(trial, report, reference):
            into.said.append(f"{trial.label} (there {report.a} gives other numbers each time)")
            continue
        into.failure, into.report = trial, report
        return


def _are_empty(trial: Trial, report: CompareReport) -> bool:
    """Whether the outputs that differ have no elements."""
    known = flatten(trial.outputs)
    return all(np.size(known.get(o.name, 0)) == 0 for o in report.outputs if not o.ok)


def _repeats(trial: Trial, report: CompareReport, reference: Reference) -> bool:
    """Whether the outputs that differ come out the same again; kernels read beyond their inputs at odd sizes."""
    known, again = flatten(trial.outputs), flatten(reference.runner.run(trial.feeds))
    steady = reference.repeats(trial.feeds)
    differing = [o.name for o in report.outputs if not o.ok]
    return all(steady.get(n, True) and repeats(known.get(n), again.get(n)) for n in differing)


def _finite_in_one(trial: Trial, reference: Reference | None, candidate: Runner) -> bool:
    feeds = trial.feeds if reference is None else renamed(trial.feeds, reference, candidate)
    return finite_in_one(trial.outputs, candidate.run(feeds))


def _only_at_masked(trial: Trial, judge: Judge, specs: Sequence[TensorSpec]) -> bool:
    kept = kept_positions(specs, trial.feeds)
    return kept is not None and bool(kept.any() and not kept.all()) and not judge(trial, kept).differs


def _is_last_bits(trial: Trial, report: CompareReport) -> bool:
    """Whether an output is off by a few last bits of its largest number, or an input's: a sum that cancels, no step."""
    known = flatten(trial.outputs)
    given = max((float(np.abs(a).max(initial=0.0)) for a in trial.feeds.values() if a.dtype.kind == "f"), default=0.0)
    for output in (o for o in report.outputs if not o.ok):
        values = np.asarray(known.get(output.name, ()))
        if values.dtype != np.float32 or not np.isfinite(values).all():
            return False
        if not output.max_abs <= _LAST_BITS * np.abs(values).max(initial=given):
            return False
    return True


def _excused(
    trial: Trial,
    report: CompareReport,
    reference: Reference | None,
    candidate: Runner | None,
    certified: bool = False,
) -> bool:
    """Whether rounding explains the difference; shapes and types it never does."""
    if reference is None or candidate is None or any(o.note or o.given for o in report.outputs if not o.ok):
        return False
    # Frameworks that compute in doubles have their thresholds a step apart from the file's.
    apart = trial.label.startswith(EXACTLY) and reference.in_doubles
    if certified and _is_last_bits(trial, report):  # what cancels in one model leaves a last bit in the other
        return True
    if trial.kind.is_exact and not (certified or apart or _is_last_bits(trial, report)):
        return False
    names = {o.name: o.other_name or o.name for o in report.outputs}
    run = run_as_reference(reference, candidate)

    def named(feeds: Feeds) -> dict[str, Any]:
        found = flatten(run(feeds))
        return {own: found.get(other) for own, other in names.items()}

    return rounding_explains(reference.run, named, trial, certified=certified, usual=reference.scales)


def search_starts(findings: Findings, runs: Sequence[Feeds]) -> list[Feeds]:
    """Inputs from which a search may go on: the usual ones, and trials of usual kinds and sizes.

    Large batches are as likely to meet a threshold by a rounding error as they are large.
    """
    most = max(count_elements(r) for r in runs)
    apart = (TrialKind.SIZE, TrialKind.EMPTY, TrialKind.MISSING, TrialKind.MISSING_ROWS, *findings.limits)
    usual = [t for t in findings.observed.trials if t.kind not in apart and not t.kind.report_only]
    return [*runs, *(t.feeds for t in usual if count_elements(t.feeds) <= most)]


def fails(trial: Trial, judge: Judge, reference: Reference, candidate: Runner) -> bool:
    """Whether the candidate differs there, and nothing excuses it."""
    try:
        report = judge(trial, None)
    except OnnxToolError:
        return True
    if not report.differs or _only_at_masked(trial, judge, reference.inputs):
        return False
    return not _excused(trial, report, reference, candidate)


def minimise_failure(
    reference: Reference, candidate: Runner, specs: Sequence[TensorSpec], judge: Judge, findings: Findings
) -> None:
    """Make the failure smaller, where that is quick."""
    if findings.failure is None:
        return
    budget = Budget("quick")
    smaller = minimised(findings.failure, reference, specs, lambda t: fails(t, judge, reference, candidate), budget)
    if smaller is not findings.failure:
        again = Findings(findings.observed, specs)
        judge_trials([smaller], judge, reference, candidate, again)
        if again.failure is not None:
            findings.failure, findings.report, findings.error = again.failure, again.report, again.error


def run_as_reference(reference: Runner, candidate: Runner) -> Callable[[Feeds], Mapping[str, Any]]:
    """The candidate on inputs that bear the reference's names."""
    return lambda feeds: candidate.run(renamed(feeds, reference, candidate))


def renamed(feeds: Mapping[str, Any], reference: Runner, candidate: Runner) -> Feeds:
    """Feeds in the candidate's names: by name, or by position where the names share nothing."""
    theirs = [s.name for s in candidate.inputs]
    if set(theirs) <= set(feeds):
        return {name: feeds[name] for name in theirs}
    names = match_names([s.name for s in reference.inputs], theirs, "inputs")
    return {new: feeds[own] for own, new in names.items()}


class CandidateFailsError(InputError):
    """The candidate does not run on an input that the reference takes."""


def with_findings(report: CompareReport, findings: Findings, coverage: Coverage, file: str | None) -> CompareReport:
    """A comparison on the usual inputs, and what was found beyond them, as one report.

    Raises:
        CandidateFailsError: the candidate fails to run on an input that the reference takes.
    """
    found = findings.counterexample(file)
    if findings.failure is not None and findings.report is None:
        raise CandidateFailsError(f"with {findings.failure.label}: {findings.error}")
    if found is None or findings.report is None:
        seen = findings.informed
        moved = {name for name, m in movements(t.outputs for t in findings.observed.trials).items() if m.found}
        seen = {o.name for o in report.outputs if o.name in seen and (o.untested != "constant" or o.name in moved)}
        outputs = tuple(replace(o, untested="") if o.name in seen else o for o in report.outputs)
        return replace(report, outputs=outputs, coverage=coverage)
    outputs = tuple(replace(o, worst_run=len(report.runs)) for o in findings.report.outputs)
    return replace(report, outputs=outputs, runs=(*report.runs, found.shapes), coverage=coverage, counterexample=found)


_ROWS = 16  # single rows that are tried


def minimised(
    trial: Trial, reference: Runner, specs: Sequence[TensorSpec], fails: Callable[[Trial], bool], budget: Budget
) -> Trial:
    """The smallest input found on which the two models still differ.

    Args:
        trial: an input on which they do.
        reference: run on each smaller input.
        specs: the inputs.
        fails: whether the other model differs there.
        budget: how long this may take.
    """

    def still(feeds: Feeds) -> Trial | None:
        if budget.left <= 0:
            return None
        try:
            smaller = replace(trial, feeds=feeds, outputs=reference.run(feeds))
        except OnnxToolError:
            return None
        return smaller if fails(smaller) else None

    batched = [s.name for s in specs if s.shape and not isinstance(s.shape[0], int)]
    rows = {len(trial.feeds[name]) for name in batched}
    if len(rows) == 1 and (count := rows.pop()) > 1 and not trial.label.startswith("batch"):
        for row in range(min(count, _ROWS)):
            one = {n: a[row : row + 1] if n in batched else a for n, a in trial.feeds.items()}
            found = still(one)
            if found is not None:
                trial = found
                break
    for name, array in list(trial.feeds.items()):
        if array.dtype.kind != "f" or array.size < 2:
            continue
        trial = _fewer_values(trial, name, still)
    return trial


def _fewer_values(trial: Trial, name: str, still: Callable[[Feeds], Trial | None]) -> Trial:
    """Set parts of an input to zero, in ever smaller blocks, as long as the difference stays.

    Source: Zeller and Hildebrandt 2002, "Simplifying and isolating failure-inducing input", section 3.
    """
    size = trial.feeds[name].size
    block = max(1, size // 2)
    for _ in range(4):
        for start in range(0, size, block):
            array = trial.feeds[name].copy()
            flat = array.reshape(-1)
            if not flat[start : start + block].any():
                continue
            flat[start : start + block] = 0
            found = still({**trial.feeds, name: array})
            if found is not None:
                trial = found
        if block == 1:
            break
        block = max(1, block // 4)
    return trial


def keep(trial: Trial, path: str | os.PathLike[str]) -> str:
    """Write the inputs as an .npz file that --data and --sample take, with the reference's outputs as `expected.NAME`.

    Raises:
        ResourceError: the file cannot be written.
    """
    target = Path(path)
    check_output(target)
    expected = {f"expected.{name}": np.asarray(value) for name, value in flatten(trial.outputs).items()}
    arrays = {**trial.feeds, **expected}
    plain = {n: a.astype(str) if a.dtype.kind == "O" else a for n, a in arrays.items()}
    try:
        with target.open("wb") as file:
            np.savez(file, **plain)  # type: ignore[arg-type]
    except OSError as error:
        raise ResourceError(f"{target}: cannot be written ({error.strerror or error}).") from error
    return str(target)

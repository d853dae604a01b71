"""`compare` beyond the usual inputs: a search for one on which the two models differ."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.described_runner import known_domains
from onnxtool.equality.equivalence_check import Evidence
from onnxtool.equality.rule.masked import Kept, KeptPositions
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.equality.search.counterexample import SAID, Findings, hold, look, shrink, with_findings
from onnxtool.equality.search.save_counterexample import keep
from onnxtool.equality.trials.graph_hints import Facts
from onnxtool.equality.trials.graph_trials import (
    facts_of,
    force_branches,
    reach_conditions,
    unreached_branches,
    unreached_outcomes,
    watch_branches,
)
from onnxtool.equality.trials.trial import EMPTY, Budget, Feeds, Trial
from onnxtool.model import io
from onnxtool.model.domains import Domain
from onnxtool.model.spec import distinct_dims
from onnxtool.options.shared import Effort
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.runner import Runner
from onnxtool.runtime.session.session import SessionOptions

Model = str | os.PathLike[str] | Runner


@dataclass(frozen=True)
class Rule:
    """How a comparison judges.

    Attributes:
        tolerance: for floats.
        tolerances: for single outputs.
        names: of the two models, for reports.
        top_k: how many largest elements are held against each other.
        evidence: what is known of the reference.
    """

    tolerance: Tolerance
    tolerances: Mapping[str, Tolerance] | None
    names: tuple[str, str]
    top_k: int
    evidence: Evidence

    def __call__(self, a: Runner, b: Runner, trial: Trial, kept: Kept | None = None) -> CompareReport:
        """The comparison on one trial, whose outputs of `a` are known; only at `kept` positions, where given."""
        known = _Known(a, trial)
        return compare_runners(
            known if kept is None else KeptPositions(known, kept),
            b if kept is None else KeptPositions(b, kept),
            [trial.feeds],
            self.tolerance,
            self.evidence if kept is None else replace(self.evidence, noise=None),
            names=self.names,
            data=trial.label,
            tolerances=self.tolerances,
            top_k=self.top_k,
        )


class _Known:
    """A runner whose outputs for one trial are known."""

    def __init__(self, runner: Runner, trial: Trial) -> None:
        self.inputs, self.outputs, self._runner, self._trial = runner.inputs, runner.outputs, runner, trial

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The trial's outputs for its own feeds."""
        return dict(self._trial.outputs) if feeds is self._trial.feeds else self._runner.run(feeds)


def compare_beyond(
    report: CompareReport,
    models: tuple[tuple[Model, Runner], tuple[Model, Runner]],
    runs: Sequence[Feeds],
    rule: Rule,
    options: SessionOptions,
    *,
    effort: Effort,
    usual: float,
    seed: int,
    keep_as: str | os.PathLike[str] | None,
    sizes: bool,
) -> tuple[CompareReport, list[Feeds]]:
    """Go on after two models were found equal on the usual inputs.

    Args:
        report: of the usual inputs.
        models: what was given, and its runner.
        runs: the usual inputs.
        rule: how differences are judged.
        options: how graphs are run.
        effort: how much is tried.
        usual: seconds that the usual inputs took.
        seed: of random numbers.
        keep_as: where a counterexample goes.
        sizes: whether dynamic dims may have other sizes.

    Returns:
        The report with what was found, and the inputs with that of the counterexample at the end.

    Raises:
        InputError: the second model fails to run where the first runs.
    """
    left, right = models[0][1], models[1][1]
    specs = distinct_dims(left.inputs)
    names = rule.names if rule.names[0] != rule.names[1] else ("A", "B")
    graphs = {n: io.load(m) for n, (m, _) in zip(names, models, strict=True) if not isinstance(m, Runner)}
    known: dict[str, Domain] = {}
    for model, _ in models:
        if isinstance(model, Runner):
            known = {**known, **known_domains(model)}
    facts = facts_of(list(graphs.values()), known)
    budget = Budget(effort, usual)
    judge = partial(rule, left, right)
    findings = look(left, right, specs, runs, facts, judge, budget, seed=seed, sizes=sizes)
    if findings.failure is None and graphs:
        _branches(findings, graphs, left, right, runs, rule, Budget(effort, usual), options, facts, seed)
    file = None
    if findings.failure is not None and keep_as is not None:
        file = keep(findings.failure, keep_as)
    done = with_findings(report, findings, findings.coverage(effort, seed), file)
    lines = done.coverage.notes if done.coverage is not None and findings.failure is None else ()
    extra = [dict(findings.failure.feeds)] if findings.failure is not None else []
    return replace(done, warnings=(*done.warnings, *lines)), [*runs, *extra]


def _branches(
    findings: Findings,
    graphs: Mapping[str, ir.Model],
    left: Runner,
    right: Runner,
    runs: Sequence[Feeds],
    rule: Rule,
    budget: Budget,
    options: SessionOptions,
    facts: Facts,
    seed: int,
) -> None:
    specs = distinct_dims(left.inputs)
    tried = [*runs, *(t.feeds for t in findings.observed.trials if t.kind not in (EMPTY, *SAID))]
    trials, missed = reach_conditions(graphs, left, specs, tried, facts, budget.part(0.5), options, seed=seed)
    findings.observed.trials += trials
    hold(trials, partial(rule, left, right), left, right, findings)
    if findings.failure is not None:
        shrink(left, right, specs, partial(rule, left, right), findings)
        return
    tried += [t.feeds for t in trials]
    trials, unreached, findings.parts = watch_branches(graphs, left, specs, tried, facts, budget, options, seed=seed)
    findings.observed.trials += trials
    hold(trials, partial(rule, left, right), left, right, findings)
    if findings.failure is None and len(graphs) == 2:
        first, second = graphs.values()
        # What rounding does to a model says nothing of a copy in which other branches run.
        plain = replace(rule, evidence=replace(rule.evidence, noise=None, ties=None))
        forced = force_branches(
            first,
            second,
            unreached.get(next(iter(graphs)), []),
            runs,
            lambda x, y, feeds: plain(x, y, Trial("", "branch", feeds, x.run(feeds))),
            options,
            findings,
        )
        findings.forced = len(forced)
    conditions = unreached_outcomes(missed, graphs)
    findings.unreached = (*unreached_branches(unreached), *conditions)
    findings.parts += len(conditions)

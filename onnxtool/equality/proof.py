"""The one place that says "same": candidates judged beside a reference, on the usual inputs and far beyond them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.reference import Answered, Answers, Reference
from onnxtool.equality.rule.masked import KeptPositions
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.search.counterexample import (
    Findings,
    fails,
    judge_trials,
    keep,
    minimise_failure,
    run_as_reference,
    search_starts,
    with_findings,
)
from onnxtool.equality.search.difference import search
from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.graph_trials import reach_conditions, unreached_parts
from onnxtool.equality.trials.observe import Observed, both_sides, observe
from onnxtool.equality.trials.trial import Budget, Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.spec import TensorSpec, distinct_dims
from onnxtool.options.shared import Effort
from onnxtool.report.compare import CompareReport
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds, random_feeds
from onnxtool.runtime.runner import Runner
from onnxtool.runtime.session.session import SessionOptions

_STARTS = 6  # inputs from which a search begins
_OBSERVING = 0.45  # share of the time in which the reference runs on further inputs


@dataclass(frozen=True)
class Search:
    """How far beyond the usual inputs a proof goes.

    Attributes:
        effort: how long.
        seed: of random numbers.
        usual: seconds that the usual inputs took, which is what the proof costs anyway.
        sizes: dynamic dims may have other sizes.
        branches: share of the time for branches that no input has reached; 0 for none.
        difference: share of the time for changing inputs towards a larger difference; 0 for none.
        masked: positions that a mask leaves out may differ.
        strict: branches that no input reached make the verdict bad.
        keep_as: where a counterexample goes.
    """

    effort: Effort = "normal"
    seed: int = 0
    usual: float = 0.0
    sizes: bool = True
    branches: float = 1.0
    difference: float = 1.0
    masked: bool = True
    strict: bool = False
    keep_as: str | os.PathLike[str] | None = None


@dataclass
class Proof:
    """Judges candidates beside one reference, which runs once on each input however many there are.

    Attributes:
        reference: what is right.
        usual: the usual inputs, with its outputs; it runs on those that have none.
        rule: how differences are judged.
        search: how far the proof goes beyond them; None for not at all.
        facts: what the graphs, and the code that they come from, tell of the inputs.
        limits: kinds of inputs on which a difference is said and no failure.
        varying: outputs that depend on what is drawn at random.
        origin: where the usual inputs came from, for the report.
        specs: of the inputs, where more is known of their dims than the reference tells.
        stays: the reference can run while candidates are judged.
        prepare: what becomes of an input before the reference runs on it.
        observed: what it gave on further inputs; None before `observe`.
        findings: of the last candidate that was judged beyond the usual inputs.
        certified: the candidate is the same real function, so that it can differ by rounding alone.
        relaxed: floats are no longer held to equal bits, because the reference itself gives others each time.
    """

    reference: Reference
    usual: Sequence[Answered]
    rule: Rule = field(default_factory=Rule)
    search: Search | None = None
    facts: GraphHints = field(default_factory=GraphHints)
    limits: Sequence[str] = ()
    varying: Collection[str] = ()
    origin: str = "given feeds"
    specs: Sequence[TensorSpec] = ()
    stays: bool = True
    prepare: Callable[[Feeds], Feeds] = dict
    observed: Observed | None = None
    findings: Findings = field(default_factory=lambda: Findings(Observed()))
    relaxed: bool = False
    certified: bool = False

    def observe(self) -> Observed:
        """Run the reference on further inputs, as far as it takes them and the time allows; the first time only."""
        if self.observed is None:
            search = self.search or Search()
            self.observed = observe(
                self.reference.runner,
                self._specs,
                [p.feeds for p in self.usual],
                self.facts,
                Budget(search.effort, search.usual).part(_OBSERVING),
                seed=search.seed,
                sizes=search.sizes,
                only=None if self.stays else [kind for kind in TrialKind if kind.without_source],
                prepare=self.prepare,
            )
        return self.observed

    def try_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Add an input of given shapes to the further ones, if the reference takes it.

        Args:
            shapes: of all inputs, by name.
        """
        specs = [replace(spec, shape=shapes.get(spec.name, spec.shape)) for spec in self.reference.inputs]
        seed = (self.search or Search()).seed
        label = "sizes at which exact arithmetic tells them apart"
        for drawn in both_sides(specs, random_feeds(specs, seed, domains=self.facts.domains)):
            self.try_inputs(label, TrialKind.SIZE, drawn)

    def try_inputs(self, label: str, kind: TrialKind, feeds: Feeds) -> None:
        """Add an input to the further ones, if the reference takes it."""
        feeds = self.prepare(feeds)
        with suppress(OnnxToolError):
            self.observe().trials.insert(0, Trial(label, kind, feeds, self.reference.run(feeds)))

    def judge(
        self,
        candidate: Runner,
        graphs: Mapping[str, ir.Model] | None = None,
        session: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
    ) -> CompareReport:
        """What a candidate gives beside the reference: on the usual inputs, then beyond them while nothing differs.

        Args:
            candidate: what is judged.
            graphs: by the names of their models in reports; their branches are watched.
            session: how they are run.

        Raises:
            InputError: the candidate fails to run where the reference runs.
        """
        report = self.judge_usual(candidate)
        if report.differs and self._relax():
            report = self.judge_usual(candidate)
        if self.search is None or report.differs:
            return report
        return self.judge_beyond(report, candidate, graphs, session)

    def judge_beyond(
        self,
        report: CompareReport,
        candidate: Runner,
        graphs: Mapping[str, ir.Model] | None = None,
        session: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
    ) -> CompareReport:
        """Go on where nothing differs on the usual inputs; arguments and errors as of `judge`.

        Args:
            report: of the usual inputs.
        """
        findings = self._judge_further(candidate, graphs or {}, session)
        if findings.failure is not None and self._relax(findings.failure.feeds):
            return self.judge(candidate, graphs, session)
        return self._with_findings(report)

    def _with_findings(self, report: CompareReport) -> CompareReport:
        search, findings, file = self.search or Search(), self.findings, None
        if findings.failure is not None and search.keep_as is not None:
            file = keep(findings.failure, search.keep_as)
        coverage = findings.coverage(search.effort, search.seed)
        return replace(with_findings(report, findings, coverage, file), strict=search.strict)

    def judge_usual(self, candidate: Runner) -> CompareReport:
        """On the usual inputs alone."""
        known = self.reference.remembering([p for p in self.usual if p.outputs])
        return self._compare(known, candidate, [p.feeds for p in self.usual])

    @property
    def tried(self) -> list[Feeds]:
        """All inputs that the reference was given, those that it refused included."""
        seen = self.observe()
        return [*(p.feeds for p in self.usual), *(t.feeds for t in seen.trials), *seen.attempted]

    @property
    def _specs(self) -> Sequence[TensorSpec]:
        return self.specs or distinct_dims(self.reference.inputs)

    @property
    def _live(self) -> Reference | None:
        """What measures rounding where outputs differ; None where nothing may be put down to it."""
        return self.reference if self.stays and self.rule.excuses else None

    def _relax(self, feeds: Feeds | None = None) -> bool:
        """No longer ask for equal bits, where the reference gives others when it runs again.

        Kernels on many threads may add in any order.

        Args:
            feeds: what it is run on; the usual inputs unless given.
        """
        if not self.rule.is_exact or not self.stays:
            return False
        runs = [p.feeds for p in self.usual] if feeds is None else [feeds]
        if all(all(self.reference.repeats(f, self.rule.tolerance).values()) for f in runs):
            return False
        return self.relax()

    def relax(self) -> bool:
        """No longer ask for equal numbers; False where that was not asked for anyway."""
        asked, self.rule = self.rule.is_exact, self.rule.relaxed()
        self.relaxed = self.relaxed or asked
        return asked

    def _compare(self, reference: Reference, candidate: Runner, runs: Sequence[Feeds], data: str = "") -> CompareReport:
        rule = self.rule
        return compare_runners(
            reference,
            candidate,
            runs,
            rule.tolerance,
            names=rule.names,
            data=data or self.origin,
            tolerances=rule.tolerances,
            top_k=rule.top_k,
            varying=self.varying,
        )

    def _on_trial(self, candidate: Runner, trial: Trial, kept: np.ndarray | None) -> CompareReport:
        report = self._on_input(candidate, trial, kept)
        if not report.differs or not self.stays:
            return report
        # A search changes inputs without that: what differs is judged as it is prepared.
        feeds = self.prepare(trial.feeds)
        if all(feeds[name] is array for name, array in trial.feeds.items()):
            return report
        return self._on_input(candidate, replace(trial, feeds=feeds, outputs=self.reference.run(feeds)), kept)

    def _on_input(self, candidate: Runner, trial: Trial, kept: np.ndarray | None) -> CompareReport:
        known = self.reference.remembering([trial])
        if kept is None:
            return self._compare(known, candidate, [trial.feeds], trial.label)
        seen = self.reference.seen_through(KeptPositions(known, kept))
        return self._compare(seen, KeptPositions(candidate, kept), [trial.feeds], trial.label)

    def _judge_further(
        self,
        candidate: Runner,
        graphs: Mapping[str, ir.Model],
        session: SessionOptions,
    ) -> Findings:
        search, observed = self.search or Search(), self.observe()
        specs = self._specs if search.masked else ()
        limits = (*self.limits, *self.facts.unspecified)
        findings = self.findings = Findings(
            replace(observed, trials=list(observed.trials)), specs, limits, certified=self.certified
        )
        judge = partial(self._on_trial, candidate)
        judge_trials([*observed.trials, *observed.broken], judge, self._live, candidate, findings)
        if findings.failure is None and graphs and search.branches:
            self._branches(candidate, graphs, session, findings)
        if self._live is None or not search.difference:
            return findings
        if findings.failure is None:
            self._search(candidate, self._live, findings)
        minimise_failure(self._live, candidate, self._specs, judge, findings)
        return findings

    def _search(self, candidate: Runner, source: Reference, findings: Findings) -> None:
        """Change inputs towards a larger difference; a failure goes into `findings`."""
        options = self.search or Search()
        budget = Budget(options.effort, options.usual).part(options.difference)
        if budget.left <= 0:
            return
        findings.searched = True
        judge = partial(self._on_trial, candidate)
        starts = search_starts(findings, [p.feeds for p in self.usual])[:_STARTS]
        found = search(
            source.run,
            run_as_reference(source, candidate),
            self._specs,
            starts,
            self.facts,
            budget,
            partial(fails, judge=judge, reference=source, candidate=candidate),
            seed=options.seed,
        )
        if found is not None:
            judge_trials([found], judge, source, candidate, findings)

    def _branches(
        self, candidate: Runner, graphs: Mapping[str, ir.Model], session: SessionOptions, findings: Findings
    ) -> None:
        """Inputs that take other branches of the graphs."""
        search = self.search or Search()
        runs = [p.feeds for p in self.usual]
        # What is reached where a difference is only said has not been judged.
        judged = [t for t in findings.observed.trials if t.kind.is_like_usual and t.kind not in findings.limits]
        tried = [*runs, *(t.feeds for t in judged)]
        budget = Budget(search.effort, search.usual).part(search.branches)
        judge = partial(self._on_trial, candidate)
        trials, missed, findings.parts = reach_conditions(
            graphs,
            self.reference if self.stays else None,
            self._specs,
            tried,
            self.facts,
            budget,
            session,
            seed=search.seed,
        )
        findings.observed.trials += trials
        judge_trials(trials, judge, self._live, candidate, findings)
        findings.unreached = unreached_parts(missed, graphs)
        branches = sum(bool(o.branch) for outcomes in missed.values() for o in outcomes)
        findings.parts += len(findings.unreached) - branches


def judge_outputs(candidate: Runner, known: Sequence[Answered], rule: Rule) -> CompareReport:
    """Hold a model against outputs that are right.

    Args:
        candidate: what is judged.
        known: its inputs, and the outputs that are right.
        rule: how differences are judged; nothing is known of where the outputs come from, so nothing is excused.

    Raises:
        InputError: it does not run on one of the inputs, or has other outputs.
    """
    return Proof(Reference(Answers(candidate, known, gone=True)), known, rule).judge_usual(candidate)

"""The proof beyond the usual inputs: other sizes, values and branches, and a last search while the source is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.source_code import read_code
from onnxtool.equality.compare_runners import compare_runners
from onnxtool.equality.equivalence_check import Evidence
from onnxtool.equality.rule.masked import Kept, KeptPositions
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.equality.search.counterexample import SAID, Findings, Judge, climb, hold, shrink, with_findings
from onnxtool.equality.search.difference import apart
from onnxtool.equality.search.save_counterexample import keep
from onnxtool.equality.trials.graph_hints import Facts
from onnxtool.equality.trials.graph_trials import facts_of, reach_conditions, unreached_branches, watch_branches
from onnxtool.equality.trials.observe import Observed, observe
from onnxtool.equality.trials.trial import EMPTY, Budget, Feeds, Trial
from onnxtool.errors import OnnxToolError, UnsupportedError
from onnxtool.options.convert import ConvertOptions
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions

# Kinds on which a difference needs no second run of the source to be judged.
_WITHOUT_SOURCE = ("size", "mask", "empty mask", "rows", "text")


class FurtherInputs:
    """Runs the source on further inputs, and holds graphs against what it gave.

    Attributes:
        findings: of the last graph.
    """

    def __init__(self, model: SourceModel, options: ConvertOptions, *, stays: bool) -> None:
        """Make ready.

        Args:
            model: the source, under supervision.
            options: effort, seed, where a counterexample goes.
            stays: the source can still be run while graphs are judged.
        """
        self._model, self._options, self._stays = model, options, stays
        self._facts = Facts()
        self._observed = Observed()
        self._runs: list[Feeds] = []
        self._usual = 0.0
        self.findings = Findings(self._observed)

    def observe(self, graph: ir.Model, runs: list[Feeds], seconds: float, first: Mapping[str, Any]) -> None:
        """Run the source on sizes and values that its graph and its code make worth trying.

        Args:
            graph: as the exporter left it.
            runs: the usual inputs, on which the source runs.
            seconds: that it took for them.
            first: what it gave for the first of them.

        Raises:
            UnsupportedError: it gives something else for the first now that it has run on others.
        """
        model = self._model
        code = read_code(lambda: model.run(runs[0]))
        if code.machine:
            model.notes.append(
                f"the model reads {' and '.join(code.machine[:3])}: the file keeps what it gave here and now"
            )
        facts = facts_of([graph], model.feeds_hint)
        self._facts = facts.told(
            [*model.compared_sizes, *code.sizes], [*model.compared_values, *code.values], programmed=code.own
        )
        self._runs, self._usual = runs, 2 * seconds
        budget = Budget(self._options.effort, self._usual)
        self._observed = observe(
            model,
            model.inputs,
            runs,
            self._facts,
            budget.part(0.45),
            seed=self._options.seed,
            only=None if self._stays else _WITHOUT_SOURCE,
            prepare=model.drop_tied_rows,
        )
        self._hold_steady(first)

    @property
    def tried(self) -> list[Feeds]:
        """All inputs that the source was given, those that it refused included."""
        return [*self._runs, *(t.feeds for t in self._observed.trials), *self._observed.attempted]

    def hold(
        self,
        report: CompareReport,
        graph: ir.Model,
        runner: OnnxRunner,
        rule: tuple[Tolerance, Evidence],
        session: SessionOptions,
    ) -> CompareReport:
        """Judge a graph that is equal on the usual inputs.

        Raises:
            InputError: it fails to run on an input that the source takes.
        """
        model, options = self._model, self._options
        reference = model if self._stays else None
        judge = _judge(model, runner, rule, (report.a, report.b))
        findings = self.findings = Findings(replace_trials(self._observed), model.inputs, self._limits())
        hold([*findings.observed.trials, *findings.observed.broken], judge, reference, runner, findings)
        if findings.failure is None:
            self._branches(graph, runner, judge, session)
        if findings.failure is None and self._stays:
            budget = Budget(options.effort, self._usual).part(0.4)
            climb(model, runner, model.inputs, self._runs, self._facts, judge, budget, findings, seed=options.seed)
        if self._stays:
            shrink(model, runner, model.inputs, judge, findings)
        file = None
        if findings.failure is not None and options.keep_counterexample is not None:
            file = keep(findings.failure, options.keep_counterexample)
        coverage = findings.coverage(options.effort, options.seed)
        return replace(with_findings(report, findings, coverage, file), strict=options.strict)

    def _limits(self) -> tuple[str, ...]:
        """Kinds of inputs on which a difference is said: of quantized models also those beyond their ranges."""
        beyond = ("missing", "missing rows", "values", "search") if self._model.rounding else ()
        return (*self._model.limits, *beyond, *self._facts.unspecified)

    def _hold_steady(self, first: Mapping[str, Any]) -> None:
        """The source once more on its first input: what it has run on since must not matter."""
        distance = apart(first, self._model.run(self._runs[0]))
        if distance > 1 and not any("random numbers" in note for note in self._model.notes):
            raise UnsupportedError(
                "the model gives another result for an input after it has run on others: it keeps state outside its "
                "buffers, or draws random numbers. An ONNX file cannot do that; make what it remembers an input and an "
                "output."
            )

    def _branches(self, graph: ir.Model, runner: OnnxRunner, judge: Judge, session: SessionOptions) -> None:
        findings, options = self.findings, self._options
        runs = [*self._runs, *(t.feeds for t in findings.observed.trials if t.kind not in (EMPTY, *SAID))]
        budget = Budget(options.effort, self._usual).part(0.3)
        name = "the ONNX graph"
        reference: Runner = self._model if self._stays else _Gone(self._model)
        if self._stays:
            share = budget.part(0.5)
            trials, _ = reach_conditions(
                {name: graph}, reference, self._model.inputs, runs, self._facts, share, session, seed=options.seed
            )
            findings.observed.trials += trials
            hold(trials, judge, self._model, runner, findings)
            if findings.failure is not None:
                return
            runs += [t.feeds for t in trials]
        trials, unreached, findings.parts = watch_branches(
            {name: graph}, reference, self._model.inputs, runs, self._facts, budget, session, seed=options.seed
        )
        findings.observed.trials += trials
        hold(trials, judge, self._model if self._stays else None, runner, findings)
        findings.unreached = unreached_branches(unreached)


class _Gone:
    """A source that was released: it gives nothing."""

    def __init__(self, model: SourceModel) -> None:
        self.inputs, self.outputs = model.inputs, model.outputs

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Nothing."""
        raise OnnxToolError(f"the source is gone; {len(feeds)} inputs were not run.")


def replace_trials(observed: Observed) -> Observed:
    """A copy whose list of trials may grow."""
    return replace(observed, trials=list(observed.trials))


def _judge(model: SourceModel, runner: OnnxRunner, rule: tuple[Tolerance, Evidence], names: tuple[str, str]) -> Judge:
    def judge(trial: Trial, kept: Kept | None) -> CompareReport:
        known: Any = SimpleNamespace(inputs=model.inputs, outputs=model.outputs, run=lambda _: dict(trial.outputs))
        source, graph = (known, runner) if kept is None else (KeptPositions(known, kept), KeptPositions(runner, kept))
        tolerance, evidence = rule
        # The source's rounding is measured on whole outputs: it says nothing of those with parts left out.
        known_of = evidence if kept is None else replace(evidence, noise=None)
        return compare_runners(source, graph, [trial.feeds], tolerance, known_of, names=names, data=trial.label)

    return judge

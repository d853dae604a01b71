"""What the source gives, and what is wrong with a candidate beside it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.equality.equivalence_check import NOT_COMPARED, EquivalenceCheck, Evidence
from onnxtool.equality.fixed_draws import FixedDraws, with_fixed_draws
from onnxtool.equality.rule.difference import repeats
from onnxtool.equality.rule.evidence import evidence_of_model
from onnxtool.equality.rule.rounding import RoundingNoise
from onnxtool.equality.rule.tolerance import BITS, Tolerance
from onnxtool.equality.search.counterexample import Findings, hold
from onnxtool.equality.trials.observe import Observed
from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model import io
from onnxtool.model.domains import input_domains
from onnxtool.model.io.lazy_read import WORTHWHILE
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.randomness import random_operators
from onnxtool.optimization.further_inputs import FurtherInputs, further_inputs
from onnxtool.optimization.normalize import rename_nodes
from onnxtool.report.compare import CompareReport
from onnxtool.runtime.data.read_feeds import read_feeds
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.probes import Probe, find_probes, given_probes
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import SessionOptions

PathLike = str | os.PathLike[str]


class OptimizationProof:
    """Knows what the source gives, and says what is wrong with a candidate.

    Args:
        source: the file.
        model: what was read from it, with the dims that the user froze.
        data: inputs to compare on; None for random ones.
        tolerance: for floats.
        seed: of the random inputs.
        options: provider, threads and custom operators.
        exact: on the runtime without its own optimizations, floats must be equal to the last bit.

    Attributes:
        probes: inputs, with the source's outputs.
        further: inputs beyond these.
        report: the last comparison without the runtime's own optimizations.
        warnings: what the user should know.
    """

    def __init__(
        self,
        source: Path,
        model: ir.Model,
        data: PathLike | Mapping[str, np.ndarray] | None,
        tolerance: Tolerance,
        seed: int,
        options: SessionOptions,
        *,
        exact: bool = False,
    ) -> None:
        self._tolerance, self._source, self._bits = tolerance, source, exact
        # The runtime's packed copies of large weights take as long to make as all else here, and as much memory.
        self._usual = replace(options, prepack=options.prepack and io.weight_bytes(model) < WORTHWHILE)
        self._plain = replace(self._usual, provider="cpu", optimization="off")
        self._random = random_operators(model)
        # Of what draws in a way that cannot be fixed, outputs that vary are not compared.
        self._fixable = bool(self._random) and with_fixed_draws(model, model) is not None
        self._varying: Collection[str] = ()
        self._specs, self._seed = input_specs(model), seed
        noise = RoundingNoise(lambda: self._open_source(self._usual))
        self._evidence = replace(evidence_of_model(model, lambda: io.load(source), self._plain), noise=noise)
        self.warnings: list[str] = []
        self.report: CompareReport | None = None
        self.origin = f"random, seed {seed}" if data is None else "given data"
        runner = self._open_source(self._plain)
        try:
            self.probes: Sequence[Probe] = [_own(p) for p in self._probe(runner, model, data, seed)]
        except OnnxToolError as error:
            raise type(error)(f"{source}: {error}") from error
        if self._random:
            self._varying = () if self._fixable else _varying(runner, self.probes)
            self.warnings.append(self._told_of_draws())
        # What the source's own outputs cannot prove, whatever the candidate gives.
        self.warnings += judge_outputs(self.probes, [p.outputs for p in self.probes], tolerance).warnings
        self._source_is_changed: bool | None = None
        self.further = FurtherInputs()
        if not self._random and self._usual.prepack:
            self.further = further_inputs(runner, model, self._specs, self.probes, seed, sizes=data is None)

    def _probe(
        self, runner: OnnxRunner, model: ir.Model, data: PathLike | Mapping[str, np.ndarray] | None, seed: int
    ) -> Sequence[Probe]:
        if data is None:
            advice = "Give --data FILE.npz or --input-shape NAME:DIMS, or take the risk with --no-verify."
            wanted = 3 if self._usual.prepack else 2  # a large model takes long for each
            return find_probes(runner, self._specs, seed, input_domains(model), advice=advice, wanted=wanted)
        return given_probes(runner, list(read_feeds(data, runner.inputs).feeds))

    def __call__(self, candidate: ir.Model) -> str | None:
        """What is wrong with a candidate, in a few words; None where it is equal to the source."""
        if self._fixable:
            fixed = with_fixed_draws(io.load(self._source), candidate)
            return "its random operators are not the source's" if fixed is None else self._with_fixed_draws(fixed)
        try:
            runner = OnnxRunner.open(candidate, self._plain)
            report = self._compare(runner)
            fault = first_fault(report) if not agrees(report) else self._on_trials(runner)
        except OnnxToolError as error:
            return str(error)
        tried = Findings(Observed(trials=list(self.further.trials)))
        self.report = replace(report, coverage=tried.coverage("quick", self._seed)) if self.further.trials else report
        if fault is not None:
            return fault
        try:
            usual = self._judge(OnnxRunner.open(candidate, self._usual))
        except OnnxToolError as error:
            return None if self._source_changes_too() else f"with the runtime's own optimizations: {error}"
        if agrees(usual) or self._source_changes_too():
            return None
        return f"with the runtime's own optimizations, {first_fault(usual)}"

    def _told_of_draws(self) -> str:
        listed = f"the model draws random numbers ({', '.join(self._random)})"
        if self._fixable:
            return f"{listed}: it was compared with the same fixed draws in source and result."
        if not self._varying:
            return f"{listed}, on which no output depends."
        names = ", ".join(repr(n) for n in sorted(self._varying))
        return f"{listed} in a loop: of {names} only types and shapes were compared, not the values."

    def _with_fixed_draws(self, fixed: FixedDraws) -> str | None:
        """What is wrong with a candidate that draws the same numbers as the source."""
        try:
            for options in (self._plain, self._usual):
                source, runner = (OnnxRunner.open(m, options) for m in (fixed.a, fixed.b))
                taken = {s.name for s in source.inputs}
                feeds = [{k: v for k, v in p.feeds.items() if k in taken} for p in self.probes]
                probes = [_own(Probe(given, source.run(given))) for given in feeds]
                exact = self._bits and options is self._plain
                report = judge(runner, probes, BITS if exact else self._tolerance)
                if options is self._plain:
                    self.report = report
                if not report.ok:
                    return first_fault(report)
        except OnnxToolError as error:
            return str(error)
        return None

    def _on_trials(self, runner: OnnxRunner) -> str | None:
        """The first difference on inputs beyond the usual ones, without the runtime's own optimizations."""
        source = self._open_source(self._plain) if self.further.trials else None
        for trial in self.further.trials:
            findings = Findings(Observed())
            hold([trial], partial(self._judge_trial, runner), None if self._bits else source, runner, findings)
            if findings.failure is None:
                continue
            if self._bits and source is not None and not self._judge_trial(source, trial).ok:
                self.relax()
                return self._on_trials(runner)
            told = first_fault(findings.report) if findings.report is not None else findings.error
            return f"with {trial.label}, {told}"
        return None

    def _judge_trial(self, runner: OnnxRunner, trial: Trial, kept: np.ndarray | None = None) -> CompareReport:
        del kept  # padded positions are held to the same: no pass may change them
        tolerance = BITS if self._bits else self._tolerance
        return judge(runner, [Probe(trial.feeds, dict(trial.outputs))], tolerance, self._evidence)

    def _compare(self, runner: OnnxRunner) -> CompareReport:
        """On the usual inputs, without the runtime's own optimizations."""
        report = self._judge(runner, exact=self._bits)
        if self._bits and not agrees(report) and not self._source_repeats():
            self.relax()
            report = self._judge(runner)
        return report

    def relax(self) -> bool:
        """No longer ask for equal bits; False when that was not asked for anyway."""
        asked, self._bits = self._bits, False
        if asked:
            self.warnings.append("bits differ though no pass is to blame, so floats were compared within tolerance.")
        return asked

    def _source_repeats(self) -> bool:
        """Whether the source itself gives the same bits each time (kernels on many threads may add in any order)."""
        return agrees(self._judge(self._open_source(self._plain), exact=True))

    def _open_source(self, options: SessionOptions) -> OnnxRunner:
        if self._source.stat().st_size >= WORTHWHILE:
            return OnnxRunner.open(io.load(self._source, in_place=True), options)
        try:
            return OnnxRunner.open(self._source, options)
        except InputError:
            # Nodes that share a name: the runtime refuses them, the standard allows them.
            model = io.load(self._source)
            if not rename_nodes(model):
                raise
            return OnnxRunner.open(model, options)

    def _judge(self, runner: OnnxRunner, *, exact: bool = False) -> CompareReport:
        tolerance = BITS if exact else self._tolerance
        return judge(runner, self.probes, tolerance, self._evidence, varying=self._varying)

    def _source_changes_too(self) -> bool:
        """Whether the runtime's own optimizations change the source already: then no pass of ours is to blame."""
        if self._source_is_changed is None:
            try:
                self._source_is_changed = not agrees(self._judge(self._open_source(self._usual)))
            except OnnxToolError:
                self._source_is_changed = True
            if self._source_is_changed:
                self.warnings.append(
                    "the runtime's own optimizations change the results of the source; it was compared without them."
                )
        return self._source_is_changed


def _own(probe: Probe) -> Probe:
    """With copies of the outputs: the arrays that the runtime gives keep all working memory of their session."""
    outputs = {k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in probe.outputs.items()}
    return replace(probe, outputs=outputs)


def _varying(runner: OnnxRunner, probes: Sequence[Probe]) -> frozenset[str]:
    """The outputs that a model gives other values for when it runs again."""
    found = set()
    for probe in probes:
        again = flatten(runner.run(probe.feeds))
        for name, array in flatten(probe.outputs).items():
            if name not in again or not repeats(array, again[name]):
                found.add(name)
    return frozenset(found)


def agrees(report: CompareReport) -> bool:
    """Whether nothing that was compared differs; nothing may have been compared (docs/optimize.md)."""
    return all(o.ok for o in report.outputs)


def judge(
    runner: OnnxRunner,
    probes: Sequence[Probe],
    tolerance: Tolerance,
    evidence: Evidence = Evidence(),  # noqa: B008  (frozen)
    *,
    varying: Collection[str] = (),
) -> CompareReport:
    """Hold a model against the source's outputs.

    Args:
        runner: what is judged.
        probes: inputs, with the source's outputs.
        tolerance: for floats.
        evidence: what is known of the source.
        varying: outputs that depend on random numbers; of these, only types and shapes are compared.

    Raises:
        InputError: the model does not run where the source did, or has other outputs.
    """
    taken = {s.name for s in runner.inputs}
    given = (runner.run({k: v for k, v in probe.feeds.items() if k in taken}) for probe in probes)
    return judge_outputs(probes, given, tolerance, evidence, varying=varying)


def judge_outputs(
    probes: Sequence[Probe],
    given: Iterable[Mapping[str, Any]],
    tolerance: Tolerance,
    evidence: Evidence = Evidence(),  # noqa: B008  (frozen)
    *,
    varying: Collection[str] = (),
) -> CompareReport:
    """As `judge`, of outputs, one mapping for each probe."""
    check = EquivalenceCheck(tolerance, evidence, names=("source", "optimized"))
    for probe, outputs in zip(probes, given, strict=True):
        expected, actual = flatten(probe.outputs), flatten(outputs)
        if list(expected) != list(actual):
            raise InputError(f"the outputs are {', '.join(actual)} instead of {', '.join(expected)}.")
        if varying:
            same = [n for n in expected if n in varying and np.shape(expected[n]) == np.shape(actual[n])]
            expected |= {n: np.zeros_like(expected[n]) for n in same}
            actual |= {n: np.zeros_like(actual[n]) for n in same}
        check.add(probe.feeds, expected, actual)
    report = check.report("probes")
    judged = tuple(
        replace(o, compared=False, note=NOT_COMPARED) if o.name in varying and o.ok else o for o in report.outputs
    )
    return replace(report, outputs=judged)


def first_fault(report: CompareReport) -> str:
    """One line on the first output that differs."""
    for item in report.outputs:
        if not item.ok:
            detail = item.note or f"{item.expected} against {item.actual} (max abs {item.max_abs:.3g})"
            return f"output {item.name!r} differs: {detail}"
    return "no output"

"""What the source gives, and what is wrong with a candidate beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.equality.dim_names import shared_names
from onnxtool.equality.fixed_draws import with_fixed_draws
from onnxtool.equality.proof import Proof, Search
from onnxtool.equality.reference import Answered, Answers, Reference, reference_of_model
from onnxtool.equality.rule.movement import movements
from onnxtool.equality.rule.rounding import RoundingNoise
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.tolerance import BITS, Tolerance
from onnxtool.equality.trials.graph_trials import facts_of
from onnxtool.equality.trials.telling import telling_probes
from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import InputError, OnnxToolError
from onnxtool.model import io
from onnxtool.model.domains import Domain, input_domains
from onnxtool.model.io.lazy_read import WORTHWHILE
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.randomness import random_operators
from onnxtool.model.spec import TensorSpec, distinct_dims
from onnxtool.optimization.normalize import rename_nodes
from onnxtool.report.compare import CompareReport
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.data.read_feeds import read_feeds
from onnxtool.runtime.feeds import Feeds, flatten, random_feeds
from onnxtool.runtime.probes import Probe, find_probes, given_probes
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.worker.apart import Apart, risks_of

_RELAXED = "bits differ though no pass is to blame, so floats were compared within tolerance."
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
        names: names that several dims of the inputs share, and whether runs hold the source to them.
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
        self._tolerance, self._source = tolerance, source
        # The runtime's packed copies of large weights take as long to make as all else here, and as much memory.
        self._usual = replace(options, prepack=options.prepack and io.weight_bytes(model) < WORTHWHILE)
        self._plain = replace(self._usual, provider="cpu", optimization="off")
        self._random = random_operators(model)
        fixed = with_fixed_draws(model, model) if self._random else None
        self._drawn = fixed.a if fixed is not None else None  # the source with draws that are the same each time
        self._specs, self._seed = input_specs(self._drawn or model), seed
        self.warnings: list[str] = []
        self.report: CompareReport | None = None
        self.origin = f"random, seed {seed}" if data is None else "given data"
        self._risks = risks_of([self._drawn or model])
        runner = self._open_source(self._plain)
        try:
            self.probes: Sequence[Probe] = [_own(p) for p in self._probe(runner, model, data, seed)]
        except OnnxToolError as error:
            raise type(error)(f"{source}: {error}") from error
        reference = reference_of_model(self._drawn or model, runner, self._model, self._plain)
        self._proof = Proof(
            replace(reference, noise=RoundingNoise(lambda: self._open_source(self._usual))),
            self.probes,
            Rule(BITS if exact else tolerance, names=("source", "optimized"), otherwise=tolerance),
            origin="probes",
            specs=distinct_dims(self._specs),
        )
        if self._random:
            self._proof.varying = _varying(runner, self.probes) if self._drawn is None else ()
            self.warnings.append(self._describe_draws())
        # What the source's own outputs cannot prove, whatever the candidate gives.
        self.warnings += self._proof.judge_usual(Answers(runner, self.probes)).warnings
        self._source_is_changed: bool | None = None
        self.names = shared_names(runner, self._specs, [p.feeds for p in self.probes])
        self.warnings += [f"not assumed: {n.assumption}" for n in self.names if n.assumption.status == "unproven"]
        # Of what draws in a way that cannot be fixed, further inputs show nothing.
        if (self._drawn is not None or not self._random) and self._usual.prepack:
            self._observe(runner, model, sizes=data is None)
        # Kept open, a session keeps all of its working memory.
        self._proof.reference = replace(self._proof.reference, runner=_Reopened(runner, self._reopen))

    def _observe(self, runner: Runner, model: ir.Model, *, sizes: bool) -> None:
        """Run the source on inputs beyond the usual ones, as far as it takes them."""
        proof, specs, seed = self._proof, self._specs, self._seed
        domains = input_domains(model)
        own = [n.apart for n in self.names if n.apart is not None]
        if sizes:
            own += empty_batch(runner, specs, self.probes[0], domains, seed)
        proof.facts = facts_of([model], {})
        proof.search = Search("quick", seed, sizes=sizes, branches=0, difference=0, masked=False)
        seen = proof.observe()
        known: list[Answered] = [*self.probes, *(t for t in seen.trials if t.kind.is_like_usual)]
        for found in telling_probes(runner, specs, known, self._silent, seed, domains, sizes=sizes):
            own.append(Trial("inputs on which more outputs move", TrialKind.VALUES, found.feeds, found.outputs))
        # A sequence that is empty has nothing to compare.
        seen.trials = [t for t in (*own, *seen.trials) if flatten(t.outputs)]
        if not seen.trials:
            proof.search = None

    def _silent(self, runs: Sequence[Mapping[str, Any]]) -> set[str]:
        """Outputs that are empty, not finite or the same in every row of all runs."""
        moved = movements({n: a for n, a in flatten(r).items() if _is_finite(a)} for r in runs)
        names = {name for run in runs for name in flatten(run)}
        return {n for n in names if n not in moved or moved[n].is_constant} - self._proof.reference.fixed

    def _probe(
        self, runner: Runner, model: ir.Model, data: PathLike | Mapping[str, np.ndarray] | None, seed: int
    ) -> Sequence[Probe]:
        if data is None:
            advice = "Give --data FILE.npz or --input-shape NAME:DIMS, or take the risk with --no-verify."
            wanted = 3 if self._usual.prepack else 2  # a large model takes long for each
            return find_probes(runner, self._specs, seed, input_domains(model), advice=advice, wanted=wanted)
        return given_probes(runner, list(read_feeds(data, runner.inputs).feeds))

    def __call__(self, candidate: ir.Model) -> str | None:
        """What is wrong with a candidate, in a few words; None where it is equal to the source."""
        if self._drawn is not None:
            fixed = with_fixed_draws(io.load(self._source), candidate)
            if fixed is None:
                return "its random operators are not the source's"
            candidate = fixed.b
        relaxed = self._proof.relaxed
        try:
            self.report = self._proof.judge(self._candidate(candidate, self._plain))
        except OnnxToolError as error:
            return str(error)
        finally:
            if self._proof.relaxed and not relaxed:
                self.warnings.append(_RELAXED)
        if self.report.differs:
            failure = self._proof.findings.failure if self.report.counterexample is not None else None
            return f"{f'with {failure.label}, ' if failure is not None else ''}{first_fault(self.report)}"
        try:
            usual = self._judge_within(self._candidate(candidate, self._usual))
        except OnnxToolError as error:
            return None if self._source_changes_too() else f"with the runtime's own optimizations: {error}"
        if not usual.differs or self._source_changes_too():
            return None
        return f"with the runtime's own optimizations, {first_fault(usual)}"

    def _describe_draws(self) -> str:
        listed = f"the model draws random numbers ({', '.join(self._random)})"
        if self._drawn is not None:
            return f"{listed}: it was compared with the same fixed draws in source and result."
        if not self._proof.varying:
            return f"{listed}, on which no output depends."
        names = ", ".join(repr(n) for n in sorted(self._proof.varying))
        return f"{listed} in a loop: of {names} only types and shapes were compared, not the values."

    def relax(self) -> bool:
        """No longer ask for equal bits; False when that was not asked for anyway."""
        asked = self._proof.relax()
        if asked:
            self.warnings.append(_RELAXED)
        return asked

    def _candidate(self, model: ir.Model, options: SessionOptions) -> Runner:
        runner = Apart(OnnxRunner.open(model, options), model, options, self._risks)
        return _SourcesNames(runner, self._proof.reference)

    def _judge_within(self, runner: Runner) -> CompareReport:
        """On the usual inputs, within the tolerance."""
        return replace(self._proof, rule=self._proof.rule.relaxed()).judge_usual(runner)

    def _reopen(self) -> Runner:
        return self._open_source(self._plain)

    def _model(self) -> ir.Model:
        return self._drawn.clone() if self._drawn is not None else io.load(self._source)

    def _open_source(self, options: SessionOptions) -> Runner:
        model: Path | ir.Model = self._source if self._drawn is None else self._drawn
        if self._drawn is None and self._source.stat().st_size >= WORTHWHILE:
            return OnnxRunner.open(io.load(self._source, in_place=True), options)
        try:
            runner = OnnxRunner.open(model, options)
        except InputError:
            # Nodes that share a name: the runtime refuses them, the standard allows them.
            model = self._model()
            if not rename_nodes(model):
                raise
            runner = OnnxRunner.open(model, options)
        return Apart(runner, model, options, self._risks)

    def _source_changes_too(self) -> bool:
        """Whether the runtime's own optimizations change the source already: then no pass of ours is to blame."""
        if self._source_is_changed is None:
            try:
                self._source_is_changed = self._judge_within(self._open_source(self._usual)).differs
            except OnnxToolError:
                self._source_is_changed = True
            if self._source_is_changed:
                self.warnings.append(
                    "the runtime's own optimizations change the results of the source; it was compared without them."
                )
        return self._source_is_changed


def _is_finite(value: Any) -> bool:
    """Whether some number is."""
    array = np.asarray(value)
    return bool(array.size) and (array.dtype.kind not in "fV" or bool(np.isfinite(array.astype(np.float64)).any()))


def _own(probe: Probe) -> Probe:
    """With copies of the outputs: the arrays that the runtime gives keep all working memory of their session."""
    outputs = {k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in probe.outputs.items()}
    return replace(probe, outputs=outputs)


class _Reopened:
    """The source, opened again where it has to run once more."""

    def __init__(self, runner: Runner, reopen: Callable[[], Runner]) -> None:
        self.inputs, self.outputs, self._reopen = runner.inputs, runner.outputs, reopen
        self._runner: Runner | None = None

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """One forward pass."""
        self._runner = self._runner or self._reopen()
        return self._runner.run(feeds)


class _SourcesNames:
    """A candidate that takes all inputs of the source, whether it uses them or not, and has to have its outputs."""

    def __init__(self, runner: Runner, source: Runner) -> None:
        self.inputs, self.outputs, self._runner = source.inputs, source.outputs, runner
        self._taken, self._names = {s.name for s in runner.inputs}, [s.name for s in source.outputs]

    def run(self, feeds: Feeds) -> dict[str, Any]:
        """One forward pass.

        Raises:
            InputError: it fails, or has other outputs.
        """
        outputs = self._runner.run({name: array for name, array in feeds.items() if name in self._taken})
        if list(outputs) != self._names:
            raise InputError(f"the outputs are {', '.join(outputs)} instead of {', '.join(self._names)}.")
        return outputs


def _varying(runner: Runner, probes: Sequence[Probe]) -> frozenset[str]:
    """The outputs that a model gives other values for when it runs again."""
    found = [Reference(runner).repeats(probe.feeds) for probe in probes]
    return frozenset(name for repeats in found for name, same in repeats.items() if not same)


def first_fault(report: CompareReport) -> str:
    """One line on the first output that differs."""
    for item in report.outputs:
        if not item.ok:
            detail = item.note or f"{item.expected} against {item.actual} (max abs {item.max_abs:.3g})"
            return f"output {item.name!r} differs: {detail}"
    return "no output"


def empty_batch(
    runner: Runner, specs: Sequence[TensorSpec], probe: Probe, domains: Mapping[str, Domain], seed: int
) -> Iterator[Trial]:
    """An input without a row, if the source takes one."""
    with suppress(OnnxToolError):
        feeds = random_feeds(distinct_dims(specs), seed, batch=0, length=probe.length, domains=domains)
        if any(a.size == 0 for a in feeds.values()):
            yield Trial("an empty batch", TrialKind.SIZE, feeds, dict(runner.run(feeds)))

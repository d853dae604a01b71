"""`compare`: two models, the same inputs, how far apart."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxtool.equality.certificate.models import MOST_WEIGHTS, certify_models, with_weights
from onnxtool.equality.certificate.rounding import COARSER, FAR, rounding_inputs
from onnxtool.equality.compare_runners import Source, compare_runners, domains_of, make_feeds
from onnxtool.equality.equivalence_check import match_names
from onnxtool.equality.fixed_draws import with_fixed_draws
from onnxtool.equality.input_defaults import other_defaults, shared_defaults, with_defaults
from onnxtool.equality.judge_again import EQUAL_UNOPTIMIZED, UNOPTIMIZED, judge_again
from onnxtool.equality.proof import Proof, Search
from onnxtool.equality.provider_proof import prove_on_provider
from onnxtool.equality.reference import Reference, known_domains, reference_on
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.equality.search.counterexample import FAILS, CandidateFailsError
from onnxtool.equality.trials.graph_trials import facts_of
from onnxtool.errors import InputError, OnnxToolError, UnsupportedError, UsageError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.model import io
from onnxtool.model.domains import Domain
from onnxtool.model.io.in_memory import ModelLike, as_path, takes_models
from onnxtool.model.randomness import random_operators
from onnxtool.options.compare import CompareOptions
from onnxtool.report.certificate import CertificateReport
from onnxtool.report.compare import CompareReport, Opinion
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds, edge_feeds
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions, requested_providers
from onnxtool.runtime.worker.apart import Apart, Risks, risks_of, try_in_child


@options_as_keywords(CompareOptions)
@takes_models("a", "b")
def compare(
    a: ModelLike | Runner,
    b: ModelLike | Runner,
    *,
    options: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
    options_b: SessionOptions | None = None,
    **settings: Any,
) -> CompareReport:
    """Run two models on the same inputs and say how far their outputs are apart.

    Args:
        a: the reference: an .onnx file, a model in memory (of ONNX, an estimator, a booster, a torch module, a Keras
            model), or any Runner (`conversion.convert.open_source` makes one of a framework file).
        b: what is judged, likewise.
        options: how to run .onnx files.
        options_b: how to run B, where that is another way; the precision of its provider is told then.
        settings: fields of CompareOptions by name:

    Raises:
        InputError: a file or the data cannot be used, or the models do not take the same inputs.
        UsageError: `layers` with a framework model that has none, or `tolerances` for what is not an output.
    """
    asked = with_settings(CompareOptions(), settings, "compare")
    sources = [m if isinstance(m, Runner) else as_path(m) for m in (a, b)]
    names = asked.names or (_name(sources[0], "A"), _name(sources[1], "B"))
    models = [m if isinstance(m, Runner) else io.load(m) for m in sources]
    if isinstance(models[0], ir.Model) and isinstance(models[1], ir.Model):
        fixed = with_fixed_draws(models[0], models[1])
        if fixed is not None:
            same = {**settings, "names": names}
            report = compare(fixed.a, fixed.b, options=options, options_b=options_b, **same)
            found = None if report.differs else certify_models(models[0], models[1], names=names)
            return replace(report, warnings=(*report.warnings, fixed.note), certificate=found)
    layers = asked.layers or asked.bisect is not None
    if layers:
        _can_look_inside(sources[0], sources[1], asked.bisect)
    both = options, options_b or options
    risks = risks_of(m for m in models if isinstance(m, ir.Model))
    for model, how in dict(zip(sources, both, strict=True)).items():
        if not isinstance(model, Runner):
            try_in_child(Path(model), how, asked.seed, runs=asked.data is None)
    left, right = (_Side(*side, risks) for side in zip(names, sources, models, both, strict=True))
    proof, usual, notes = _proof(left, right, asked)
    report, feeds = _judged(proof, left, right, asked, notes)
    tolerance = Tolerance(asked.rtol, asked.atol)  # what the proof came to hold two files to is not for parts of them
    if layers and not isinstance(right.source, Runner):
        report = _look_inside(report, left, Path(right.source), feeds, tolerance, asked.bisect)
    if asked.reference:
        report = _ask_reference(report, left, right, feeds)
    if options_b is not None:
        report = _with_precision(report, right, usual, tolerance)
    return report


class _Side:
    """One of the two models.

    Attributes:
        name: in the report.
        source: an .onnx file, or a Runner.
        model: what is known of it, looked at and never changed.
        options: how a file is run.
        runner: of it.
    """

    def __init__(
        self,
        name: str,
        source: str | os.PathLike[str] | Runner,
        model: ir.Model | Runner,
        options: SessionOptions,
        risks: Risks,
    ) -> None:
        """Open it; `risks` are those of both models."""
        self.name, self.source, self.model, self.options, self._risks = name, source, model, options, risks
        self.runner = self._opened(options)

    @property
    def graph(self) -> ir.Model | None:
        """Of an .onnx file."""
        return None if isinstance(self.model, Runner) else self.model

    def unoptimized(self) -> tuple[Runner, SessionOptions]:
        """A Runner without the runtime's optimizations, and its options."""
        plain = replace(self.options, optimization="off")
        return self._opened(plain), plain

    def _opened(self, options: SessionOptions) -> Runner:
        if isinstance(self.source, Runner):
            return self.source
        io.read_proto(self.source)  # refuses what is unsafe or damaged before the runtime sees it
        return Apart(OnnxRunner.open(Path(self.source), options), self.source, options, self._risks)


def _proof(left: _Side, right: _Side, asked: CompareOptions) -> tuple[Proof, Sequence[Feeds], list[str]]:
    """What judges B.

    Returns:
        The proof, the usual inputs without the edge inputs, and what is to be said of the inputs.
    """
    models = [left.model, right.model]
    given = make_feeds(
        left.runner,
        models,
        data=asked.data,
        seed=asked.seed,
        batches=asked.batches,
        samples=asked.samples,
        images=asked.images,
    )
    feeds, origin, notes = list(given.feeds), given.origin, [*given.notes]
    if asked.edge:
        feeds += _edges(left.runner, models, notes)
        origin += " and edge inputs"
    names = left.name, right.name
    rule = Rule(Tolerance(asked.rtol, asked.atol), asked.tolerances or {}, names, asked.top_k)
    varying, lines = _varying((left, right), feeds[0])
    reference = reference_on(left.source, right.source, left.runner, left.options)
    proof = Proof(reference, [Probe(f) for f in feeds], rule, varying=varying, origin=origin)
    return proof, given.feeds, [*notes, *lines]


def _judged(
    proof: Proof, left: _Side, right: _Side, asked: CompareOptions, notes: Sequence[str]
) -> tuple[CompareReport, list[Feeds]]:
    """Judge on the usual inputs; where nothing differs, in exact arithmetic, beyond them, and run in other ways.

    Returns:
        The report, and the inputs, that of a counterexample at the end.
    """
    feeds = [p.feeds for p in proof.usual]
    began = time.perf_counter()
    try:
        report = proof.judge(right.runner)
    except InputError as error:
        raise _which_fails(error, left, right, feeds) from error
    seconds = time.perf_counter() - began
    notes = *_paired(report, left.runner, right.runner), *notes
    report = replace(report, warnings=(*report.warnings, *notes), require=asked.require)
    if report.differs:
        return _with_cause(report, proof, left, right), feeds
    found = None
    if left.graph is not None and right.graph is not None:
        found = certify_models(left.graph, right.graph, feeds, names=proof.rule.names)
        report = replace(_of_columns_alone(report, proof, right.runner, found), certificate=found)
        if report.differs:
            return report, feeds
    proof.certified = found is not None and found.same_function  # what is left to see is rounding
    proof.search = Search(
        effort="quick" if proof.certified else asked.effort,
        branches=0.0 if proof.certified else 1.0,
        difference=0.0 if proof.certified else 0.5,
        seed=asked.seed,
        usual=seconds,
        sizes=asked.data is None,
        strict=asked.strict,
        keep_as=asked.keep_counterexample,
    )
    report, feeds = _beyond(report, proof, left, right)
    if not report.differs and not proof.certified:
        report = _unoptimized(report, proof, left, right)
        report = _with_other_defaults(report, proof, left, right, asked.seed)
    return report, feeds


def _of_columns_alone(
    report: CompareReport, proof: Proof, candidate: Runner, found: CertificateReport | None
) -> CompareReport:
    """Measure each column by itself where two files that are not the same function differ in one place alone.

    A small column beside a large one may be off by what rounds in the large one. Such files round alike.
    """
    if found is None or found.same_function or not found.change or proof.rule.is_exact:
        return report
    proof.rule = replace(proof.rule, tolerance=replace(proof.rule.tolerance, least_scale=0.0))
    return replace(proof.judge(candidate), warnings=report.warnings, require=report.require)


def _beyond(report: CompareReport, proof: Proof, left: _Side, right: _Side) -> tuple[CompareReport, list[Feeds]]:
    """Go on after two models were found equal on the usual inputs.

    Returns:
        The report with what was found, and the inputs with that of the counterexample at the end.
    """
    names = ("A", "B") if left.name == right.name else (left.name, right.name)
    graphs = {n: side.graph for n, side in zip(names, (left, right), strict=True) if side.graph is not None}
    known: dict[str, Domain] = {}
    for side in (left, right):
        if side.graph is None:
            known = {**known, **known_domains(side.runner)}
    proof.facts = facts_of(list(graphs.values()), known)
    _try_what_certificates_tell(report, proof)
    try:
        done = proof.judge_beyond(report, right.runner, graphs, left.options)
    except CandidateFailsError as error:
        raise InputError(f"{names[1]} fails where {names[0]} runs, {error}") from error
    feeds, failure = [p.feeds for p in proof.usual], proof.findings.failure
    if failure is not None:
        why = "the same real function, but their numbers differ where both run (rounding, NaN or infinity)"
        return _not_certified(done, why), [*feeds, failure.feeds]
    lines = done.coverage.notes if done.coverage is not None else ()
    fails = next((label.removesuffix(FAILS) for label in proof.findings.said if label.endswith(FAILS)), "")
    if fails:
        done = _not_certified(done, f"the same real function where both run, but B fails with {fails}")
    return replace(done, warnings=(*done.warnings, *lines)), feeds


def _try_what_certificates_tell(report: CompareReport, proof: Proof) -> None:
    """Sizes at which exact arithmetic finds another function, and numbers of which B rounds far more coarsely."""
    found = report.certificate
    if found is not None and found.unlike:
        proof.try_shapes(found.unlike)
    coarse = {part.where for part in found.rounding if part.coarser > COARSER} if found is not None else ()
    for label, feeds in rounding_inputs(proof.usual[0].feeds) if coarse else ():
        if label in coarse:
            kind = TrialKind.EXTREME_VALUES if label == FAR else TrialKind.VALUES
            proof.try_inputs(f"{label}, which B rounds coarsely", kind, feeds)


def _not_certified(report: CompareReport, reason: str) -> CompareReport:
    """Take back a certificate of what runs have shown to differ."""
    if report.certificate is None or not report.certificate.ok:
        return report
    return replace(report, certificate=replace(report.certificate, verdict="not tested", reason=reason))


def _with_cause(report: CompareReport, proof: Proof, left: _Side, right: _Side) -> CompareReport:
    """Say where files differ by what the runtime makes of them alone, as 8-bit products of a DequantizeLinear."""
    with suppress(OnnxToolError):
        plain = _as_they_are(left, right)
        if plain is None:
            return report
        again = replace(proof, reference=plain[0], usual=[Probe(p.feeds) for p in proof.usual])
        if not again.judge_usual(plain[1]).differs:
            return replace(report, warnings=(*report.warnings, EQUAL_UNOPTIMIZED))
    return report


def _as_they_are(left: _Side, right: _Side) -> tuple[Reference, Runner] | None:
    """Both without the runtime's optimizations; None where neither was run with them."""
    if all(side.graph is None or side.options.optimization == "off" for side in (left, right)):
        return None
    (a, plain), (b, _) = left.unoptimized(), right.unoptimized()
    return reference_on(left.source, right.source, a, plain), b


def _unoptimized(report: CompareReport, proof: Proof, left: _Side, right: _Side) -> CompareReport:
    """Judge once more without the runtime's optimizations, where a file was run with them."""
    plain = _as_they_are(left, right)
    return report if plain is None else judge_again(report, proof, *plain, UNOPTIMIZED)


def _with_other_defaults(report: CompareReport, proof: Proof, left: _Side, right: _Side, seed: int) -> CompareReport:
    """Judge once more with other defaults of inputs that both models let their callers replace."""
    graphs = [side.graph for side in (left, right)]
    if report.differs or not all(
        g is not None
        and io.weight_bytes(g) <= MOST_WEIGHTS
        and set(g.graph.initializers) & {i.name for i in g.graph.inputs}
        for g in graphs
    ):
        return report
    a, b = (with_weights(g) for g in graphs if g is not None)
    defaults = other_defaults(shared_defaults(a, b), seed)
    if not defaults:
        return report
    known = (a, left.options), (b, right.options)
    mine, theirs = (OnnxRunner.open(with_defaults(m, defaults), how) for m, how in known)
    warning = f"they differ where inputs are given that have a default: {', '.join(list(defaults)[:3])}"
    return judge_again(report, proof, replace(proof.reference, runner=mine, remembered=None), theirs, warning)


def _with_precision(report: CompareReport, right: _Side, feeds: Sequence[Feeds], tolerance: Tolerance) -> CompareReport:
    """Add what precision B's provider computed in. The inputs are in A's names."""
    if isinstance(right.source, Runner) or requested_providers(right.options) == (CPU,):
        return report
    own = [_renamed(f, right.runner) for f in feeds]
    found = prove_on_provider(Path(right.source), right.options, feeds=own, tolerance=tolerance)
    return replace(report, precision=found)


def _renamed(feeds: Feeds, runner: Runner) -> Feeds:
    """Inputs in the names of another model, without those that it does not take."""
    names = match_names(list(feeds), [s.name for s in runner.inputs], "inputs")
    return {names[name]: array for name, array in feeds.items() if name in names}


def _can_look_inside(
    a: str | os.PathLike[str] | Runner, b: str | os.PathLike[str] | Runner, bisect: str | os.PathLike[str] | None
) -> None:
    """Raises UsageError when there are no layers to compare."""
    from onnxtool.equality.layers.framework_layers import LayeredRunner

    if isinstance(b, Runner):
        raise UsageError("--layers takes an .onnx file as B; a framework model goes first, as A.")
    if isinstance(a, Runner) and bisect is not None:
        raise UsageError("--bisect takes two .onnx files; convert the framework model first.")
    if isinstance(a, Runner) and not isinstance(a, LayeredRunner):
        raise UsageError("--layers can look into PyTorch and Keras models and .onnx files; A is none of these.")


def _worst_feeds(report: CompareReport, feeds: Sequence[Feeds]) -> Feeds:
    worst = report.worst
    return feeds[worst.worst_run if worst is not None and worst.worst_run < len(feeds) else 0]


def _ask_reference(report: CompareReport, left: _Side, right: _Side, feeds: Sequence[Feeds]) -> CompareReport:
    """Add what the reference implementation says; a warning when it cannot run A."""
    from onnxtool.runtime.reference import ReferenceRunner

    if isinstance(left.source, Runner):
        raise UsageError("--reference takes an .onnx file as A.")
    chosen, tolerance = [_worst_feeds(report, feeds)], Tolerance(report.rtol, report.atol)
    try:
        third = ReferenceRunner(left.source)
        to_a = {o.name: o for o in compare_runners(third, left.runner, chosen, tolerance).outputs}
        to_b = {o.name: o for o in compare_runners(third, right.runner, chosen, tolerance).outputs}
    except UnsupportedError as error:
        return replace(report, warnings=(*report.warnings, str(error)))
    opinions = tuple(
        Opinion(name, to_a[name].ok, to_b[name].ok, to_a[name].max_abs, to_b[name].max_abs) for name in to_a
    )
    return replace(report, opinions=opinions)


def _look_inside(
    report: CompareReport,
    left: _Side,
    b: Path,
    feeds: Sequence[Feeds],
    tolerance: Tolerance,
    bisect: str | os.PathLike[str] | None,
) -> CompareReport:
    """Add the layers, on the inputs of the run with the worst element, and the part that differs."""
    from onnxtool.equality.layers.compare_layers import compare_sides, open_sides
    from onnxtool.equality.layers.framework_layers import LayeredRunner, compare_source

    a, worst = left.source, _worst_feeds(report, feeds)
    exact = replace(left.options, optimization="off")
    accepted = {o.name for o in report.outputs if o.ok}
    if isinstance(a, LayeredRunner):
        return replace(report, layers=compare_source(a, b, worst, tolerance, exact, accepted))
    assert not isinstance(a, Runner)  # _can_look_inside has seen to it
    sides = open_sides(Path(a), b, worst, exact)
    layers = compare_sides(sides, tolerance, accepted)
    if bisect is not None:
        from onnxtool.equality.layers.reproducer import reproduce

        layers = replace(layers, reproducer=reproduce(layers, sides, Path(bisect), tolerance))
    return replace(report, layers=layers)


def _paired(report: CompareReport, left: Runner, right: Runner) -> list[str]:
    """Which names of the one were taken for which of the other, where they are not the same."""
    inputs = match_names([s.name for s in left.inputs], [s.name for s in right.inputs], "inputs")
    outputs = {o.name: o.other_name or o.name for o in report.outputs}
    said = [
        f"{what} {', '.join(f'{mine!r} with {theirs!r}' for mine, theirs in pairs.items() if mine != theirs)}"
        for what, pairs in (("inputs", inputs), ("outputs", outputs))
        if any(mine != theirs for mine, theirs in pairs.items())
    ]
    return [f"names differ, so they were paired by their position: {'; '.join(said)}"] if said else []


def _edges(runner: Runner, sources: Sequence[Source], skipped: list[str]) -> list[Feeds]:
    """The edge inputs that the reference can take; the others are named in `skipped`."""
    taken: list[Feeds] = []
    for label, feeds in edge_feeds(runner.inputs, domains_of(sources)):
        try:
            runner.run(feeds)
        except InputError as error:
            skipped.append(f"A cannot take the edge input {label!r}, so it is not compared: {error}")
        else:
            taken.append(feeds)
    return taken


def _which_fails(error: InputError, left: _Side, right: _Side, feeds: Sequence[Feeds]) -> InputError:
    """The error with the name of the model that does not run; as it is where both run."""
    for feed in feeds:
        try:
            left.runner.run(feed)
        except InputError as own:
            return InputError(f"{left.name}: {own} Give inputs that it takes with --data.")
        try:
            right.runner.run(_renamed(feed, right.runner))
        except InputError as own:
            return InputError(f"{right.name} fails where {left.name} runs: {own}")
    return error


def _varying(sides: Sequence[_Side], feeds: Feeds) -> tuple[set[str], list[str]]:
    """Outputs that a model's random operators change from run to run, and what to say of that."""
    varying: set[str] = set()
    lines = []
    for side in sides:
        found = () if side.graph is None else random_operators(side.graph)
        if found:
            own = _renamed(feeds, side.runner)
            varying |= {name for name, same in Reference(side.runner).repeats(own).items() if not same}
            lines.append(f"{side.source} has random operators ({', '.join(found)}); outputs that vary are not compared")
    return varying, list(dict.fromkeys(lines))


def _name(source: str | os.PathLike[str] | Runner, default: str) -> str:
    return default if isinstance(source, Runner) else str(source)

"""`compare`: two models, the same inputs, how far apart."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxtool.equality.certificate.models import MOST_WEIGHTS, certify_models, with_weights
from onnxtool.equality.compare_runners import Source, compare_runners, domains_of, make_feeds
from onnxtool.equality.equivalence_check import match_names
from onnxtool.equality.fixed_draws import with_fixed_draws
from onnxtool.equality.input_defaults import other_defaults, shared_defaults, with_defaults
from onnxtool.equality.judge_again import UNOPTIMIZED, judge_again
from onnxtool.equality.proof import Proof, Search
from onnxtool.equality.provider_proof import prove_on_provider
from onnxtool.equality.reference import Reference, known_domains, reference_on
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.equality.search.counterexample import FAILS, CandidateFailsError
from onnxtool.equality.trials.graph_trials import facts_of
from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.model import io
from onnxtool.model.domains import Domain
from onnxtool.model.io.in_memory import ModelLike, as_path, takes_models
from onnxtool.model.randomness import random_operators
from onnxtool.options.compare import CompareOptions
from onnxtool.report.certificate import CertificateReport
from onnxtool.report.compare import CompareReport, Opinion
from onnxtool.runtime.feeds import Feeds, edge_feeds
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions, requested_providers
from onnxtool.runtime.worker.apart import Risks, apart, risks_of, try_in_child


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
    a, b = (m if isinstance(m, Runner) else as_path(m) for m in (a, b))
    called = asked.names or (_name(a, "A"), _name(b, "B"))
    known = [m if isinstance(m, Runner) else io.load(m) for m in (a, b)]  # looked at, never changed
    if isinstance(known[0], ir.Model) and isinstance(known[1], ir.Model):
        fixed = with_fixed_draws(known[0], known[1])
        if fixed is not None:
            same = {**settings, "names": called}
            report = compare(fixed.a, fixed.b, options=options, options_b=options_b, **same)
            found = None if report.differs else certify_models(known[0], known[1], names=called)
            return replace(report, warnings=(*report.warnings, fixed.note), certificate=found)
    layers = asked.layers or asked.bisect is not None
    if layers:
        _can_look_inside(a, b, asked.bisect)
    risks = risks_of(m for m in known if isinstance(m, ir.Model))
    for model, how in {a: options, b: options_b or options}.items():
        if not isinstance(model, Runner):
            try_in_child(Path(model), how, asked.seed, runs=asked.data is None)
    left, right = _runner(a, options, risks), _runner(b, options_b or options, risks)
    given = make_feeds(
        left,
        known,
        data=asked.data,
        seed=asked.seed,
        batches=asked.batches,
        samples=asked.samples,
        images=asked.images,
    )
    feeds, origin = list(given.feeds), given.origin
    skipped: list[str] = [*given.notes]
    if asked.edge:
        feeds = [*feeds, *_edges(left, known, skipped)]
        origin += " and edge inputs"
    tolerance = Tolerance(asked.rtol, asked.atol)
    rule = Rule(tolerance, asked.tolerances or {}, called, asked.top_k)
    varying, lines = _varying(list(zip((a, b), known, (left, right), strict=True)), feeds[0])
    began = time.perf_counter()
    proof = Proof(reference_on(a, b, left, options), [Probe(f) for f in feeds], rule, varying=varying, origin=origin)
    try:
        report = proof.judge(right)
    except InputError as error:
        raise _which_fails(error, left, right, feeds, called) from error
    seconds = time.perf_counter() - began
    report = replace(report, warnings=(*report.warnings, *skipped, *_paired(report, left, right), *lines))
    report = replace(report, require=asked.require)
    both = options, options_b or options
    if not report.differs:
        found = None
        if isinstance(known[0], ir.Model) and isinstance(known[1], ir.Model):
            found = certify_models(known[0], known[1], feeds, names=called)
            report = replace(_of_columns_alone(report, proof, right, found), certificate=found)
        same_function = found is not None and found.same_function  # what is left to see is rounding
        proof.certified = same_function
        proof.search = Search(
            effort="quick" if same_function else asked.effort,
            branches=0.0 if same_function else 1.0,
            difference=0.0 if same_function else 0.5,
            seed=asked.seed,
            usual=seconds,
            sizes=asked.data is None,
            strict=asked.strict,
            keep_as=asked.keep_counterexample,
        )
        report, feeds = (report, feeds) if report.differs else _beyond(report, proof, known, right, both)
    if not report.differs and not proof.certified:
        report = _unoptimized(report, proof, (a, b), both, risks)
        report = _with_other_defaults(report, proof, known, both, asked.seed)
    if layers and not isinstance(b, Runner):
        report = _look_inside(report, a, Path(b), feeds, tolerance, options, asked.bisect)
    if asked.reference:
        if isinstance(a, Runner):
            raise UsageError("--reference takes an .onnx file as A.")
        report = _ask_reference(report, a, left, right, feeds)
    if options_b is not None and not isinstance(b, Runner):
        report = _with_precision(report, Path(b), feeds[: len(given.feeds)], options_b, tolerance)
    return report


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


def _beyond(
    report: CompareReport,
    proof: Proof,
    models: Sequence[ir.Model | Runner],
    candidate: Runner,
    options: tuple[SessionOptions, SessionOptions],
) -> tuple[CompareReport, list[Feeds]]:
    """Go on after two models were found equal on the usual inputs.

    Returns:
        The report with what was found, and the inputs with that of the counterexample at the end.
    """
    names = proof.rule.names if proof.rule.names[0] != proof.rule.names[1] else ("A", "B")
    graphs = {n: m for n, m in zip(names, models, strict=True) if not isinstance(m, Runner)}
    known: dict[str, Domain] = {}
    for model in models:
        if isinstance(model, Runner):
            known = {**known, **known_domains(model)}
    proof.facts = facts_of(list(graphs.values()), known)
    if report.certificate is not None and report.certificate.unlike:
        proof.try_shapes(report.certificate.unlike)
    try:
        done = proof.judge_beyond(report, candidate, graphs, options[0])
    except CandidateFailsError as error:
        raise InputError(f"{names[1]} fails where {names[0]} runs, {error}") from error
    feeds, failure = [p.feeds for p in proof.usual], proof.findings.failure
    if failure is not None:
        if done.certificate is not None and done.certificate.ok:
            reason = "the same real function, but their numbers differ where both run (rounding, NaN or infinity)"
            done = replace(done, certificate=replace(done.certificate, verdict="not tested", reason=reason))
        return done, [*feeds, failure.feeds]
    lines = done.coverage.notes if done.coverage is not None else ()
    fails = next((label.removesuffix(FAILS) for label in proof.findings.said if label.endswith(FAILS)), "")
    if fails and done.certificate is not None and done.certificate.ok:
        reason = f"the same real function where both run, but B fails with {fails}"
        done = replace(done, certificate=replace(done.certificate, verdict="not tested", reason=reason))
    return replace(done, warnings=(*done.warnings, *lines)), feeds


def _unoptimized(
    report: CompareReport,
    proof: Proof,
    models: tuple[str | os.PathLike[str] | Runner, str | os.PathLike[str] | Runner],
    options: tuple[SessionOptions, SessionOptions],
    risks: Risks,
) -> CompareReport:
    """Judge once more without the runtime's optimizations, where a file was run with them."""
    sides = list(zip(models, options, strict=True))
    if all(isinstance(model, Runner) or how.optimization == "off" for model, how in sides):
        return report
    plain = [replace(how, optimization="off") for how in options]
    left, right = (_runner(model, how, risks) for model, how in zip(models, plain, strict=True))
    return judge_again(report, proof, reference_on(*models, left, plain[0]), right, UNOPTIMIZED)


def _with_other_defaults(
    report: CompareReport,
    proof: Proof,
    models: Sequence[ir.Model | Runner],
    options: tuple[SessionOptions, SessionOptions],
    seed: int,
) -> CompareReport:
    """Judge once more with other defaults of inputs that both models let their callers replace."""
    graphs = [m for m in models if isinstance(m, ir.Model) and io.weight_bytes(m) <= MOST_WEIGHTS]
    if (
        report.differs
        or len(graphs) < 2
        or not all(set(m.graph.initializers) & {i.name for i in m.graph.inputs} for m in graphs)
    ):
        return report
    a, b = (with_weights(m) for m in graphs)
    defaults = other_defaults(shared_defaults(a, b), seed)
    if not defaults:
        return report
    left, right = (OnnxRunner.open(with_defaults(m, defaults), how) for m, how in zip((a, b), options, strict=True))
    warning = f"they differ where inputs are given that have a default: {', '.join(list(defaults)[:3])}"
    return judge_again(report, proof, replace(proof.reference, runner=left, remembered=None), right, warning)


def _with_precision(
    report: CompareReport,
    b: Path,
    feeds: Sequence[Feeds],
    options: SessionOptions,
    tolerance: Tolerance,
) -> CompareReport:
    """Add what precision B's provider computed in. The inputs are in A's names."""
    if requested_providers(options) == (CPU,):
        return report
    specs = OnnxRunner.open(b, SessionOptions(threads=options.threads)).inputs
    names = match_names(list(feeds[0]), [s.name for s in specs], "inputs")
    own = [{names[name]: array for name, array in f.items() if name in names} for f in feeds]
    return replace(report, precision=prove_on_provider(b, options, feeds=own, tolerance=tolerance))


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


def _ask_reference(
    report: CompareReport,
    a: str | os.PathLike[str],
    left: Runner,
    right: Runner,
    feeds: Sequence[Feeds],
) -> CompareReport:
    """Add what the reference implementation says; a warning when it cannot run A."""
    from onnxtool.runtime.reference import ReferenceRunner

    chosen, tolerance = [_worst_feeds(report, feeds)], Tolerance(report.rtol, report.atol)
    try:
        third = ReferenceRunner(a)
        to_a = {o.name: o for o in compare_runners(third, left, chosen, tolerance).outputs}
        to_b = {o.name: o for o in compare_runners(third, right, chosen, tolerance).outputs}
    except UnsupportedError as error:
        return replace(report, warnings=(*report.warnings, str(error)))
    opinions = tuple(
        Opinion(name, to_a[name].ok, to_b[name].ok, to_a[name].max_abs, to_b[name].max_abs) for name in to_a
    )
    return replace(report, opinions=opinions)


def _look_inside(
    report: CompareReport,
    a: str | os.PathLike[str] | Runner,
    b: Path,
    feeds: Sequence[Feeds],
    tolerance: Tolerance,
    options: SessionOptions,
    bisect: str | os.PathLike[str] | None,
) -> CompareReport:
    """Add the layers, on the inputs of the run with the worst element, and the part that differs."""
    from onnxtool.equality.layers.compare_layers import compare_sides, open_sides
    from onnxtool.equality.layers.framework_layers import LayeredRunner, compare_source

    worst, exact = _worst_feeds(report, feeds), replace(options, optimization="off")
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


def _which_fails(
    error: InputError, left: Runner, right: Runner, feeds: Sequence[Feeds], called: tuple[str, str]
) -> InputError:
    """The error with the name of the model that does not run; as it is where both run."""
    inputs = match_names([s.name for s in left.inputs], [s.name for s in right.inputs], "inputs")
    for feed in feeds:
        try:
            left.run(feed)
        except InputError as own:
            return InputError(f"{called[0]}: {own} Give inputs that it takes with --data.")
        try:
            right.run({inputs[name]: array for name, array in feed.items() if name in inputs})
        except InputError as own:
            return InputError(f"{called[1]} fails where {called[0]} runs: {own}")
    return error


def _varying(models: Sequence[tuple[object, ir.Model | Runner, Runner]], feeds: Feeds) -> tuple[set[str], list[str]]:
    """Outputs that a model's random operators change from run to run, and what to say of that."""
    varying: set[str] = set()
    lines = []
    for source, file, runner in models:
        found = () if isinstance(file, Runner) else random_operators(file)
        if found:
            inputs = match_names(list(feeds), [s.name for s in runner.inputs], "inputs")
            own = {inputs[name]: array for name, array in feeds.items() if name in inputs}
            varying |= {name for name, same in Reference(runner).repeats(own).items() if not same}
            lines.append(f"{source} has random operators ({', '.join(found)}); outputs that vary are not compared")
    return varying, list(dict.fromkeys(lines))


def _runner(source: str | os.PathLike[str] | Runner, options: SessionOptions, risks: Risks) -> Runner:
    if isinstance(source, Runner):
        return source
    io.read_proto(source)  # refuses what is unsafe or damaged before the runtime sees it
    return apart(OnnxRunner.open(Path(source), options), source, risks, options)


def _name(source: str | os.PathLike[str] | Runner, default: str) -> str:
    return default if isinstance(source, Runner) else str(source)

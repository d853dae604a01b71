"""`optimize`: smaller, faster, and tested against the source."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from onnxtool.equality.certificate.models import MOST_WEIGHTS, certify_models
from onnxtool.equality.provider_proof import prove_on_provider
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.errors import UsageError, VerdictError
from onnxtool.keyword_options import options_as_keywords, with_settings
from onnxtool.model import io
from onnxtool.model.domains import Domain, input_domains
from onnxtool.model.file import ModelFile
from onnxtool.model.io.in_memory import ModelLike, as_path, takes_models
from onnxtool.model.io.serialize import serialized_size
from onnxtool.model.ir.queries import input_specs, operator_counts, output_specs, stays_external
from onnxtool.model.operators.value_facts import distrust_names
from onnxtool.model.provenance.metadata import DIGEST_BYTES, DIGEST_KEY, add_history, versions
from onnxtool.model.spec import TensorSpec
from onnxtool.optimization.equivalence import OptimizationProof
from onnxtool.optimization.fusion_selection import FusionChoice, by_table, select_fusions
from onnxtool.optimization.normalize import drop_labels, freeze_inputs
from onnxtool.optimization.normalize import freeze_initializers as freeze_weights
from onnxtool.optimization.opset import convert_opset
from onnxtool.optimization.pass_base import FaultyPassError, Level, parse_level
from onnxtool.optimization.pass_bisection import BisectionAttempt, drop_faulty_passes, without_regression
from onnxtool.optimization.registry import describe_passes, select
from onnxtool.options.optimize import OptimizeOptions, PathLike
from onnxtool.report.compare import CompareReport, ProviderProof
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.optimize import CompiledForm, DroppedPass, ModelSize, OptimizeReport, PassListReport
from onnxtool.runtime.providers.compiled import write_compiled
from onnxtool.runtime.providers.resolve import CPU
from onnxtool.runtime.session.session import SessionOptions, requested_providers
from onnxtool.runtime.timing.timing import measure_ratio, timing_feeds
from onnxtool.runtime.worker.apart import try_in_child

_LARGE_EXTERNAL = 256_000_000  # bytes
_CERTIFYING = 3.0  # seconds of this thread
_PATIENCE = 9.0  # at least, and as many as were needed up to then: for what there is no certificate without


@options_as_keywords(OptimizeOptions)
@takes_models("source", output="output")
def optimize(
    source: ModelLike,
    output: PathLike | None = None,
    *,
    options: SessionOptions = SessionOptions(),  # noqa: B008  (frozen)
    **settings: Any,
) -> OptimizeReport:
    """Optimize a model file, and write the result only when it is equal to the source.

    Equality is judged on the runtime with its own optimizations off (and on), at several sizes of every dynamic
    dim. When it fails, the pass that is to blame is found, dropped and named in the report.

    Args:
        source: an .onnx file, or a model in memory.
        output: the file to write; may be the source. None: the report carries the result as a model.
        options: provider, threads and custom operators for running the models.
        settings: fields of OptimizeOptions by name:

    Raises:
        InputError: the source cannot be read or run.
        VerdictError: the source is not even equal to itself, so nothing was written.
        UsageError: options that do not fit.
        UnsupportedError: the model cannot be converted to `opset`.
    """
    began = time.thread_time()
    file = ModelFile.of(source)
    output = as_path(output)
    io.check_model_output(output)
    asked = with_settings(OptimizeOptions(), settings, "optimize")
    level = parse_level(asked.level)
    _check_options(level, asked, options)
    chosen = select(level, asked.passes or None, asked.skip)
    names = [p.name for p in chosen]
    exact = asked.opset is None and not asked.freeze_initializers and all(p.level is Level.BASIC for p in chosen)

    loaded: list[ir.Model] = []
    untrue: frozenset[str] = frozenset()  # names that dims share without being held to it

    def fresh() -> ir.Model:
        if loaded:
            return loaded.pop()  # so far it has only been looked at
        model = file.graph()
        freeze_inputs(model, asked.input_shapes or {})
        if asked.freeze_initializers:
            freeze_weights(model)
        model = model if asked.opset is None else convert_opset(model, asked.opset)
        distrust_names(model.graph.inputs, untrue)
        return model

    model = fresh()
    loaded.append(model)
    before = _size(model, file.bytes)
    inputs, outputs, domains = input_specs(model), output_specs(model), input_domains(model)
    digest = file.sha256
    judgement = None
    if asked.verify:
        try_in_child(file.path, options, asked.seed, runs=asked.data is None)
        tolerance = Tolerance(asked.rtol, asked.atol)
        judgement = OptimizationProof(file.path, model, asked.data, tolerance, asked.seed, options, exact=exact)
        untrue = frozenset(n.name for n in judgement.names if not n.assumption.holds)
        distrust_names(model.graph.inputs, untrue)
    choice = _chosen_fusions(fresh, names, asked, judgement, options, inputs, domains)
    names = list(choice.names)
    attempt, dropped = drop_faulty_passes(fresh, judgement or (lambda _: None), level, names, asked.max_folded_bytes)
    if attempt.fault is not None and judgement is not None and judgement.relax():
        attempt, dropped = drop_faulty_passes(fresh, judgement, level, names, asked.max_folded_bytes)
    if attempt.fault is not None:
        raise VerdictError(f"{file}: even without any pass, {attempt.fault}. Nothing was written.")
    warnings = list(judgement.warnings) if judgement is not None else []
    warnings += [f"{d.name} was left out: {d.reason}" for d in dropped]
    warnings += filter(None, [file.age])
    latency = None
    if asked.bench and judgement is not None:

        def simpler() -> BisectionAttempt | None:
            if level is Level.BASIC or asked.passes:
                return None
            basic = [p.name for p in chosen if p.level is Level.BASIC]
            return drop_faulty_passes(fresh, judgement, Level.BASIC, basic, asked.max_folded_bytes)[0]

        timed = judgement.probes[0].feeds
        latency = measure_ratio(file, attempt.model, timed, options)
        attempt, latency, slower = without_regression(file, attempt, latency, timed, options, simpler)
        warnings += [slower] if slower else []
    changes = asked.opset is not None or asked.freeze_initializers or asked.input_shapes or file.old_opset
    verdict = "" if changes else _no_gain(attempt, latency, file, output)
    comparison = None
    if judgement is not None:
        patience = max(time.thread_time() - began, _PATIENCE)
        comparison = _certified(judgement, fresh, attempt.model, patience, copied=bool(verdict))
    if not verdict and not asked.allow_unproven:
        _check_tested(file, comparison)
    if verdict:
        io.copy_model(file.path, output)
        latency = _as_its_source(latency)
    else:
        _write(attempt, output, before, level, digest, dropped)
    form = None if asked.compiled is None else write_compiled(output, Path(asked.compiled), options)
    slow = (DroppedPass(t.name, t.reason, fault=False) for t in choice.trials if not t.kept)
    return OptimizeReport(
        source=str(file),
        output=str(output),
        level=level.value,
        inputs=tuple(s.info() for s in inputs),
        outputs=tuple(s.info() for s in outputs),
        before=before,
        after=before if verdict else _size(attempt.model, io.total_bytes(output)),
        passes=attempt.result.passes,
        rounds=attempt.result.rounds,
        seconds=attempt.result.seconds,
        comparison=comparison,
        latency=latency,
        dropped=(*slow, *dropped),
        families=choice.trials,
        target=asked.target,
        strict=asked.strict,
        require=asked.require,
        verdict=verdict,
        assumptions=tuple(n.assumption for n in judgement.names) if judgement is not None else (),
        warnings=tuple(warnings),
        providers=_on_providers(output, judgement, options, Tolerance(asked.rtol, asked.atol), form),
        compiled=form,
    )


def _certified(
    judgement: OptimizationProof, source: Callable[[], ir.Model], model: ir.Model, patience: float, *, copied: bool
) -> CompareReport | None:
    """The last comparison, with the certificate of what is written; a copy of the source needs none."""
    report = judgement.report
    if report is None or copied or report.differs or io.weight_bytes(model) > MOST_WEIGHTS:
        return report
    feeds = [p.feeds for p in judgement.probes]
    names = report.a, report.b
    found = certify_models(source(), model, feeds, names=names, seconds=_CERTIFYING, patience=patience, most=2)
    return replace(report, certificate=found)


def _check_tested(source: ModelFile, comparison: CompareReport | None) -> None:
    """Raises VerdictError where no run told anything of some output, and no certificate does."""
    if comparison is None or comparison.verdict != "not tested":
        return
    listed = ", ".join(f"{o.why_not_tested} in every run" for o in comparison.not_tested)
    raise VerdictError(
        f"{source}: not tested: {listed}. Nothing was written. Give --data FILE.npz with inputs that tell more; "
        "--allow-unproven writes the result all the same."
    )


def _chosen_fusions(
    fresh: Callable[[], ir.Model],
    names: list[str],
    asked: OptimizeOptions,
    judgement: OptimizationProof | None,
    options: SessionOptions,
    inputs: Sequence[TensorSpec],
    domains: Mapping[str, Domain],
) -> FusionChoice:
    """The passes without the fusions that do not pay: by the target's table, or timed here."""
    if asked.target is not None:
        return by_table(names, asked.target)
    if parse_level(asked.level) is not Level.ALL or judgement is None or not asked.bench:
        return FusionChoice(tuple(names), ())
    feeds = [p.feeds for p in judgement.probes[:2]]
    if asked.data is None:
        feeds = timing_feeds(inputs, asked.seed, domains, judgement.probes)
    try:
        return select_fusions(fresh, names, feeds, options, asked.max_folded_bytes)
    except FaultyPassError:  # then nothing can be timed, and `drop_faulty_passes` finds it again and drops it
        return FusionChoice(tuple(names), ())


def _check_options(level: Level, asked: OptimizeOptions, options: SessionOptions) -> None:
    """Raises UsageError for options that do not fit together, or an output that cannot be a file."""
    if asked.compiled is not None:
        if requested_providers(options) == (CPU,):
            raise UsageError("--compile needs a --provider that compiles models; the CPU does not.")
        io.check_model_output(Path(asked.compiled))
    if asked.target is not None and level is not Level.ALL:
        raise UsageError("--target chooses fusions of --level all; the other levels are the same for every processor.")


def _as_its_source(latency: LatencyRatio | None) -> LatencyRatio | None:
    """The latency of a result that is the source: what was slower is not in it."""
    if latency is None or latency.low <= 1:
        return latency
    return replace(latency, value=1.0, low=1.0, high=1.0, after=latency.before)


def _no_gain(attempt: BisectionAttempt, latency: LatencyRatio | None, source: ModelFile, output: Path) -> str:
    """Why the source is better left as it is; "" where the result is worth writing."""
    if not any(p.rewrites for p in attempt.result.passes):
        return f"nothing to gain: {output} is {source} unchanged"
    if latency is not None and latency.low > 1:
        return f"every result was slower than its source: {output} is {source} unchanged"
    return ""


def _on_providers(
    output: Path,
    judgement: OptimizationProof | None,
    options: SessionOptions,
    tolerance: Tolerance,
    form: CompiledForm | None,
) -> tuple[ProviderProof, ...]:
    """The result, and its compiled form, on the provider asked for, where that is not the CPU."""
    if judgement is None or requested_providers(options) == (CPU,):
        return ()
    feeds = [p.feeds for p in judgement.probes]
    files = [None] if form is None else [None, Path(form.output)]
    return tuple(prove_on_provider(output, options, feeds=feeds, tolerance=tolerance, file=file) for file in files)


def list_passes() -> PassListReport:
    """Every pass, built in or added by another package, in the order in which they run."""
    return PassListReport(describe_passes())


def _size(model: ir.Model, size: int) -> ModelSize:
    counts = operator_counts(model)
    return ModelSize(sum(counts.values()), counts, size)


def _write(
    attempt: BisectionAttempt,
    output: Path,
    before: ModelSize,
    level: Level,
    digest: str,
    dropped: Sequence[DroppedPass],
) -> None:
    """Write the result with its provenance, unless that makes the file larger than its source."""
    model = attempt.model
    model.metadata_props.pop(DIGEST_KEY, None)  # of the source
    plain = dict(model.metadata_props)
    details = {
        "source_sha256": digest,
        "level": level.value,
        "dropped": [d.name for d in dropped],
        "versions": versions("onnx", "onnx-ir", "onnxruntime"),
    }
    add_history(model, "optimize", details)
    external = stays_external(model, _LARGE_EXTERNAL)
    if not external and _excess(model, before) > 0:
        model.metadata_props.clear()
        model.metadata_props.update(plain)
        drop_labels(model, _excess(model, before))
    io.save(model, output, external=external, spare=(before.bytes, plain))


def _excess(model: ir.Model, before: ModelSize) -> int:
    """By how many bytes the file would be larger than the source."""
    return serialized_size(model) + DIGEST_BYTES - before.bytes

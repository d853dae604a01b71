"""Running the model before and after an operation on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.equality.certificate.models import certify_models
from onnxtool.equality.fixed_draws import with_fixed_draws
from onnxtool.equality.proof import judge_outputs
from onnxtool.equality.reference import Reference
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.tolerance import NUMBERS
from onnxtool.equality.trials.telling import telling_probes
from onnxtool.errors import InputError, OnnxToolError, UnsupportedError, VerdictError, one_line
from onnxtool.model.domains import input_domains
from onnxtool.model.ir.queries import input_specs
from onnxtool.model.randomness import random_operators
from onnxtool.optimization.type_inference import light_proto
from onnxtool.report.edit import Proof
from onnxtool.report.proof import Assumption
from onnxtool.runtime.feeds import Feeds, Outputs, edge_feeds, flatten
from onnxtool.runtime.probes import Probe, find_probes
from onnxtool.runtime.runner import Runner


def probes_of(model: ir.Model, context: EditContext, runner: Runner | None = None) -> Sequence[Probe]:
    """Inputs on which a model runs: random ones at several sizes of its dynamic dims, and values at the edges.

    Raises:
        InputError: the model runs on none.
    """
    runner = runner or context.runner(model)
    specs, domains = input_specs(model), input_domains(model)
    found = find_probes(runner, specs, context.seed, domains, advice="--no-verify takes the risk.")
    if all(isinstance(d, int) for s in specs for d in s.shape or (None,)):
        for _, feeds in edge_feeds(specs, domains):
            try:
                found.append(Probe(feeds, runner.run(feeds)))
            except OnnxToolError:
                continue  # a model need not take every value
    return [*found, *telling_probes(runner, specs, found, _silent, context.seed, domains)]


def _silent(runs: Sequence[Outputs]) -> set[str]:
    """Outputs that have no finite number in any run."""
    return {n for n in flatten(runs[0]) if all(_is_silent(outputs, n) for outputs in runs)}


def _is_silent(outputs: Outputs, name: str) -> bool:
    array = np.asarray(flatten(outputs).get(name, ()))
    return not array.size or (array.dtype.kind in "fV" and not np.isfinite(array.astype(np.float64)).any())


def same_outputs(
    before: ir.Model,
    after: ir.Model,
    context: EditContext,
    claim: str = "the outputs are equal to the last bit",
    *,
    feeds: Callable[[Feeds], Feeds] | None = None,
    expect: Callable[[Feeds, Outputs], Outputs] | None = None,
    exact: bool = True,
) -> Proof:
    """Run both models and hold their outputs against each other.

    Args:
        before: the reference.
        after: what is judged.
        context: tolerance and seed.
        claim: what holds when they are equal.
        feeds: what the new model gets where the old one gets these; the same unless given.
        expect: what the new model should give where the old one gives these (on its feeds, which come first);
            the same unless given.
        exact: floats must be equal to the last bit.

    Raises:
        VerdictError: an output differs, or the new model does not run.
    """
    before, after, draws = _with_draws(before, after, context)
    reference = context.runner(before)
    probes = probes_of(before, context, reference)
    if draws:
        return _runs(before, after, [feeds(p.feeds) if feeds else p.feeds for p in probes], context)
    pairs = []
    for probe in probes:
        outputs = flatten(probe.outputs)
        given = feeds(probe.feeds) if feeds else probe.feeds
        pairs.append((given, expect(probe.feeds, outputs) if expect else outputs))
    try:
        proof = compare(after, pairs, context, claim, exact=exact)
        same = feeds is None and expect is None
        return replace(proof, certified=same and _are_certified(before, after, [p.feeds for p in probes]))
    except VerdictError:
        if not exact or all(all(Reference(reference).repeats(p.feeds).values()) for p in probes):
            raise
        # Kernels on many threads may add in any order: the model itself gives other bits each time.
        return compare(after, pairs, context, claim, exact=False)


def _are_certified(before: ir.Model, after: ir.Model, feeds: Sequence[Feeds]) -> bool:
    """Whether exact arithmetic shows that two models are one function."""
    return certify_models(before, after, feeds, seconds=3, most=2).ok


def converted_outputs(
    before: ir.Model,
    after: ir.Model,
    context: EditContext,
    claim: str,
    *,
    forward: Callable[[Feeds], Feeds],
    back: Callable[[Feeds], Feeds],
    fixed: Mapping[str, tuple[int, ...]] | None = None,
) -> Proof:
    """Run the new model on its own kind of inputs, and the old one on what these stand for.

    Args:
        before: the reference.
        after: what is judged.
        context: tolerance and seed.
        claim: what holds when they are equal.
        forward: inputs of the new model, made of inputs of the old one.
        back: what inputs of the new model are for the old one.
        fixed: shapes of inputs that the operation has decided on.

    Raises:
        VerdictError: an output differs, or the new model does not run.
    """
    before, after, draws = _with_draws(before, after, context)
    reference = context.runner(before)
    decided = [s for s in input_specs(before) if s.name in (fixed or {})]
    if any(not isinstance(d, int) for s in decided for d in s.shape or (None,)):
        given: list[Feeds] = [p.feeds for p in probes_of(after, context)]
    else:
        given = [forward(p.feeds) for p in probes_of(before, context, reference)]
    if draws:
        return _runs(before, after, given, context)
    pairs = [(g, flatten(reference.run(dict(back(g))))) for g in given]
    return compare(after, pairs, context, claim)


def compare(
    model: ir.Model,
    cases: Iterable[tuple[Feeds, Outputs]],
    context: EditContext,
    claim: str,
    *,
    exact: bool = True,
) -> Proof:
    """Run a model on inputs and hold its outputs against what they should be.

    Args:
        model: what is judged.
        cases: its inputs, and the outputs that are right.
        context: how to run, and the tolerance unless `exact`.
        claim: what holds when they are equal.
        exact: floats must be equal to the last bit.

    Raises:
        VerdictError: an output differs, or the model does not run.
    """
    rule = Rule(NUMBERS if exact else context.tolerance, names=("the model", "the edited model"))
    probes = [Probe(dict(given), dict(expected)) for given, expected in cases]
    try:
        report = judge_outputs(context.runner(model), probes, rule)
    except InputError as error:
        raise VerdictError(f"the edited model does not run: {error}") from error
    for item in report.outputs:
        if item.other_name:
            raise VerdictError(f"the outputs are {item.other_name}, ... instead of {item.name}, ....")
        if not item.ok:
            told = item.note or f"{item.expected} became {item.actual} (max abs {item.max_abs:.3g})"
            raise VerdictError(f"the proof fails: output {item.name!r} differs: {told}.")
    context.warnings.extend(line for line in report.warnings if line not in context.warnings)
    context.assume(
        Assumption(f"output {o.name!r} has not changed", "unproven", f"in every run it was {o.untested}")
        for o in report.uninformed
    )
    largest = max((item.max_abs for item in report.outputs), default=0.0)
    return Proof(claim, len(probes), largest == 0.0, largest)


def same_graph(before: ir.Model, after: ir.Model) -> Proof:
    """Hold two graphs against each other without running them: nodes, inputs, outputs, and the weights themselves.

    Raises:
        VerdictError: they differ.
    """
    tensors = [{n: id(v.const_value) for n, v in m.graph.initializers.items()} for m in (before, after)]
    protos = [light_proto(m)[0] for m in (before, after)]
    for proto in protos:
        proto.graph.doc_string = ""
        proto.graph.ClearField("metadata_props")
    graphs = [p.graph.SerializeToString(deterministic=True) for p in protos]
    if tensors[0] != tensors[1] or graphs[0] != graphs[1]:
        raise VerdictError("the proof fails: the graph was changed.")
    return Proof("the graph and its weights are unchanged", certified=True)


def _with_draws(before: ir.Model, after: ir.Model, context: EditContext) -> tuple[ir.Model, ir.Model, bool]:
    """Both models with the same fixed draws; True where one draws and that cannot be done."""
    if not random_operators(before) and not random_operators(after):
        return before, after, False
    fixed = with_fixed_draws(before, after)
    if fixed is None:
        return before, after, True
    if fixed.note not in context.warnings:
        context.warnings.append(fixed.note)
    return fixed.a, fixed.b, False


def _runs(before: ir.Model, after: ir.Model, given: Sequence[Feeds], context: EditContext) -> Proof:
    outputs = ", ".join(v.name or "" for v in after.graph.outputs)
    reason = "the model draws random numbers in a way that cannot be fixed, so it only was run"
    context.assume([Assumption(f"the outputs {outputs} have not changed", "unproven", reason)])
    runner = context.runner(after)
    for feeds in given:
        runner.run(dict(feeds))
    names = ", ".join(sorted({*random_operators(before), *random_operators(after)}))
    return Proof("the edited model runs", len(given), False, 0.0, f"the values of {outputs}, because of {names}", False)


def verify_standard(model: ir.Model) -> None:
    """Check a model against the ONNX standard, without its large weights.

    Raises:
        VerdictError: it breaks a rule.
    """
    import onnx

    from onnxtool.runtime.worker.isolation import guarded

    light, _ = light_proto(model)
    _leave_out_external(light.graph)
    try:
        with guarded("checking the edited model", light.ByteSize()):
            onnx.checker.check_model(light)
    except onnx.checker.ValidationError as error:
        raise VerdictError(f"the edited model breaks the standard: {one_line(error)}") from error
    except Exception as error:
        raise UnsupportedError(f"the edited model cannot be checked: {one_line(error)}") from error


def _leave_out_external(graph: Any) -> None:
    """Small weights in other files become inputs: the checker would look for the files in the working folder."""
    import onnx

    kept = []
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
        else:
            kept.append(tensor.SerializeToString())
    if len(kept) != len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(onnx.TensorProto.FromString(data) for data in kept)

"""The proof: source model and ONNX graph on the same inputs, at several sizes of every dynamic dim."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxtool.conversion.adapter import SourceModel
from onnxtool.conversion.input_plan import row_inputs
from onnxtool.conversion.reduced_axes import count_axes_from_first
from onnxtool.conversion.source_code import read_code
from onnxtool.equality.certificate.sources import certify_source
from onnxtool.equality.proof import Proof, Search
from onnxtool.equality.reference import Answers, DescribedRunner, Reference, reference_of_source, ties_of_model
from onnxtool.equality.rule.difference import unequal
from onnxtool.equality.rule.rule import Rule
from onnxtool.equality.rule.ties import ConfirmedTies
from onnxtool.equality.rule.tolerance import Tolerance
from onnxtool.equality.search.difference import largest_difference
from onnxtool.equality.trials.graph_trials import facts_of
from onnxtool.errors import InputError, OnnxToolError, UnsupportedError, VerdictError, one_line
from onnxtool.model import io
from onnxtool.model.domains import Domain, input_domains
from onnxtool.model.io.lazy_read import WORTHWHILE
from onnxtool.model.ir.editing import release_mapped
from onnxtool.model.spec import TensorSpec
from onnxtool.optimization.pipeline import optimize_model
from onnxtool.options.convert import ConvertOptions
from onnxtool.options.shared import Effort
from onnxtool.report.certificate import CertificateReport
from onnxtool.report.compare import CompareReport
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds, adapt, feeds_bytes, flatten, random_feeds
from onnxtool.runtime.probes import Probe
from onnxtool.runtime.runner import OnnxRunner, Runner
from onnxtool.runtime.session.session import SessionOptions
from onnxtool.runtime.worker.apart import Apart, risks_of
from onnxtool.runtime.worker.isolation import guarded

# Sizes for batches, and for other dynamic dims: odd ones first, then multiples of 32 and of 224, which networks with
# strides or patch grids need. Every dim gets sizes of its own (`step` apart), so that none can pass for another;
# step 0 serves models in which two names must agree. What is long where the model was first run (the samples of a
# recording) is as much longer here, and what it is given along with (tokens) is not.
_BATCHES = (2, 1, 5)
_LENGTHS = (
    *(((16, 9, 23), 3), ((32, 64, 96), 32), ((224, 256, 288), 32), ((16, 9, 23), 0), ((32, 64, 96), 0)),
    *(((4096, 1713, 6001), 320), ((4096, 1713, 6001), 0)),
)
_LONG = 1024
_SAMPLE_ROWS = (32, 1, 5, 2)  # at most so many, then others
_CHEAP_ROWS = 100_000  # of a sample whose rows cost next to nothing
# From which distance on a source in float32 is told to be off itself in bfloat16, and refused. The roundings of 211
# families of transformers, at random weights, are at most 0.05, and half of them below 0.005.
_WIDER_TOLD, _WIDER_REFUSED = 0.05, 0.25
# Of a quantized model, kinds whose values may lie beyond its ranges.
_BEYOND_RANGES = (TrialKind.MISSING, TrialKind.MISSING_ROWS, TrialKind.VALUES, TrialKind.SEARCH)
# What the runtime says of an operator that no library has brought.
_UNREGISTERED = re.compile(r"([\w.]+:\w+)\(-?\d+\) is not a registered function/op")


# How long further sizes of a certificate are taken up; 0 for no certificate.
CERTIFICATE_SECONDS: dict[Effort, float] = {"quick": 0.0, "normal": 3.0, "thorough": 60.0}


class SourceProof:
    """Holds a source against graphs made of it. The source is run once, however many graphs are tried.

    Attributes:
        probes: inputs and the source's outputs; empty until the first comparison.
        further: the proof beyond these; None when there is none.
    """

    def __init__(
        self, model: SourceModel, options: ConvertOptions, tolerance: Tolerance, names: tuple[str, str] = ("A", "B")
    ) -> None:
        self.probes: list[Probe] = []
        self._as_given: list[Probe] = []
        self._model, self._options, self._names = model, options, names
        self._rule = Rule(tolerance, names=names)
        self.further: Proof | None = None

    def observe(self, graph: ir.Model) -> None:
        """Run the source; after this it is not needed any more.

        Args:
            graph: where the value ranges of its inputs are read off.

        Raises:
            InputError: the source fails on every input that was tried.
        """
        domains = input_domains(graph) | dict(self._model.feeds_hint or {})
        self.probes = probe(self._model, self._options, domains)
        self._as_given = as_given(self._model, self._options.sample)
        _hold_to_types(self._model, self.probes)

    def observe_further(self, graph: ir.Model, source: SourceModel, seconds: float, *, stays: bool) -> None:
        """Run the source on sizes and values that its graph and its code make worth trying.

        Args:
            graph: as the exporter left it.
            source: under supervision.
            seconds: that it took for the usual inputs.
            stays: it can still be run while graphs are judged.

        Raises:
            UnsupportedError: it gives something else for the first input now that it has run on others.
        """
        options, first = self._options, self.probes[0]
        code = read_code(lambda: source.run(first.feeds))
        if code.machine:
            source.notes.append(
                f"the model reads {' and '.join(code.machine[:3])}: the file keeps what it gave here and now"
            )
        facts = facts_of([graph], source.feeds_hint).with_hints(
            [*source.compared_sizes, *code.sizes], [*source.compared_values, *code.values], programmed=code.own
        )
        search = Search(
            options.effort,
            options.seed,
            2 * seconds,
            branches=0.3,
            difference=0.4,
            strict=options.strict,
            keep_as=options.keep_counterexample,
        )
        limits = (*source.limits, *(_BEYOND_RANGES if source.rounding else ()))
        self.further = Proof(
            Reference(source),
            self.probes,
            self._rule,
            search,
            facts,
            limits,
            specs=source.inputs,
            stays=stays,
            prepare=source.drop_tied_rows,
        )
        self.further.observe()
        _refuse_state(source, first)

    def compare(self, graph: ir.Model) -> CompareReport:
        """Run the graph on the same inputs as the source.

        Raises:
            InputError: the source fails on every input that was tried.
            UnsupportedError: the runtime refuses the graph, which is the exporter's fault and not the file's.
            VerdictError: the graph fails to run where the source does not.
        """
        if not self.probes:
            self.observe(graph)
        options, model = self._options, self._model
        release_mapped(graph)  # the runtime maps the file for itself
        weights = (value.const_value for inner in graph.graphs() for value in inner.initializers.values())
        spilled = any(isinstance(weight, ir.ExternalTensor) for weight in weights)
        # Weights on the disk stay there: no copies of them, rearranged or transposed.
        session = SessionOptions(custom_op_libraries=options.custom_op_libraries, prepack=not spilled, fold=not spilled)
        # As of the graph: what its kernels may die of, the source may take.
        runner = Apart(self._open(graph, session), graph, session, risks_of([graph]))
        known = replace(reference_of_source(model, graph), ties=self._ties(graph, session))
        proof = self.further or Proof(known, self.probes, self._rule)
        proof.origin = "the sample" if options.sample is not None else f"random, seed {options.seed}"
        source = proof.reference.runner
        proof.reference = replace(known, runner=source if proof.stays else Answers(source, self.probes, gone=True))
        try:
            report = proof.judge_usual(runner)
            if not report.differs and self._as_given:
                rounded = self._judge_as_given(known, runner)
                if rounded.differs:
                    model.notes.append("the file rounds the float64 of the sample; without --input-dtype it does not")
                    return rounded
            if not report.differs and proof.search is not None:
                usual, proof.certified = report, False
                report = proof.judge_beyond(usual, runner, {"the ONNX graph": graph}, session)
                found = self._certificate(graph) if report.differs and proof.stays else None
                if found is not None and found.same_function:  # then it may be rounding, which both models show
                    proof.certified = True
                    report = proof.judge_beyond(usual, runner, {"the ONNX graph": graph}, session)
        except InputError as error:
            raise VerdictError(
                f"{self._names[0]}: the ONNX graph fails where the source runs: {self._advised(str(error))}"
            ) from error
        model.notes.extend(w for w in report.warnings if w not in model.notes)
        return report

    def _judge_as_given(self, known: Reference, runner: Runner) -> CompareReport:
        """On the rows as the source sees them, before the file rounds them; no other rounding excuses that."""
        proof = Proof(known.seen_through(Answers(self._model, self._as_given)), self._as_given, self._rule)
        proof.origin = "the sample, which the file rounds to float32"
        return proof.judge_usual(runner)

    def certified(self, graph: ir.Model, report: CompareReport) -> CompareReport:
        """The comparison with the certificate, where the source tells its operators and its weights are few enough.

        Args:
            graph: as it is written.
            report: of the comparison; it stays as it is where outputs differ.
        """
        found = None if report.differs else self._certificate(graph, "normal" if report.is_untold else None)
        return report if found is None else replace(report, certificate=found)

    def _certificate(self, graph: ir.Model, effort: Effort | None = None) -> CertificateReport | None:
        """Of the source and its file; None where the source does not tell its operators, or the effort is too low."""
        seconds = CERTIFICATE_SECONDS[effort or self._options.effort]
        if type(self._model).operator_trace is DescribedRunner.operator_trace or not seconds:
            return None
        if io.weight_bytes(graph) > WORTHWHILE:
            reason = f"more than {WORTHWHILE >> 20} MiB of weights"
            return CertificateReport(*self._names, "not tested", reason=reason)
        feeds = [p.feeds for p in self.probes]
        return certify_source(self._model, graph, feeds, names=self._names, seconds=seconds)

    @property
    def tried(self) -> list[Feeds]:
        """All inputs that the source was given, those that it refused included."""
        return self.further.tried if self.further is not None else [p.feeds for p in self.probes]

    @property
    def seen(self) -> list[tuple[Feeds, Mapping[str, Any]]]:
        """Inputs with what the source gave."""
        findings = self.further.findings if self.further is not None else None
        trials = findings.observed.trials if findings is not None else []
        return [(p.feeds, p.outputs) for p in self.probes] + [(t.feeds, t.outputs) for t in trials if t.outputs]

    def changed_rows(self, graph: ir.Model) -> tuple[int, int] | None:
        """On how many rows of the first input the graph differs from the source, and of how many.

        Returns:
            None where outputs have no rows, or the graph does not run.
        """
        first = (self._as_given or self.probes)[0]
        try:
            given = flatten(OnnxRunner.open(graph).run(first.feeds))
        except OnnxToolError:
            return None
        found: list[np.ndarray] = []
        for name, expected in flatten(first.outputs).items():
            a, b = np.asarray(expected), np.asarray(given.get(name))
            if a.shape != b.shape or not a.ndim or not a.size or (found and len(found[0]) != len(a)):
                return None
            found.append(np.asarray(unequal(a, b, self._rule.tolerance).reshape(len(a), -1).any(axis=1)))
        rows = np.any(found, axis=0)
        return (int(rows.sum()), rows.size) if rows.any() else None

    def _ties(self, graph: ir.Model, session: SessionOptions) -> ConfirmedTies | None:
        """As of the graph, for what the source confirms."""
        found = ties_of_model(graph, graph.clone, session)
        return None if found is None else ConfirmedTies(found.choices, found.open, source=self._model)

    def _advised(self, trouble: str) -> str:
        """What went wrong, and what the adapter knows to do about it."""
        advice = self._model.advice
        return f"{trouble.rstrip('.')}. {advice}" if advice else trouble

    def _open(self, graph: ir.Model, session: SessionOptions) -> OnnxRunner:
        try:
            return OnnxRunner.open(graph, session)
        except UnsupportedError as error:
            foreign = _UNREGISTERED.search(str(error))
            if foreign is None:
                raise
            wanted = "another library" if session.custom_op_libraries else "the library"
            raise UnsupportedError(
                f"{self._names[0]}: operator {foreign[1]} is not one of the runtime's own. Name {wanted} that has it "
                "with --custom-op-library."
            ) from error
        except InputError as error:
            reason = str(error).removeprefix("the runtime refuses this model: ")
            raise UnsupportedError(
                f"{self._names[0]}: the exporter of {self._model.framework.split(',')[0]} wrote a graph that the "
                f"runtime refuses: {self._advised(reason)}"
            ) from error


def _hold_to_types(source: SourceModel, probes: Sequence[Probe]) -> None:
    """What the source gives in its own types: where the file computes in wider ones, roundings lie between the two.

    Raises:
        VerdictError: it cannot be rounding.
    """
    squares: dict[str, np.ndarray] = {}  # of the difference, and of the larger output, over all probes: some may cancel
    for probe in probes:
        try:
            given = source.as_written(probe.feeds)
        except InputError as error:
            source.notes.append(f"not held against the model in bfloat16, in which it does not run: {error}")
            return
        wide = flatten(probe.outputs)
        for name, array in ({} if given is None else flatten(given)).items():
            squares[name] = squares.get(name, 0) + _squares(np.asarray(wide[name]), np.asarray(array))
    off = {name: float(np.sqrt(apart / scale)) for name, (apart, scale) in squares.items() if scale}
    worst = max(off, key=off.__getitem__, default="")
    if not worst or off[worst] < _WIDER_TOLD:
        return
    said = f"{worst!r} computed in float32 is {off[worst]:.0%} off (root mean square) what the model gives in bfloat16"
    if off[worst] < _WIDER_REFUSED:
        source.notes.append(f"{said}: the file gives the former")
        return
    raise VerdictError(
        f"the output {said}, which is more than rounding. If float32 is right, make the model float32 before it is "
        "converted."
    )


def _squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Sums of squares: of a - b, and of the larger of both; zeros where they are no floats."""
    if a.dtype.kind not in "fV" or a.shape != b.shape:
        return np.zeros(2)
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    return np.array([np.square(a - b).sum(), max(np.square(a).sum(), np.square(b).sum())])


def _refuse_state(source: SourceModel, first: Probe) -> None:
    """The source once more on its first input: what it has run on since must not matter.

    Raises:
        UnsupportedError: it gives something else.
    """
    distance = largest_difference(first.outputs, source.run(first.feeds))
    if distance > 1 and not any("random numbers" in note for note in source.notes):
        raise UnsupportedError(
            "the model gives another result for an input after it has run on others: it keeps state outside its "
            "buffers, or draws random numbers. An ONNX file cannot do that; make what it remembers an input and an "
            "output."
        )


def cleaned_up(graph: ir.Model, proof: SourceProof, notes: list[str]) -> tuple[ir.Model, CompareReport]:
    """Clean the graph up with the optimizer's bit-exact passes, and prove the result; where that fails, prove it as
    the exporter left it.

    Returns:
        The graph to write (changed in place, or a copy of what it was) and its comparison.

    Raises:
        InputError, UnsupportedError, VerdictError: the graph does not run even as the exporter left it.
    """
    untouched = graph.clone()
    try:
        count_axes_from_first(graph)
        optimize_model(graph, "basic", exact=False)
        report = proof.compare(graph)
        if not report.differs:
            return graph, report
        trouble = "changed its results"
    except Exception as error:  # a bug of ours in a pass must not cost the user the conversion
        trouble = f"failed ({type(error).__name__}: {one_line(error, 200)})"
    plain = proof.compare(untouched)
    if not plain.differs:
        notes.append(f"left as the exporter wrote it: tidying it up {trouble}")
    return untouched, plain


def probe(model: SourceModel, options: ConvertOptions, domains: Mapping[str, Domain]) -> list[Probe]:
    """Run the source at three sizes of every dynamic dim: on rows of the sample, or on seeded random inputs.

    Sizes that the source itself refuses are left out, and said so in its notes.

    Raises:
        InputError: the sample does not fit, or the source runs on none of the sizes.
    """
    if options.sample is not None:
        return _runs(model, sample_feeds(model, options.sample))
    failure: InputError | None = None
    names = length_names(model.inputs)
    long = {name: size for name in names if (size := model.traced_sizes.get(name, 0)) >= _LONG}
    for lengths, step in _LENGTHS if names else _LENGTHS[:1]:
        feeds = [
            random_feeds(
                model.inputs,
                options.seed + run,
                dims={
                    name: length + position * step if name not in long else length * long[name] // _LENGTHS[0][0][0]
                    for position, name in enumerate(names)
                },
                batch=batch,
                length=length,
                domains=domains,
            )
            for run, (batch, length) in enumerate(zip(_BATCHES, lengths, strict=True))
        ]
        try:
            return _runs(model, feeds if is_dynamic(model.inputs) else feeds[:1])
        except InputError as error:
            failure = failure or error
    reason = failure or "there is no input to verify on."
    raise InputError(f"{str(reason).rstrip('.')}. The inputs were random ones: give rows that it takes with --sample.")


def length_names(inputs: Sequence[TensorSpec]) -> list[str]:
    """Names of dynamic dims that are nobody's first, in order."""
    first = {s.shape[0] for s in inputs if s.shape}
    rest = [dim for s in inputs for dim in (s.shape or ())[1:] if isinstance(dim, str)]
    return [dim for dim in dict.fromkeys(rest) if dim not in first]


def is_dynamic(inputs: Sequence[TensorSpec]) -> bool:
    """True when any dim of any input is not fixed."""
    return any(not isinstance(dim, int) for s in inputs for dim in (s.shape or (None,)))


def _runs(model: SourceModel, feeds: Sequence[dict[str, np.ndarray]]) -> list[Probe]:
    probes: list[Probe] = []
    failures: list[InputError] = []
    for given in feeds:
        try:
            feed = model.drop_tied_rows(given)
            with guarded("running the model", inputs=feeds_bytes(feed)):
                probes.append(Probe(feed, model.run(feed)))
        except InputError as error:
            failures.append(error)
            if not probes:
                break  # the first size fails: other lengths may do
    if not probes:
        raise failures[0]
    if failures:
        model.notes.append(f"the source itself refuses {len(failures)} of {len(feeds)} input sizes: {failures[0]}")
    return probes


def as_given(model: SourceModel, sample: Feeds | None) -> list[Probe]:
    """What the source gives for the sample's rows before they are rounded to the file's inputs.

    A source in doubles sees the user's rows as they are. A file of float32 inputs sees them rounded, and where a tree
    or another jump lies between the two, it answers with another number.

    Returns:
        One probe, whose feeds are in the types of the file's inputs; none where nothing is rounded.
    """
    if sample is None or not model.in_doubles:
        return []
    given = {name: np.asarray(array).dtype for name, array in sample.items()}
    lone = next(iter(given.values())) if len(given) == len(model.inputs) == 1 else None
    rounded = [given.get(s.name, lone) == np.float64 and s.dtype == np.float32 for s in model.inputs]
    if not any(rounded):
        return []
    wide = [replace(s, dtype=np.dtype(np.float64)) if r else s for s, r in zip(model.inputs, rounded, strict=True)]
    whole = model.drop_tied_rows({n: a[:_CHEAP_ROWS] for n, a in adapt(wide, sample).items()})
    return [Probe(adapt(model.inputs, whole), model.run(whole))]


def sample_feeds(model: SourceModel, sample: Feeds) -> list[dict[str, np.ndarray]]:
    """The sample as it is (up to 32 rows, of tables 100,000), and one and five rows where the batch dim is dynamic.

    A sample of fewer rows is repeated, so that other batches than its own are proven too.
    """
    whole = adapt(model.inputs, sample)
    batched = row_inputs(model.inputs, whole)
    rows = min((len(whole[name]) for name in batched), default=0)
    if rows == 0:
        return [whole]
    most = _CHEAP_ROWS if model.cheap_rows else _SAMPLE_ROWS[0]
    counts = list(dict.fromkeys((min(rows, most), *_SAMPLE_ROWS[1:])))[:3]
    return [{n: a[np.arange(count) % len(a)] if n in batched else a for n, a in whole.items()} for count in counts]

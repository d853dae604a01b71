"""What `compare` says: the outputs, what is wrong with them, and with --layers where the models part."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from onnxtool.cli.text import clean, cosine, number, plural
from onnxtool.cli.views.view import (
    Code,
    HistogramPlot,
    Line,
    Part,
    Point,
    Row,
    Scatter,
    Table,
    Verdict,
    When,
    state,
    warnings,
)
from onnxtool.report.compare import LOWEST_DECADE, CompareReport, ProviderProof, TensorDifference
from onnxtool.report.layers import LayerDifference, Layers, Reproducer, Suspect
from onnxtool.report.proof import Counterexample

# Rows of the table along the depth: all up to _ROWS, else about _SAMPLE of them and what is around the first wrong one.
_ROWS, _SAMPLE = 16, 8
_SUSPECTS = 20
_LOWEST_POWER = -9


def compare(report: CompareReport) -> Iterator[Part]:
    """One row for each output, then the worst element of every output that failed."""
    yield Verdict(_verdict(report), f"{report.a} against {report.b}")
    yield outputs(report.outputs, "kept" if report.budget else "equal")
    for item in report.outputs:
        yield from _output_details(item, report.top_k)
    for one in report.opinions:
        distances = f"{number(one.a_max_abs)} from A, {number(one.b_max_abs)} from B"
        yield Line(f"ONNX's reference on {one.output}: {one.summary} ({distances})", indent=2, whole=True)
    for item in report.outputs:
        yield from _histogram(item)
    if report.layers is not None:
        yield from _layers(report.layers)
    if report.certificate is not None:
        yield Line(f"{report.verdict}: {report.certificate.summary}", tone="dim", indent=2, whole=True)
    if report.coverage is not None:
        yield Line(f"also tested: {report.coverage.summary}", tone="dim", indent=2)
    yield from counterexample(report.counterexample)
    yield from provider_proofs(() if report.precision is None else (report.precision,))
    yield from warnings(report.warnings)
    if report.budget:
        yield Line(f"budget: {report.budget} (docs/quantize.md)", tone="dim", indent=2)
    elif report.rule:
        yield rule(report)


def _verdict(report: CompareReport) -> str:
    runs = f"({plural(len(report.runs), 'run')} on {report.data})"
    if report.nothing_compared and not report.differs:
        return f"no output was compared, so nothing is known of them {runs}"
    if report.unjudged and not report.differs:
        listed = ", ".join(repr(o.name) for o in report.unjudged)
        return f"not tested: nothing shows that both models draw the same random numbers for {listed} {runs}"
    if report.unlike_unreached and not report.differs:
        listed = ", ".join(map(str, report.unlike_unreached))
        return f"not tested: exact arithmetic does not find the same function, and no run took {listed} {runs}"
    if report.budget:
        return f"{'within' if report.ok else 'beyond'} the accuracy budget of quantize {runs}"
    outcome = ("equal" if report.ok else "equal where run") if report.equal else "different"
    limits = report.coverage is not None and report.coverage.limits
    found = f"no {'other ' if limits else ''}difference found"
    if report.equal and limits:
        outcome += f" but for what a warning names; {found}"
    doubted = report.certificate if report.verdict == "tested" else None
    if doubted is not None and doubted.unlike:
        outcome = f"not shown to be the same function; {found}"
    elif doubted is not None and doubted.same_function:
        outcome = f"the same function but for rounding, NaN or infinity; {found}"
    elif doubted is not None and report.ok:
        outcome = f"not decided by exact arithmetic; {found}"
    if report.verdict == "not tested":
        listed = ", ".join(o.why_not_tested for o in report.not_tested)
        outcome = f"not tested: {listed} in every run; {found}"
    own, left = sum(item.rtol is not None for item in report.outputs), len(report.not_compared)
    but = f", {plural(own, 'output')} by {'its' if own == 1 else 'their'} own tolerance" if own else ""
    but += f", {plural(left, 'output')} not compared" if left else ""
    return f"{outcome} within rtol {report.rtol:g}, atol {report.atol:g}{but} {runs}"


def outputs(items: Sequence[TensorDifference], good: str = "equal") -> Table:
    """A row for each output; `good` is the word for one that is within its limits."""
    rows: list[Row] = [
        (
            o.name,
            f"{o.dtype}[{', '.join(map(str, o.shape))}]",
            *(number(v) for v in (o.max_abs, o.max_rel, o.mean_abs)),
            cosine(o.cosine, 7),
            number(o.sqnr_db),
            state((good if o.ok else "differs") if o.compared else "not compared"),
        )
        for o in items
    ]
    numbers = ("max abs", "max rel", "mean abs", "cosine", "SQNR dB")
    # The mean error is the least telling one.
    return Table(("output", "shape", *numbers, "verdict"), rows, numbers=numbers, wide=("mean abs",))


def rule(report: CompareReport) -> Line:
    """By which rule two outputs count as equal."""
    return Line(f"rule: {report.rule} (docs/equality.md)", tone="dim", indent=2)


def counterexample(found: Counterexample | None) -> Iterator[Line]:
    """The input that shows a difference."""
    if found is not None:
        yield Line(str(found), "differs with", "bad", indent=2, whole=True)


def provider_proofs(proofs: Iterable[ProviderProof]) -> Iterator[Line]:
    """A model on other providers, one line each."""
    for proof in proofs:
        yield Line(proof.summary, "provider", "bad" if not proof.ok else "warn" if proof.reduced else "good")


def why(item: TensorDifference) -> str:
    """What is wrong with an output: how many elements, and the worst one."""
    if item.note:
        return item.note
    where = list(item.worst_index or ())
    return (
        f"{item.mismatched} of {item.total} elements outside tolerance; worst at {where} of run {item.worst_run + 1}: "
        f"{item.expected} against {item.actual}"
    )


def _output_details(item: TensorDifference, top_k: int) -> Iterator[Line]:
    """What is wrong with an output, then what its numbers do not say."""
    if not item.ok or item.note:
        yield Line(f"{item.name}: {why(item)}", indent=2, whole=True)
    parts = []
    if item.max_ulp is not None:
        parts.append(f"at most {item.max_ulp} units in the last place")
    if item.top1 is not None:
        parts.append(f"the largest element of a row is the same in {item.top1:.2%} of rows")
    if item.top_k is not None:
        parts.append(f"of its {top_k} largest, {item.top_k:.2%} are the same ones")
    for what, (a, b) in (("NaN", item.nans), ("infinite", item.infinities)):
        if a or b:
            parts.append(f"{what}: {a} in A, {b} in B")
    if item.ok and item.worst_index is not None:
        parts.append(f"worst at {list(item.worst_index)}: {item.expected} against {item.actual}")
    odd = any(item.nans) or any(item.infinities)
    if parts:
        yield Line(f"{item.name}: {'; '.join(parts)}", indent=2, whole=True, when="always" if odd else "full")


def _histogram(item: TensorDifference) -> Iterator[HistogramPlot]:
    if sum(item.error_decades[1:]):
        labels = ("0", *(f"1e{LOWEST_DECADE + i}" for i in range(len(item.error_decades) - 1)))
        counted = tuple(zip(labels, item.error_decades, strict=True))
        title = f"{item.name}: elements by their error"
        yield HistogramPlot(title, counted, "absolute error, |a - b|, from", "elements, by their logarithm")


def _layers(layers: Layers) -> Iterator[Part]:
    """The error along the depth, and who is to blame."""
    legend = (("dot-good", "within tolerance"), ("dot-bad", "outside"))
    up = f"relative error, no less than 1e{_LOWEST_POWER}"
    yield Scatter("Error along the depth", [_dot(t) for t in layers.tensors], "depth", up, legend, powers=True)
    yield _layer_table(layers, _excerpt(layers), "brief")
    yield _layer_table(layers, layers.tensors, "full")
    if layers.unmatched_b:
        yield Line(f"{layers.unmatched_b} tensors of B have no partner in A, {layers.unmatched_a} of A none in B")
    suspects: tuple[Suspect, ...] = ()
    if layers.culprit is not None:
        yield Line(f"{layers.culprit.tensor}, made by", "first wrong tensor:", "bad", whole=True)
        suspects = layers.culprit.suspects
    elif layers.changed:
        yield Line("every tensor agrees on these inputs, but weights differ:")
        suspects = layers.changed
    else:
        others = " other" if any(t.reused for t in layers.tensors) else ""
        yield Line(f"every{others} tensor agrees", tone="good")
    for index, suspect in enumerate(suspects[:_SUSPECTS]):
        yield Line(_suspect(suspect), indent=2, whole=True, when="always" if index < 5 else "full")
    if layers.reproducer is not None:
        yield from _reproducer(layers.reproducer)


def _dot(item: LayerDifference) -> Point:
    power = math.log10(item.error) if 0 < item.error < math.inf else -math.inf if item.error <= 0 else math.inf
    height = min(max(power, _LOWEST_POWER), 1)
    label = f"{item.operator} {item.name}: {number(item.error)}"
    return Point("dot-good" if item.ok or item.reused else "dot-bad", item.depth, height, label)


def _layer_table(layers: Layers, shown: Sequence[LayerDifference], when: When) -> Table:
    """A row for each tensor; dots where some are left out."""
    rows: list[Row] = []
    previous = -1
    for index in (layers.tensors.index(item) for item in shown):
        if index != previous + 1:
            rows.append(("", "...", "", "", "", "", ""))
        rows.append(_layer(layers.tensors[index], everything=when == "full"))
        previous = index
    columns = ("#", "operator", "tensor", "shape", "max abs", "rel error", "")
    title = "along the depth" if when == "brief" else ""  # where there is room, the picture above has it
    return Table(columns, rows, ("#", "max abs", "rel error"), title, when=when)


def _layer(item: LayerDifference, everything: bool) -> Row:
    # Tensors that were known again by their sketches alone have no shape, and no error was measured.
    unmeasured = item.matched_by == "value" and not item.shape
    # A framework's layer is called what people call it; the tensor in the file is told where there is room.
    both = item.name != item.other_name and (unmeasured or item.matched_by == "name" or everything)
    name = f"{item.other_name} = {item.name}" if both else item.name
    shape = "by value" if unmeasured else "x".join(map(str, item.shape))
    measured = ("", "") if unmeasured else (number(item.max_abs), number(item.error))
    verdict = state("equal" if item.ok else "other tensor" if item.reused else "differs")
    return str(item.depth), item.operator, clean(name, 60), shape, *measured, verdict


def _excerpt(layers: Layers) -> Sequence[LayerDifference]:
    """What surrounds the first wrong tensor, and a sample of the rest."""
    items = layers.tensors
    if len(items) <= _ROWS:
        return items
    kept = set(range(0, len(items), max(1, len(items) // _SAMPLE))) | {len(items) - 1}
    if layers.culprit is not None:
        first = next((i for i, item in enumerate(items) if item.name == layers.culprit.tensor), 0)
        kept |= set(range(max(0, first - 2), min(len(items), first + 3)))
    return [items[i] for i in sorted(kept)]


def _suspect(suspect: Suspect) -> str:
    changed = f", which reads changed {', '.join(suspect.changed_weights)}" if suspect.changed_weights else ""
    if suspect.explaining_weights:
        changed += f": a change of {' or '.join(suspect.explaining_weights)} alone explains the folded weights"
    inputs = f" ({clean(', '.join(suspect.inputs), 160)})" if suspect.inputs else ""
    return f"{suspect.model}: {suspect.operator} {suspect.node}{inputs}{changed}"


def _reproducer(found: Reproducer) -> Iterator[Part]:
    nodes = f"{found.nodes_a} and {found.nodes_b} nodes"
    if found.differs:
        yield Line(f"the part that differs ({nodes}, off by {number(found.max_abs)}) shows it alone:")
    else:
        yield Line(f"the part ({nodes}) does not differ alone: the difference needs its surroundings", tone="warn")
    yield Code([f"  {line}" for line in found.command])

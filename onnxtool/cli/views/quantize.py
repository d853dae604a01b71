"""What `quantize` says: float and quantized side by side, what was tried, what was done, and the error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxtool.cli.text import cosine, duration, interval, number, plural, size
from onnxtool.cli.views.compare import provider_proofs
from onnxtool.cli.views.view import LATENCY, Cell, Facts, Part, Point, Row, Scatter, Table, Verdict, state, warnings
from onnxtool.report.quantize import Candidate, Fidelity, QuantizeReport

_KERNELS, _CANDIDATES = 8, 6
_BEST_DB = 80.0  # above it all are alike


def quantize(report: QuantizeReport) -> Iterator[Part]:
    """Float and quantized side by side, then what was done and the error."""
    yield Verdict(report.output or report.verdict, report.source)
    if report.ok:
        yield _gain(report)
    yield _scatter(report)
    yield from _candidates(report)
    yield Facts(_facts(report, _KERNELS), when="brief")
    yield Facts(_facts(report, None), when="full")
    yield from provider_proofs(report.providers)
    yield from warnings(report.warnings)


def _facts(report: QuantizeReport, kernels: int | None) -> Sequence[tuple[str, str]]:
    """What was done; of the kernels the first `kernels`."""
    shown = ", ".join(f"{n} {name}" for name, n in list(report.kernels.items())[:kernels])
    rest = 0 if kernels is None else len(report.kernels) - kernels
    return (
        ("not run", _not_run(report)),
        ("recipe", report.summary),
        ("quantized", ", ".join(f"{done} of {n} {op}" for op, (done, n) in report.quantized.items())),
        ("kernels", shown + (f" and {plural(rest, 'other kind')}" if rest > 0 else "")),
        ("ranges", report.calibration),
        ("accuracy", _accuracy(report)),
        ("error", _error(report.fidelity)),
        ("budget", report.budget),
        ("recipe file", report.recipe_file),
        ("took", duration(report.seconds)),
    )


def _gain(report: QuantizeReport) -> Table:
    rows = [("size", size(report.bytes_before), size(report.bytes_after), f"{report.size_ratio:.3f}")]
    if report.latency is not None:
        one = report.latency
        ratio = interval(one.value, one.low, one.high, digits=3)
        rows.append(("latency", duration(one.before), duration(one.after), ratio))
    if report.metric is not None:
        metric = report.metric
        points = f"{0.0 - metric.drop * 100:+.2f} points"
        rows.append((metric.name, f"{metric.float_value:.4f}", f"{metric.value:.4f}", points))
    numbers = ("float", "quantized", "ratio")
    return Table(("", *numbers), rows, numbers)


def _candidates(report: QuantizeReport) -> Iterator[Table]:
    """The fastest candidates; where there is room all of them, with their recipes and what kept them from being run."""
    ordered = sorted(report.frontier, key=lambda c: (c.latency is None, c.latency.value if c.latency else 0.0))
    measured = [c for c in ordered if c.fidelity is not None]
    few = [c for i, c in enumerate(measured) if i < _CANDIDATES or c.chosen]
    title = f"{len(report.frontier)} recipes tried"
    shorter = f"{title}, the fastest {_CANDIDATES}" if len(few) < len(measured) else title
    quality = "SQNR dB" if report.metric is None else report.metric.name
    numbers: tuple[str, ...] = ("size", "latency", quality)
    rows = [_short(c, by_metric=report.metric is not None) for c in few]
    yield Table(("recipe", *numbers, "budget"), rows, numbers, shorter, chosen=_chosen(few), when="brief")
    numbers = ("size", "latency [95 %]", "SQNR dB", "same argmax", "metric")
    columns = ("candidate", "recipe", *numbers, "budget")
    rows, wide = [_long(c) for c in ordered], ("recipe", "same argmax")
    yield Table(columns, rows, numbers, title, wide=wide, chosen=_chosen(ordered), when="full")


def _chosen(shown: Sequence[Candidate]) -> int:
    return next((i for i, c in enumerate(shown) if c.chosen), -1)


def _short(one: Candidate, by_metric: bool) -> Row:
    _, _, bytes_, _, db, _, metric, budget = _long(one)
    latency = "-" if one.latency is None else f"{one.latency.value:.3f}"
    return one.name, bytes_, latency, metric if by_metric else db, budget


def _long(one: Candidate) -> Row:
    fidelity, speed = one.fidelity, one.latency
    return (
        f"{one.name}: {one.note}" if one.note else one.name,
        one.recipe,
        size(one.bytes),
        "-" if speed is None else interval(speed.value, speed.low, speed.high, digits=3),
        "-" if fidelity is None else number(fidelity.channel_db),
        "-" if fidelity is None or fidelity.agreement is None else f"{fidelity.agreement:.2%}",
        "-" if one.metric is None else f"{one.metric.value:.4f}",
        budget_word(one),
    )


def budget_word(one: Candidate) -> Cell:
    """Whether a candidate keeps the budget; "-" as in other columns: not measured (or on too few samples to tell)."""
    if one.within_budget:
        return state("kept")
    return "-" if one.fidelity is None or one.note else state("broken")


def _scatter(report: QuantizeReport) -> Scatter:
    """Speed and accuracy of what was tried, where both are known."""
    tried = [c for c in report.frontier if c.latency is not None and c.fidelity is not None]
    by_metric = sum(c.metric is not None for c in tried) >= 3
    points = [_point(c, q) for c in tried if (q := _quality(c, by_metric)) is not None]
    up = report.metric.name if by_metric and report.metric else "signal to noise, dB"
    legend = (("best", "chosen"), ("kept", "within the budget"), ("broken", "beyond it, or not measured closely"))
    return Scatter("Speed and accuracy of what was tried", points, LATENCY, up, legend, mark=1)


def _quality(one: Candidate, by_metric: bool) -> float | None:
    if by_metric:
        return None if one.metric is None else one.metric.value
    assert one.fidelity is not None
    return min(one.fidelity.channel_db, _BEST_DB)


def _point(one: Candidate, quality: float) -> Point:
    assert one.latency is not None
    label = f"{one.name}: latency {one.latency.value:.3f}, {size(one.bytes)}, {number(quality)}"
    return Point("best" if one.chosen else "kept" if one.within_budget else "broken", one.latency.value, quality, label)


def _not_run(report: QuantizeReport) -> str:
    """How many candidates could not be built or run, and why the first of them could not."""
    failed = [c for c in report.frontier if c.note and c.fidelity is None and c.latency is None]
    return f"{len(failed)} of {len(report.frontier)}: {failed[0].note}" if failed else ""


def _accuracy(report: QuantizeReport) -> str:
    """What is lost at most, in one line: of labels, else of classes, else by the weakest column."""
    metric, found = report.metric, report.fidelity
    level = f"{report.confidence * 100:g} %"
    if metric is not None:
        name = "" if metric.name == "accuracy" else f"{metric.name} "
        change = f"{name}{metric.float_value * 100:.1f} % -> {metric.value * 100:.1f} %"
        samples = plural(metric.samples, "sample")
        if metric.drop_at_most is None:
            return f"{change}  ({samples})"
        more = f"; {metric.needed:,} would show the budget" if metric.needed else ""
        return f"{change}  (loses at most {max(metric.drop_at_most, 0) * 100:.1f} points, {level}, {samples}{more})"
    if found is None:
        return ""
    if found.agreement is None or found.drop_at_most is None:
        return _off(found, level)
    what = "characters" if found.sequences else "classes"
    return (
        f"same {what} {found.agreement * 100:.1f} %  (loses at most {found.drop_at_most * 100:.2f} points by "
        f"float's own outputs, {level}, {plural(found.samples, 'sample')})"
    )


def _off(found: Fidelity, level: str) -> str:
    """What the weakest column loses (of its variance, or of what its name says), at most, and what is allowed; of
    vectors what their neighbours lose.
    """
    samples = plural(found.samples, "sample")
    if found.column_db is None and found.neighbours is not None:
        lost, most = (f"{100 - 100 * (v or 0.0):.2g} %" for v in (found.neighbours, found.at_bound("neighbours")))
        return f"what is nearest loses {lost}  (at most {most}, {level}, {samples})"
    if found.column_db is None:
        return ""
    needed = found.column_db - found.margin_db
    least = found.at_bound("margin_db") or 0.0
    off, most, allowed = (f"{100 * 10 ** (-db / 10):.2g} %" for db in (found.column_db, needed + least, needed))
    return f"{found.weakest} loses {off}  (at most {most}, {level}, {samples}; {allowed} is allowed)"


def _error(found: Fidelity | None) -> str:
    """One line on how far the outputs are from float."""
    if found is None:
        return ""
    agreement = "" if found.agreement is None else f", same argmax {found.agreement * 100:.2f} %"
    if found.column_db is not None:
        agreement += f", weakest {found.weakest} at {number(found.column_db)} dB"
    if found.neighbours is not None:
        agreement += f", {found.neighbours * 100:.1f} % of what is nearest kept"
    samples = plural(found.samples, "sample")
    return f"SQNR {number(found.sqnr_db)} dB, cosine {cosine(found.cosine)}{agreement} ({samples})"

"""What `build`, `init` and `cache` say."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from onnxtool.cli.text import duration, size
from onnxtool.cli.views.view import (
    LATENCY,
    Bars,
    Facts,
    Line,
    Part,
    Point,
    Row,
    Scatter,
    Table,
    Verdict,
    When,
    Words,
    state,
    warnings,
)
from onnxtool.report.build import (
    BuildHistoryReport,
    BuildReport,
    CacheReport,
    InitReport,
    ModelOutcome,
    PastBuild,
    StepOutcome,
)

_NEAREST, _BUILDS = 5, 20
# Beyond this many models there are no bars: nobody reads a thousand of them.
_BARS = 60
_STATES = ("built", "unchanged", "stale", "failed")
_MARKS = {"built": "", "cached": ""}


def build(report: BuildReport) -> Iterator[Part]:
    """One row for each model; why it is stale or failed below; every step where there is room."""
    counts = {name: sum(m.state == name for m in report.models) for name in _STATES}
    told = ", ".join(f"{n} {name}" for name, n in counts.items() if n)
    steps = f"{report.count('built')} steps run, {report.count('cached')} from the cache"
    if report.dry_run:
        steps = f"{report.count('stale')} steps stale, {report.count('cached')} in the cache"
    where = f"{report.jobs} at a time, {report.executor}" if report.jobs > 1 else report.executor
    yield Verdict(f"{told}; {steps}; {duration(report.seconds)}", f"{report.file} on {report.processor}; {where}")
    rows = [
        (
            Words(m.name, link=f"models/{quote(page_name(m))}"),
            state(m.state),
            ", ".join(s.command + _MARKS.get(s.state, f" ({s.state})") for s in m.steps),
            size(m.bytes) if m.bytes else "",
            "" if m.seconds is None else duration(m.seconds),
            "" if m.ratio is None else f"{m.ratio:.2f}",
            "" if m.drop is None else f"{m.drop:.2%}",
        )
        for m in report.models
    ]
    numbers = ("size", "latency", "of float", "drop")
    yield Table(("model", "state", "steps", *numbers), rows, numbers)
    for model in report.models:
        yield from _details(model)
    built = [m for m in report.models if m.bytes]
    if 1 < len(built) <= _BARS:
        yield Bars("Size of the outputs", [(m.name, m.bytes, size(m.bytes)) for m in built], few=_BARS)
    yield from (_step(m, step, "full") for m in report.models for step in m.steps if step.state != "stale")


def _details(model: ModelOutcome) -> Iterator[Part]:
    if model.error:
        yield Line(model.error, f"{model.name}:", "bad")
    yield from (_step(model, step) for step in model.steps if step.state == "stale")
    yield from (Line(f"{model.name}: {note}") for note in model.notes)
    if model.error and model.candidates:
        yield candidates(model, few=True)


def _step(model: ModelOutcome, step: StepOutcome, when: When = "always") -> Line:
    told = "; ".join(filter(None, (step.reason, step.summary)))
    return Line(f"{model.name}: {step.command} {step.state}: {told}", when=when)


def candidates(model: ModelOutcome, few: bool = False) -> Table:
    """The candidates, those nearest to the limits first; a few of them and those that no other beats."""
    shown = [c for i, c in enumerate(model.candidates) if not few or i < _NEAREST or c.pareto]
    rows = [
        (
            c.name,
            size(c.bytes),
            "-" if c.seconds is None else duration(c.seconds),
            "-" if c.ratio is None else f"{c.ratio:.2f}",
            "-" if c.drop is None else f"{c.drop:.2%}",
            "Pareto" if c.pareto else "",
        )
        for c in shown
    ]
    numbers = ("size", "latency", "of float", "drop")
    return Table(("nearest candidates", *numbers, "front"), rows, numbers)


def page_name(model: ModelOutcome) -> str:
    """The file of a model's page, in the folder beside the index."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in model.name) + ".html"


def model_page(model: ModelOutcome) -> Iterator[Part]:
    """What the page of one model shows."""
    if model.error:
        yield Line(model.error, tone="bad")
    yield from (Line(note) for note in model.notes)
    if model.output:
        yield Line(f"{model.output}, {size(model.bytes)}, SHA-256 {model.sha256}")
    steps = [(s.command, state(s.state), s.summary or s.reason, duration(s.seconds)) for s in model.steps]
    yield Table(("step", "state", "result", "time"), steps, ("time",))
    limits: list[Row] = [
        (
            c.name,
            f"{c.limit:.6g}",
            "-" if c.value is None else f"{c.value:.6g}",
            state("passed" if c.kept else "failed"),
        )
        for c in model.constraints
    ]
    yield Table(("limit", "at most", "measured", "verdict"), limits, ("at most", "measured"), "Limits")
    points = [
        Point("kept" if c.pareto else "broken", c.ratio, c.bytes / 1e6, c.name)
        for c in model.candidates
        if c.ratio is not None
    ]
    legend = (("kept", "no other is better in all"), ("broken", "another is better"))
    yield Scatter("Candidates", points, LATENCY, "size, MB", legend, mark=1)
    yield candidates(model)


def build_history(report: BuildHistoryReport) -> Iterator[Part]:
    """The latest builds, and what became of each model's size and latency since its first one."""
    yield Verdict(f"{len(report.builds)} builds of {report.file}")
    rows = [
        (
            b.when,
            state("OK", "good") if b.ok else state("FAILED", "bad"),
            *(str(b.built), str(b.cached), str(b.failed)),
            duration(b.seconds),
        )
        for b in report.builds
    ]
    numbers = ("built", "cached", "failed", "time")
    yield Table(("when", "verdict", *numbers), rows[-_BUILDS:], numbers, when="brief")
    yield Table(("when", "verdict", *numbers), rows, numbers, when="full")
    names = sorted({name for b in report.builds for name in b.outputs})
    trends = [(name, *_trend([b for b in report.builds if name in b.outputs], name)) for name in names]
    yield Table(("model", "builds", "outputs", "size", "latency"), trends, ("builds", "outputs"))


def _trend(builds: list[PastBuild], name: str) -> tuple[str, ...]:
    outputs = [build.outputs[name] for build in builds]
    times = [seconds for _, _, seconds in outputs if seconds is not None]
    sizes = [count for _, count, _ in outputs]
    return (
        str(len(outputs)),
        str(len({digest for digest, _, _ in outputs})),
        f"{size(sizes[0])} -> {size(sizes[-1])}",
        f"{duration(times[0])} -> {duration(times[-1])}" if times else "",
    )


def cache(report: CacheReport) -> Iterator[Part]:
    """What is there, and what went."""
    removed = ""
    if report.removed_bytes or report.removed_entries:
        removed = f"{report.removed_entries} results, {report.removed_files} files, {size(report.removed_bytes)}"
    yield Verdict(f"{size(report.bytes)} in {report.files} files")
    rows = (
        ("cache", report.place),
        ("results", report.entries),
        ("files", report.files),
        ("size", size(report.bytes)),
        ("removed", removed),
        ("damaged", ", ".join(report.damaged)),
    )
    yield Facts(rows)


def init(report: InitReport) -> Iterator[Part]:
    """The models with what they were recognised as."""
    yield Verdict(f"wrote {report.output}; next: onnxtool build {report.output}")
    yield Facts(tuple(report.models.items()))
    yield from warnings(f"{name}: not a model in a form that is known; left out" for name in report.unknown)

"""The index page of `build`: every model with its state, limits and candidates, and a page for each model beside it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from onnxtool.cli.render.html.parts import table, text
from onnxtool.cli.render.html.plots import Bar, bars
from onnxtool.cli.render.text import duration, size
from onnxtool.report.build import BuildReport, ModelOutcome

# Beyond this many models the index shows no bars: nobody reads a thousand of them.
_BARS = 60


def body(report: BuildReport) -> Iterator[str]:
    """The page's parts."""
    where = f"{report.jobs} at a time, {report.executor}" if report.jobs > 1 else report.executor
    yield f"<p>{text(report.file)} on {text(report.processor)}; {text(where)}; {duration(report.seconds)}</p>"
    head = "".join(f"<th>{c}</th>" for c in ("model", "state", "steps", "size", "latency", "of float", "drop"))
    rows = "".join(_row(m) for m in report.models)
    yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    built = [m for m in report.models if m.bytes]
    if len(built) > 1 and len(built) <= _BARS:
        yield "<h2>Size of the outputs</h2>"
        yield bars([Bar(m.name, m.bytes, size(m.bytes)) for m in built])


def page_name(model: ModelOutcome) -> str:
    """The file of a model's page, in the folder beside the index."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in model.name) + ".html"


def _row(model: ModelOutcome) -> str:
    colour = {"failed": "bad", "built": "good", "stale": "warn"}.get(model.state, "")
    cells = (
        ", ".join(f"{s.command} ({s.state})" for s in model.steps),
        size(model.bytes) if model.bytes else "",
        "" if model.seconds is None else duration(model.seconds),
        "" if model.ratio is None else f"{model.ratio:.2f}",
        "" if model.drop is None else f"{model.drop:.2%}",
    )
    link = f'<a href="models/{quote(page_name(model))}">{text(model.name)}</a>'
    error = f'<br><span class="bad">{text(model.error)}</span>' if model.error else ""
    rest = "".join(f"<td>{text(c)}</td>" for c in cells)
    return f'<tr><td>{link}</td><td class="{colour}">{text(model.state)}{error}</td>{rest}</tr>'


def write_model_pages(report: BuildReport, index: Path) -> None:
    """Write a page for each model into the folder `models` beside the index."""
    from onnxtool.cli.output import _write_text
    from onnxtool.cli.render.html.page import skeleton

    folder = index.parent / "models"
    folder.mkdir(parents=True, exist_ok=True)
    for model in report.models:
        body = "\n".join(_model_body(model, report, index.name))
        _write_text(folder / page_name(model), skeleton(f"build: {escape(model.name)}", body))


def _model_body(model: ModelOutcome, report: BuildReport, index: str) -> Iterator[str]:
    yield f'<p><a href="../{quote(index)}">all models</a></p>'
    if model.error:
        yield f'<p class="bad">{text(model.error)}</p>'
    yield from (f"<p>{text(note)}</p>" for note in model.notes)
    if model.output:
        yield f"<p>{text(model.output)}, {size(model.bytes)}, SHA-256 {text(model.sha256)}</p>"
    rows = [(s.command, s.state, s.summary or s.reason, duration(s.seconds)) for s in model.steps]
    yield table(("step", "state", "result", "time"), rows, right=1)
    if model.constraints:
        limits = [
            (c.name, f"{c.limit:.6g}", "-" if c.value is None else f"{c.value:.6g}", "passed" if c.kept else "failed")
            for c in model.constraints
        ]
        yield "<h2>Limits</h2>"
        yield table(("limit", "at most", "measured", "verdict"), limits)
    yield from _candidates(model)
    yield from _step_pages(model, report)


def _candidates(model: ModelOutcome) -> Iterator[str]:
    if not model.candidates:
        return
    yield "<h2>Candidates, the nearest to the limits first</h2>"
    yield _front(model)
    rows = [
        (
            c.name,
            "Pareto" if c.pareto else "",
            size(c.bytes),
            "-" if c.ratio is None else f"{c.ratio:.2f}",
            "-" if c.drop is None else f"{c.drop:.2%}",
        )
        for c in model.candidates
    ]
    yield table(("candidate", "front", "size", "of float", "drop"), rows, right=3)


def _front(model: ModelOutcome) -> str:
    """Latency against size: the Pareto front is filled."""
    points = [c for c in model.candidates if c.ratio is not None]
    if not points:
        return ""
    widest = max(c.ratio or 0 for c in points) * 1.05
    tallest = max(c.bytes for c in points) * 1.05
    parts = [
        '<line class="grid" x1="60" x2="780" y1="260" y2="260"/><line class="grid" x1="60" x2="60" y1="10" y2="260"/>'
    ]
    for point in points:
        x = 60 + 720 * (point.ratio or 0) / widest
        y = 260 - 250 * point.bytes / tallest
        kind = "kept" if point.pareto else "broken"
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{text(point.name)}</title></circle>'
        )
    parts.append(
        '<text x="420" y="280" text-anchor="middle">latency against float</text><text x="4" y="20">size</text>'
    )
    return f'<div class="picture"><svg viewBox="0 0 800 290" role="img">{"".join(parts)}</svg></div>'


def _step_pages(model: ModelOutcome, report: BuildReport) -> Iterator[str]:
    """What the page of each step's own report shows."""
    from onnxtool.report.from_plain import report_from_plain
    from onnxtool.workflow.store import Store

    store = Store(Path(report.cache))
    for step in model.steps:
        entry = store.entry(step.key) if step.key else None
        module = f"onnxtool.cli.render.html.{step.command}"
        if entry is None or find_spec(module) is None:
            continue
        yield f"<h2>{text(step.command)}</h2>"
        yield from import_module(module).body(report_from_plain(entry.report))

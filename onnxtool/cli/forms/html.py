"""A report as one HTML page that needs nothing else: no scripts, no fonts, no requests. Light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import singledispatch
from html import escape
from pathlib import Path
from urllib.parse import quote

from onnxtool import __version__
from onnxtool.cli.forms import plots
from onnxtool.cli.text import clean
from onnxtool.cli.views import view_of
from onnxtool.cli.views.build import model_page, page_name
from onnxtool.cli.views.view import (
    Cell,
    Code,
    Facts,
    FindingList,
    Heading,
    Line,
    Part,
    Plot,
    Table,
    Tone,
    Words,
    inner_view,
)
from onnxtool.report.base import Report
from onnxtool.report.build import BuildReport, ModelOutcome
from onnxtool.report.check import Severity


def write_model_pages(report: BuildReport, index: Path) -> None:
    """Write a page for each model into the folder `models` beside the index."""
    from onnxtool.cli.output import write_text

    folder = index.parent / "models"
    folder.mkdir(parents=True, exist_ok=True)
    back = f'<p><a href="../{quote(index.name)}">all models</a></p>'
    for model in report.models:
        parts = (*model_page(model), *_steps(model, report))
        write_text(folder / page_name(model), page(f"build: {model.name}", (back, *draw(parts))))


def _steps(model: ModelOutcome, report: BuildReport) -> Iterator[Part]:
    """What each step's own report says."""
    from onnxtool.report.schema import report_from_plain
    from onnxtool.workflow.store import Store

    store = Store(Path(report.cache))
    for step in model.steps:
        entry = store.entry(step.key) if step.key else None
        if entry is not None:
            yield Heading(step.command)
            yield from inner_view(view_of(report_from_plain(entry.report)))


_STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --bad: #cf222e; --warn: #b35900; --bar: #0969da; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --warn: #d29922; --bar: #58a6ff; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, p, pre { overflow-wrap: anywhere; } h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p { margin: .4rem 0; } p.in { margin-left: 1.5rem; } pre { white-space: pre-wrap; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; } .scroll { overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td { overflow-wrap: break-word; } .scroll { margin: .75rem 0; } td.n, th.n { text-align: right; white-space: nowrap; }
td.n { font-variant-numeric: tabular-nums; } table.facts td:first-child { white-space: nowrap; opacity: .7; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); } .dim { opacity: .7; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; } .grid { stroke: var(--line); }
.bar { fill: var(--bar); } .pale { fill-opacity: .35; }
.key { display: inline-block; width: .8em; height: .8em; background: var(--bar); } .key.pale { opacity: .35; }
tr.chosen td { font-weight: 600; } svg.dot { width: 1em; height: 1em; vertical-align: -.1em; }
.kept { fill: var(--good); } .broken { fill: none; stroke: var(--warn); stroke-width: 2; } .best { fill: var(--bar); }
.float { stroke: currentColor; stroke-dasharray: 4 4; }
.dot-good { fill: var(--good); } .dot-bad { fill: var(--bad); }
.whisker { stroke: currentColor; } .box { fill: var(--bar); fill-opacity: .35; stroke: var(--bar); }
footer { margin-top: 3rem; font-size: .85rem; opacity: .7; }
/* On a telephone pictures keep letters that can be read; they and wide tables are moved sideways. */
.picture { overflow-x: auto; } .picture svg { min-width: 36rem; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; } table { font-size: .85rem; } th, td { padding: .25rem .4rem; }
}
"""
_SEVERITIES: dict[Severity, Tone] = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.NOTE: ""}
# Rows of one table, and letters of one text: beyond them nobody reads, and browsers become slow.
_ROWS, _LONG = 2000, 1000


def render(report: Report) -> str:
    """The page."""
    view = view_of(report)
    word = '<span class="{1}">{0}</span>'.format(*view.word)
    verdict = f"<p><strong>{_text(view.verdict.text)}</strong></p>" if view.verdict.text else ""
    subject = f"<p>{_broken(view.verdict.subject)}</p>" if view.verdict.subject else ""
    return page(report.kind, [verdict, subject, *draw(view.parts)], word)


def page(title: str, body: Iterable[str], verdict: str = "") -> str:
    """A page around parts that are HTML already; `verdict` is too, `title` is not."""
    title = _text(title)
    parts = "\n".join(part for part in body if part)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>onnxtool {title}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>onnxtool {title}{': ' if verdict else ''}{verdict}</h1>\n{parts}\n"
        f"<footer>onnxtool {__version__}</footer></body></html>\n"
    )


def draw(parts: Iterable[Part]) -> Iterator[str]:
    """The parts of a view as HTML, details included."""
    return ("\n".join(_draw(part)) for part in parts if part.when != "brief")


@singledispatch
def _draw(part: Part) -> Iterator[str]:
    raise NotImplementedError(f"a page cannot show {type(part).__name__}")


@_draw.register
def _line(part: Line) -> Iterator[str]:
    space = ' class="in"' if part.indent else ""
    tone = f' class="{part.tone}"' if part.tone else ""
    if not part.label:
        yield f"<p{space}><span{tone}>{_text(part.text)}</span></p>"
        return
    label = part.label[:1].upper() + part.label[1:]
    yield f"<p{space}><strong{tone}>{_text(label)}</strong> {_text(part.text)}</p>"


@_draw.register
def _heading(part: Heading) -> Iterator[str]:
    yield f"<h2>{_text(part.text)}</h2>"


@_draw.register
def _facts(part: Facts) -> Iterator[str]:
    facts = part.lines(everything=True)
    rows = [f"<tr><td>{_text(label)}</td><td>{'<br>'.join(map(_broken, lines))}</td></tr>" for label, lines in facts]
    if rows:
        yield f'<div class="scroll"><table class="facts"><tbody>{"".join(rows)}</tbody></table></div>'


@_draw.register
def _table(part: Table) -> Iterator[str]:
    if not part.filled:
        return
    if part.title:
        yield f"<h2>{_text(part.title)}</h2>"
    columns = [(i, part.columns[i], part.columns[i] in part.numbers) for i in part.filled]
    head = "".join(_tag("th", "n" if number else "", _text(name)) for _, name, number in columns)
    rows = []
    for index, row in enumerate(part.rows[:_ROWS]):
        cells = "".join(_td(row[i], number) for i, _, number in columns)
        rows.append(_tag("tr", "chosen" if index == part.chosen else "", cells))
    yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    if len(part.rows) > _ROWS:
        yield f"<p>and {len(part.rows) - _ROWS} more</p>"


def _td(cell: Cell, number: bool) -> str:
    shown = cell if isinstance(cell, Words) else Words(cell)
    text = _broken(shown)
    if shown.link:
        text = f'<a href="{escape(shown.link)}">{text}</a>'
    return _tag("td", " ".join(filter(None, ("n" if number else "", shown.tone))), text)


def _tag(name: str, kind: str, content: str) -> str:
    return f'<{name} class="{kind}">{content}</{name}>' if kind else f"<{name}>{content}</{name}>"


@_draw.register
def _code(part: Code) -> Iterator[str]:
    if part.title:
        yield f"<h2>{_text(part.title)}</h2>"
    tones = {"-": "bad", "+": "good", "~": "warn"} if part.language == "diff" else {}
    lines = (_tag("span", tones.get(line[:1], ""), _text(line)) for line in part.lines)
    yield "<pre>" + "\n".join(lines) + "</pre>"


@_draw.register
def _findings(part: FindingList) -> Iterator[str]:
    rows = [(Words(f.severity.value, _SEVERITIES[f.severity]), f.id, f.where, f.message, f.fix) for f in part.items]
    yield from _table(Table(("severity", "id", "where", "finding", "fix"), rows, title=part.title))


@_draw.register
def _plot(part: Plot) -> Iterator[str]:
    picture = plots.draw(part)
    if picture and part.title:
        yield f"<h2>{_text(part.title)}</h2>"
    if picture:
        yield picture


def _broken(text: object) -> str:
    """A text that may be broken where a path or a name has a joint."""
    return re.sub("([/_])", r"\1<wbr>", _text(text))


def _text(value: object) -> str:
    """A value from a file or a report, safe to stand in the page."""
    return escape(clean(value, _LONG))

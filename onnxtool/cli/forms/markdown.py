"""A summary in Markdown: for job summaries and comments on pull requests. Without pictures and details."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import singledispatch

from onnxtool.cli.text import clean
from onnxtool.cli.views import view_of
from onnxtool.cli.views.view import Cell, Code, Facts, FindingList, Heading, Line, Part, Table, Words
from onnxtool.report.base import Report
from onnxtool.report.check import Severity

# Rows of a table: a comment on GitHub holds 65536 letters.
_ROWS = 50


def render(report: Report) -> str:
    """The report as Markdown."""
    view = view_of(report)
    lines = [f"### onnxtool {report.kind}: {view.word[0]}", ""]
    lines += [
        paragraph for text in (view.verdict.text, view.verdict.subject) if text for paragraph in (_safe(text), "")
    ]
    for part in view.parts:
        drawn = list(draw(part)) if part.when != "full" else []
        # Lines follow one another as a list; all else stands between empty lines.
        if drawn and not (isinstance(part, Line) and lines[-1].lstrip().startswith("- ")) and lines[-1]:
            lines.append("")
        lines += drawn
    return "\n".join(lines).rstrip("\n") + "\n"


@singledispatch
def draw(part: Part) -> Iterator[str]:
    """One part as lines; pictures are for pages."""
    yield from ()


@draw.register
def _line(part: Line) -> Iterator[str]:
    label = f"**{_safe(part.label)}** " if part.label else ""
    depth = 0 if part.tone == "dim" else part.indent // 2  # what is dim is about all that stands above it
    yield f"{'  ' * depth}- {label}{_safe(part.text)}"


@draw.register
def _heading(part: Heading) -> Iterator[str]:
    yield f"**{_safe(part.text)}**"


@draw.register
def _facts(part: Facts) -> Iterator[str]:
    for label, lines in part.lines(everything=False):
        yield f"- **{_safe(label)}**: {'; '.join(map(_safe, lines))}"


@draw.register
def _table(part: Table) -> Iterator[str]:
    kept = part.filled
    if not kept:
        return
    if part.title:
        yield from (f"**{_safe(part.title)}**", "")
    columns = [part.columns[i] for i in kept]
    yield "| " + " | ".join(map(_safe, columns)) + " |"
    yield "|" + "".join("---:|" if name in part.numbers else "---|" for name in columns)
    shown = part.rows[: min(part.few or _ROWS, _ROWS)]
    for index, row in enumerate(shown):
        first, *rest = (_cell(row[i]) for i in kept)
        yield "| " + " | ".join([f"**{first}**" if index == part.chosen else first, *rest]) + " |"
    if len(part.rows) > len(shown):
        yield from ("", f"and {len(part.rows) - len(shown)} more")


def _cell(cell: Cell) -> str:
    return f"**{_safe(cell)}**" if isinstance(cell, Words) and cell.tone == "bad" and str(cell) else _safe(cell)


@draw.register
def _code(part: Code) -> Iterator[str]:
    if part.title:
        yield from (f"**{_safe(part.title)}**", "")
    lines = [clean(line, 1000) for line in part.lines[:_ROWS]]
    # A fence is longer than any run of its sign in what it holds.
    fence = "`" * (1 + max([2, *(len(run) for line in lines for run in re.findall("`+", line))]))
    yield from (fence + re.sub("[^a-z]", "", part.language), *lines, fence)


@draw.register
def _findings(part: FindingList) -> Iterator[str]:
    shown = [item for item in part.items if item.severity is not Severity.NOTE]
    if shown and part.title:
        yield from (f"**{_safe(part.title)}**", "")
    for item in shown[:_ROWS]:
        where = f"{_safe(item.where)}: " if item.where else ""
        yield f"- {item.severity.value} {_safe(item.id)} {where}{_safe(item.message)}"
    if len(shown) > _ROWS:
        yield f"- and {len(shown) - _ROWS} more"


def _safe(text: object) -> str:
    """Text from files, with everything that means something in Markdown or HTML made harmless."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", clean(text, 500))

"""A report for the terminal. The verdict stands last, beside the next prompt."""

from __future__ import annotations

from functools import singledispatch

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from onnxtool.cli.text import clean
from onnxtool.cli.views import view_of
from onnxtool.cli.views.view import Cell, Code, Facts, FindingList, Heading, Line, Part, Table, Tone, Words
from onnxtool.report.base import Report
from onnxtool.report.check import Finding, Severity

_STYLES: dict[Tone, str] = {"": "", "good": "green", "bad": "red", "warn": "yellow", "dim": "dim", "info": "cyan"}
_SEVERITIES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_SIGNS = {"-": "red", "+": "green", "~": "yellow", "@": "cyan"}
# Columns that a table can do without are left out of terminals that are narrower.
_WIDE = 100
# Cells up to _SHORT letters are not broken, where that leaves the other columns _LEAST.
_SHORT, _LEAST = 20, 12
_LONG_LINE, _LONG_CELL, _LONG_FACT = 1000, 500, 4000


def render(report: Report, console: Console, verbose: int = 0) -> None:
    """Print a report; with `verbose` all that its view has."""
    view = view_of(report)
    for part in view.parts:
        if part.when != ("brief" if verbose else "full"):
            draw(part, console, verbose)
    if view.verdict.text:
        word, tone = view.word
        console.print(
            Text(word, {"good": "green", "bad": "red"}.get(tone, "yellow"))
            + Text(f"  {clean(view.verdict.text, _LONG_LINE)}")
        )


def print_step(console: Console, command: str, outcome: str) -> None:
    """One step of several that is done: its command, and what came of it."""
    console.print(Text(f"$ {clean(command, 400)}", "bold"), soft_wrap=True)
    console.print(Text(f"  {clean(outcome, 400)}"), soft_wrap=True)


@singledispatch
def draw(part: Part, console: Console, verbose: int) -> None:
    """Print one part; pictures are not for terminals."""


@draw.register
def _line(part: Line, console: Console, verbose: int) -> None:
    style = _STYLES[part.tone]
    shown = Text(" " * part.indent)
    if part.label:
        shown.append(f"{clean(part.label)} ", style)
        style = ""
    console.print(shown.append(clean(part.text, _LONG_LINE), style), soft_wrap=part.whole)


@draw.register
def _heading(part: Heading, console: Console, verbose: int) -> None:
    console.print(Text(clean(part.text), "bold"))


@draw.register
def _facts(part: Facts, console: Console, verbose: int) -> None:
    made = RichTable(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for label, lines in part.lines(everything=verbose > 0):
        for index, line in enumerate(lines):
            made.add_row(Text("" if index else clean(label)), Text(clean(line, _LONG_FACT)))
    if made.row_count:
        console.print(made)


@draw.register
def _table(part: Table, console: Console, verbose: int) -> None:
    if not part.filled:
        return
    kept = [i for i in part.filled if console.width >= _WIDE or part.columns[i] not in part.wide]
    title = Text(clean(part.title), "bold") if part.title else None
    made = RichTable(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index in kept:
        name = part.columns[index]
        made.add_column(Text(clean(name)), justify="right" if name in part.numbers else "left", overflow="fold")
    shown = part.rows if verbose else part.rows[: part.few]
    for number_of_row, row in enumerate(shown):
        cells = [_cell(row[index]) for index in kept]
        if part.chosen is not None:
            cells[0] = Text("> " if number_of_row == part.chosen else "  ") + cells[0]
        made.add_row(*cells)
    _fit(made, console)
    console.print(made)
    if len(part.rows) > len(shown):
        console.print(f"  and {len(part.rows) - len(shown)} more (-v)")


def _fit(table: RichTable, console: Console) -> None:
    """Columns that do not fit stand closer together, and only texts are broken, where that is enough."""
    endless = console.options.update(width=10_000)
    table.collapse_padding = Measurement.get(console, endless, table).maximum > console.width
    lengths = [max(console.measure(c).maximum for c in (column.header, *column.cells)) for column in table.columns]
    whole = [i for i, column in enumerate(table.columns) if i and (column.justify == "right" or lengths[i] <= _SHORT)]
    broken = len(lengths) - len(whole)
    if sum(lengths[i] + 2 for i in whole) + broken * _LEAST <= console.width:
        for index in whole:
            table.columns[index].no_wrap = True


def _cell(cell: Cell) -> Text:
    tone: Tone = cell.tone if isinstance(cell, Words) else ""
    return Text(clean(cell, _LONG_CELL), _STYLES[tone])


@draw.register
def _code(part: Code, console: Console, verbose: int) -> None:
    if part.title:
        console.print(Text(f"\n{clean(part.title)}", "bold"))
    for line in part.lines:
        style = _SIGNS.get(line[:1], "") if part.language == "diff" else ""
        console.print(Text(clean(line, _LONG_LINE), style), soft_wrap=True)


@draw.register
def _findings(part: FindingList, console: Console, verbose: int) -> None:
    """Grouped by id, a line each; with -v every single one, with its fix."""
    shown = [item for item in part.items if verbose or item.severity.rank <= part.least.rank]
    if shown and part.title:
        console.print(Text(clean(part.title), "bold"))
    groups: dict[str, list[Finding]] = {}
    for item in shown:
        groups.setdefault(item.id, []).append(item)
    for identifier, group in groups.items():
        single = verbose or len(group) == 1
        for item in group if single else group[:1]:
            many = "" if single else f"{len(group)}x, such as "
            head = Text(item.severity.value, _SEVERITIES[item.severity]) + Text(f" {clean(identifier)} {many}")
            where = f"{clean(item.where)}: " if item.where else ""
            console.print(head.append(where + clean(item.message, _LONG_LINE)), soft_wrap=True)
        first = group[0]
        if first.fix and (verbose or first.severity is not Severity.NOTE):
            console.print(Text("  fix:", "dim") + Text(f" {clean(first.fix)}"), soft_wrap=True)

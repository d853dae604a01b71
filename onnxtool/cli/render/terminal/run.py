"""Terminal view of a RunReport."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from onnxtool.cli.render.terminal import table, verdict, warnings
from onnxtool.cli.render.text import clean, duration, markup, number
from onnxtool.report.run import ArraySummary, RunReport

if TYPE_CHECKING:
    from rich.console import Console


_FALLBACKS = 5


def render(report: RunReport, console: Console, verbose: int = 0) -> None:
    """What went in, what came out; with -v the first elements."""
    for title, items in (("inputs", report.inputs), ("outputs", report.outputs)):
        console.print(_table(title, items))
        if verbose:
            for item in items:
                console.print(f"  {markup(item.name)}: {markup(_values(item.first), 400)}")
    warnings(console, report.warnings)
    for line in report.fallbacks if verbose else report.fallbacks[:_FALLBACKS]:
        console.print(f"[red]fallback:[/] {markup(line, 500)}")
    if len(report.fallbacks) > _FALLBACKS and not verbose:
        console.print(f"... and {len(report.fallbacks) - _FALLBACKS} more fallbacks (-v)")
    where = f", written to {clean(report.written)}" if report.written else ""
    timing = f"loaded in {duration(report.load_seconds)}, ran in {duration(report.run_seconds)}"
    verdict(console, report.ok, f"{timing} on {clean(report.data)}{where}")


def _table(title: str, items: Iterable[ArraySummary]) -> Any:
    numbers = ("min", "max", "mean")
    made = table(title, "shape", *numbers, right=numbers)
    for item in items:
        shape = f"{item.dtype}[{', '.join(map(str, item.shape))}]"
        ranges = ("-" if v is None else number(v) for v in (item.minimum, item.maximum, item.mean))
        made.add_row(markup(item.name), markup(shape), *ranges)
    return made


def _values(values: tuple[Any, ...]) -> str:
    shown = ", ".join(number(v) if isinstance(v, float) else str(v) for v in values)
    return f"{shown}, ..." if len(values) >= 8 else shown

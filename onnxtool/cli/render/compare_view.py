"""Terminal view of a CompareReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict, warnings
from onnxtool.cli.render.text import clean, markup, number
from onnxtool.report.compare import CompareReport, TensorDifference

if TYPE_CHECKING:
    from rich.console import Console


def render(report: CompareReport, console: Console, verbose: int = 0) -> None:
    """One row for each output, then the worst element of every output that failed."""
    numbers = ("max abs", "max rel", "mean abs", "cosine", "SQNR dB")
    made = table("output", "shape", *numbers, "verdict", right=numbers)
    for item in report.outputs:
        made.add_row(
            markup(item.name),
            f"{item.dtype}[{', '.join(map(str, item.shape))}]".replace("[", "\\["),
            *(number(v) for v in (item.max_abs, item.max_rel, item.mean_abs)),
            f"{item.cosine:.7f}",
            number(item.sqnr_db),
            "[green]equal[/]" if item.ok else "[red]differs[/]",
        )
    console.print(made)
    for item in report.outputs:
        if not item.ok:
            console.print(f"  {markup(item.name)}: {markup(_why(item), 500)}")
    warnings(console, report.warnings)
    sizes = f"{len(report.runs)} run{'s' if len(report.runs) != 1 else ''} on {clean(report.data)}"
    outcome = "equal" if report.ok else "different"
    verdict(console, report.ok, f"{outcome} within rtol {report.rtol:g}, atol {report.atol:g} ({sizes})")


def _why(item: TensorDifference) -> str:
    if item.note:
        return item.note
    where = list(item.worst_index or ())
    return (
        f"{item.mismatched} of {item.total} elements outside tolerance; worst at {where} of run {item.worst_run + 1}: "
        f"{item.expected} against {item.actual}"
    )

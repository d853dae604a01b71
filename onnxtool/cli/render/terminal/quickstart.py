"""Terminal view of a QuickstartReport, and of its steps while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict, warnings
from onnxtool.cli.render.text import markup, size
from onnxtool.report.quickstart import QuickstartReport, Stage

if TYPE_CHECKING:
    from rich.console import Console


def step(console: Console, command: str, outcome: str) -> None:
    """One step that is done: its command, and what came of it."""
    console.print(f"[bold]$ {markup(command, 400)}[/]", soft_wrap=True)
    console.print(f"  {markup(outcome, 400)}", soft_wrap=True)


def render(report: QuickstartReport, console: Console, verbose: int = 0) -> None:
    """The summary: one row for each stage."""
    numbers = ("size", "nodes", "accuracy", "latency")
    wide = console.width >= 100  # the outcomes were printed step by step already
    made = table("stage", "file", *numbers, *(("outcome",) if wide else ()), right=numbers)
    made.columns[1].no_wrap = True
    for stage in report.stages:
        cells = (
            stage.name,
            markup(stage.file or ""),
            "" if stage.bytes is None else size(stage.bytes),
            "" if stage.nodes is None else str(stage.nodes),
            "" if stage.accuracy is None else f"{stage.accuracy:.2%}",
            _latency(stage),
        )
        made.add_row(*cells, *((markup(stage.outcome),) if wide else ()))
    console.print(made)
    console.print(
        f"accuracy: on {report.images} labelled digits that the model never saw\n"
        f"latency:  batch {report.batch}, one thread, median over that of {report.baseline}, measured side by side\n"
        f"files:    {markup(report.folder)}",
        soft_wrap=True,
    )
    warnings(console, report.warnings)
    kept = "within" if report.ok else "NOT within"
    verdict(
        console,
        report.ok,
        f"int8 accuracy is {kept} {report.max_drop:.0%} of float (drop {report.accuracy_drop * 100:.2f} points)",
    )


def _latency(stage: Stage) -> str:
    if stage.latency_ratio is None:
        return ""
    return f"{stage.latency_ratio:.2f}x"

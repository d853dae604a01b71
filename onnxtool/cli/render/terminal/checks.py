"""Terminal view of a ChecksReport: one line for each model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict
from onnxtool.cli.render.terminal.check import findings
from onnxtool.cli.render.text import markup, size
from onnxtool.report.check import ChecksReport, Severity

if TYPE_CHECKING:
    from rich.console import Console


def render(report: ChecksReport, console: Console, verbose: int = 0) -> None:
    """A table of the models, then what is wrong with each; with -v all findings."""
    numbers = ("size", "errors", "warnings", "notes")
    made = table("model", "result", *numbers, right=numbers)
    for item in report.reports:
        result = "[green]passed[/]" if item.ok else "[red]failed[/]"
        counts = (str(item.count(s) or "") for s in Severity)
        made.add_row(markup(item.model), result, size(item.bytes), *counts)
    for lost in report.unreadable:
        made.add_row(markup(lost.model), "[red]unreadable[/]", "", "", "", "")
    console.print(made)
    for item in report.reports:
        worth = [f for f in item.findings if verbose or f.severity.rank <= item.fail_on.rank]
        if worth:
            console.print(f"[bold]{markup(item.model)}[/]")
            findings(console, worth, verbose)
    for lost in report.unreadable:
        console.print(f"[red]error[/] {markup(lost.error, 800)}", soft_wrap=True)
    passed = sum(r.ok for r in report.reports)
    states = {"passed": passed, "failed": len(report.reports) - passed, "unreadable": len(report.unreadable)}
    total = sum(states.values())
    told = ", ".join(f"{n} {name}" for name, n in states.items() if n)
    verdict(console, report.ok, f"{total} model{'s' if total != 1 else ''}: {told}")

"""Terminal view of a RulesReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.report.check import RulesReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: RulesReport, console: Console, verbose: int = 0) -> None:
    """Each finding with its meaning and what to do."""
    for rule in report.rules:
        console.print(f"[bold]{rule.id}[/] {rule.title} ({rule.family}, {rule.severity.value})")
        console.print(f"  {rule.explanation}")
        console.print(f"  [dim]fix:[/] {rule.fix}")

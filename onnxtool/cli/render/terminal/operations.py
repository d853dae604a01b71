"""Terminal view of an OperationListReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table
from onnxtool.cli.render.text import markup
from onnxtool.report.edit import OperationListReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: OperationListReport, console: Console, verbose: int = 0) -> None:
    """One line for each operation."""
    made = table("operation", "what it does")
    for item in report.operations:
        origin = f" ({item.origin})" if item.origin != "onnxtool" else ""
        made.add_row(markup(f"--{item.name} {item.value}".strip()), markup(item.description + origin, 300))
    console.print(made)

"""Terminal view of the list of optimizer passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table
from onnxtool.cli.render.text import markup
from onnxtool.report.optimize import PassListReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: PassListReport, console: Console, verbose: int = 0) -> None:
    """One row for each pass, in the order in which they run."""
    made = table("pass", "level", "what it does")
    for item in report.passes:
        origin = "" if item.origin == "onnxtool" else f" (from {item.origin})"
        made.add_row(markup(item.name), item.level, markup(item.description + origin))
    console.print(made)

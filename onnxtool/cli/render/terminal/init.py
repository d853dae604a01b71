"""Terminal view of an InitReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, verdict, warnings
from onnxtool.report.build import InitReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: InitReport, console: Console, verbose: int = 0) -> None:
    """The models with what they were recognised as."""
    console.print(facts(report.models.items()))
    warnings(console, (f"{name}: not a model in a form that is known; left out" for name in report.unknown))
    verdict(console, True, f"wrote {report.output}; next: onnxtool build {report.output}")

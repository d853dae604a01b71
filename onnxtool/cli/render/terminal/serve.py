"""How a server that has ended is shown."""

from __future__ import annotations

from rich.console import Console

from onnxtool.cli.render.terminal import verdict
from onnxtool.report.serve import ServeReport


def render(report: ServeReport, console: Console, verbose: int) -> None:
    """One line."""
    failed = f", {report.failures} of them errors" if report.failures else ""
    verdict(console, report.ok, f"served {report.requests} requests{failed} in {report.seconds:.0f} s")

"""How a page that is being served is shown."""

from __future__ import annotations

from rich.console import Console

from onnxtool.cli.render.terminal import verdict
from onnxtool.report.view import ViewReport


def render(report: ViewReport, console: Console, verbose: int) -> None:
    """One line."""
    verdict(console, report.ok, f"{report.model} at {report.url} (Ctrl-C ends it)")

"""Terminal view of a CacheReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, verdict
from onnxtool.cli.render.text import size
from onnxtool.report.build import CacheReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: CacheReport, console: Console, verbose: int = 0) -> None:
    """What is there, and what went."""
    removed = ""
    if report.removed_bytes or report.removed_entries:
        removed = f"{report.removed_entries} results, {report.removed_files} files, {size(report.removed_bytes)}"
    console.print(
        facts(
            (
                ("cache", report.place),
                ("results", str(report.entries)),
                ("files", str(report.files)),
                ("size", size(report.bytes)),
                ("removed", removed),
                ("damaged", ", ".join(report.damaged)),
            )
        )
    )
    verdict(console, report.ok, f"{size(report.bytes)} in {report.files} files")

"""Terminal view of a GenerateReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import verdict
from onnxtool.cli.render.text import duration
from onnxtool.report.bundle.generate import GenerateReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: GenerateReport, console: Console, verbose: int = 0) -> None:
    """How many tokens, how fast; the text itself has been written as it came."""
    speed = f", then {report.tokens_per_second:.1f} tokens/s" if report.tokens_per_second else ""
    first = f"first token after {duration(report.first_token_seconds)}"
    counted = f"{report.prompt_tokens} + {len(report.tokens)} tokens ({report.ended})"
    verdict(console, report.ok, f"{counted}; loaded in {duration(report.load_seconds)}, {first}{speed}")

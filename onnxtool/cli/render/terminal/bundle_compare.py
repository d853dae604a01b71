"""Terminal view of a BundleCompareReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, table, verdict
from onnxtool.cli.render.terminal.bundle import perplexity_line
from onnxtool.cli.render.text import number
from onnxtool.report.bundle.compare import BundleCompareReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: BundleCompareReport, console: Console, verbose: int = 0) -> None:
    """Perplexities, then tokens and logits prompt by prompt."""
    value, low, high = (r - 1 for r in report.ratio)
    rows = [
        ("A", f"{report.a}: perplexity {perplexity_line(report.perplexities[0])}"),
        ("B", f"{report.b}: perplexity {perplexity_line(report.perplexities[1])}"),
        ("difference", f"{value:+.2%} [{low:+.2%}, {high:+.2%}]"),
    ]
    console.print(facts(rows))
    made = table("prompt", "equal tokens", "logits", right=("logits",))
    for item in report.prompts:
        made.add_row(f"{item.prompt_tokens} tokens", f"{item.equal} of {item.tokens}", number(item.error))
    console.print(made)
    equal, total = sum(p.equal for p in report.prompts), sum(p.tokens for p in report.prompts)
    worst = max(p.error for p in report.prompts)
    verdict(
        console,
        report.ok,
        f"{equal} of {total} tokens equal; logits differ by up to {number(worst)} of the largest, "
        f"{report.rtol:.2g} is allowed",
    )

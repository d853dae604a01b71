"""Terminal view of a BundleQuantizeReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, table, verdict
from onnxtool.cli.render.terminal.bundle import perplexity_line
from onnxtool.cli.render.text import duration, markup, size
from onnxtool.report.bundle.quantize import BundleQuantizeReport

if TYPE_CHECKING:
    from rich.console import Console

_NUMBERS = ("size", "perplexity", "[95 %]", "tokens/s", "speed")


def render(report: BundleQuantizeReport, console: Console, verbose: int = 0) -> None:
    """The float bundle, what was tried, what was chosen; with -v the sensitivities."""
    limit = "" if report.max_bytes is None else f", at most {size(report.max_bytes)}"
    rows = [
        ("float bundle", f"{size(report.bytes_before)}, {report.tokens_per_second:.1f} tokens/s"),
        ("perplexity", perplexity_line(report.perplexity)),
        ("budget", f"perplexity +{report.max_perplexity:.2%}{limit}"),
        ("time", duration(report.seconds)),
    ]
    console.print(facts(rows))
    made = table("weights", *_NUMBERS, "", right=_NUMBERS)
    for item in report.candidates:
        mark = "chosen" if item.chosen else "" if item.within_budget else "over budget"
        made.add_row(
            markup(item.plan),
            size(item.bytes),
            f"{item.ratio - 1:+.2%}",
            markup(f"[{item.low - 1:+.2%}, {item.high - 1:+.2%}]"),
            f"{item.tokens_per_second:.1f}",
            f"{item.tokens_per_second / report.tokens_per_second:.2f}x",
            mark,
        )
    console.print(made)
    if verbose and report.sensitivities:
        each = table("4 bits in", "weights", "loss", right=("weights", "loss"))
        for group in report.sensitivities:
            each.add_row(markup(group.group), f"{group.weights:,}", f"{group.loss:+.4f}")
        console.print(each)
    chosen = report.chosen
    if chosen is None or not report.written:
        verdict(console, False, f"nothing keeps the budget; {report.output} was not written")
        return
    faster = chosen.tokens_per_second / report.tokens_per_second
    verdict(
        console,
        True,
        f"{chosen.plan}: perplexity {chosen.ratio - 1:+.2%}, {faster:.2f}x the speed, "
        f"{chosen.bytes / report.bytes_before:.0%} of the size, {report.agreement:.0%} of greedy tokens equal; "
        f"wrote {report.output}",
    )

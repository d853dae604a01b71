"""Terminal view of a BundleInspectReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, table
from onnxtool.cli.render.text import count, markup, size
from onnxtool.report.bundle.inspect import BundleInspectReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: BundleInspectReport, console: Console, verbose: int = 0) -> None:
    """The decoder, its weights, the memory at several contexts; with -v the operators."""
    formats = ", ".join(f"{count(n)} in {form}" for form, n in report.weights.items())
    rows = [
        ("bundle", report.bundle),
        ("kind", report.type),
        ("layers", report.layers),
        ("heads", f"{report.heads}, {report.kv_heads} of keys and values, of {report.head_size}"),
        ("hidden size", report.hidden_size),
        ("vocabulary", f"{report.vocabulary}, a text ends at {list(report.eos)}"),
        ("context", report.context),
        ("chat template", "yes" if report.chat_template else "no"),
        ("parameters", f"{count(report.parameters)} ({formats})"),
        ("model", size(report.model_bytes)),
        ("cache", f"{size(report.cache_bytes_per_token)} for each token"),
    ]
    console.print(facts(rows))
    made = table("context", "cache", "model and cache", right=("context", "cache", "model and cache"))
    for context, total in report.memory.items():
        made.add_row(str(context), size(context * report.cache_bytes_per_token), size(total))
    console.print(made)
    if verbose:
        operators = table("operator", "nodes", right=("nodes",))
        for name, number in report.operators.items():
            operators.add_row(markup(name), str(number))
        console.print(operators)

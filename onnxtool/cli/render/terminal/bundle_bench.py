"""Terminal view of a BundleBenchReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict
from onnxtool.cli.render.text import duration, markup, plural, size
from onnxtool.report.bundle_bench import BundleBenchReport

if TYPE_CHECKING:
    from rich.console import Console

_NUMBERS = ("load", "peak memory")
_SPEEDS = ("first token", "prefill/s", "decode/s", "ratio")


def render(report: BundleBenchReport, console: Console, verbose: int = 0) -> None:
    """Load and memory, then a table for each length of the prompt."""
    names = {g.name: g.name.rstrip("/").rpartition("/")[2] for g in report.generators}
    held = table("generator", "runtime", *_NUMBERS, right=_NUMBERS)
    for item in report.generators:
        peak = "-" if item.peak_bytes is None else size(item.peak_bytes)
        cells = (item.fault, "", "") if item.fault else (item.runtime, duration(item.load_seconds), peak)
        held.add_row(markup(names[item.name]), markup(cells[0], 300), *cells[1:])
    console.print(held)
    base = {s.context: s.decode_per_second for s in report.generators[0].speeds}
    for context in base:
        made = table(f"prompt of {context} tokens", *_SPEEDS, right=_SPEEDS)
        for item in report.generators:
            for speed in item.speeds:
                if speed.context == context:
                    made.add_row(
                        markup(names[item.name]),
                        duration(speed.first_token_seconds),
                        f"{speed.prefill_per_second:.1f}",
                        f"{speed.decode_per_second:.1f}",
                        f"{speed.decode_per_second / base[context]:.2f}",
                    )
        console.print(made)
    threads = "all cores" if report.threads is None else f"{report.threads} thread{'s' if report.threads > 1 else ''}"
    cache = f"{size(report.cache_bytes_per_token)} of keys and values for each token"
    verdict(console, report.ok, f"{threads} on {report.cpu}, {plural(report.cores, 'core')}; {cache}")

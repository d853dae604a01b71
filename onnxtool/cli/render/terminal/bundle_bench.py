"""Terminal view of a BundleBenchReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict
from onnxtool.cli.render.text import duration, markup, plural, size
from onnxtool.report.bundle.bench import BundleBenchReport, GeneratorSpeed

if TYPE_CHECKING:
    from rich.console import Console

_NUMBERS = ("load", "peak memory")
_SPEEDS = ("first token", "prefill/s", "decode/s", "ratio")


def render(report: BundleBenchReport, console: Console, verbose: int = 0) -> None:
    """Load and memory, then a table for each length of the prompt."""
    several = len({g.threads for g in report.generators}) > 1
    held = table("generator", "runtime", *_NUMBERS, right=_NUMBERS)
    for item in report.generators:
        peak = "-" if item.peak_bytes is None else size(item.peak_bytes)
        cells = (item.fault, "", "") if item.fault else (item.runtime, duration(item.load_seconds), peak)
        held.add_row(markup(_name(item, several)), markup(cells[0], 300), *cells[1:])
    console.print(held)
    base = {(s.context, s.batch): s.decode_per_second for s in report.generators[0].speeds}
    for context, batch in base:
        many = "" if batch == 1 else f", {batch} side by side"
        made = table(f"prompt of {context} tokens{many}", *_SPEEDS, right=_SPEEDS)
        for item in report.generators:
            for speed in item.speeds:
                if (speed.context, speed.batch) == (context, batch):
                    made.add_row(
                        markup(_name(item, several)),
                        duration(speed.first_token_seconds),
                        f"{speed.prefill_per_second:.1f}",
                        f"{speed.decode_per_second:.1f}",
                        f"{speed.decode_per_second / base[context, batch]:.2f}",
                    )
        console.print(made)
    counts = dict.fromkeys(g.threads for g in report.generators)
    threads = ", ".join("all cores" if n is None else plural(n, "thread") for n in counts)
    cache = f"{size(report.cache_bytes_per_token)} of keys and values for each token"
    verdict(console, report.ok, f"{threads} on {report.cpu}, {plural(report.cores, 'core')}; {cache}")


def _name(item: GeneratorSpeed, several: bool) -> str:
    """The last part of the path, with the number of threads where there are several."""
    threads = f" ({plural(item.threads, 'thread')})" if several and item.threads is not None else ""
    return item.name.rstrip("/").rpartition("/")[2] + threads

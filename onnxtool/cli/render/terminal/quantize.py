"""Terminal view of a QuantizeReport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, provider_proofs, table, verdict, warnings
from onnxtool.cli.render.text import cosine, duration, markup, number, size
from onnxtool.report.measurement.latency import LatencyRatio
from onnxtool.report.quantize import Fidelity, QuantizeReport

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SHOWN_KERNELS = 8
_SHOWN_CANDIDATES = 6


def render(report: QuantizeReport, console: Console, verbose: int = 0) -> None:
    """Float and quantized side by side, then what was done and the error."""
    made = table("", "float", "quantized", "ratio", right=("float", "quantized", "ratio"))
    made.add_row("size", size(report.bytes_before), size(report.bytes_after), f"{report.size_ratio:.3f}")
    if report.latency is not None:
        one = report.latency
        made.add_row("latency", duration(one.before), duration(one.after), latency(one))
    if report.metric is not None:
        metric = report.metric
        made.add_row(
            markup(metric.name),
            f"{metric.float_value:.4f}",
            f"{metric.value:.4f}",
            f"{0.0 - metric.drop * 100:+.2f} points",
        )
    if report.ok:
        console.print(made)
    if report.frontier:
        console.print(frontier(report, None if verbose else _SHOWN_CANDIDATES))
    console.print(
        facts(
            [
                ("not run", _not_run(report)),
                ("recipe", report.summary),
                ("quantized", ", ".join(f"{d} of {n} {op}" for op, (d, n) in report.quantized.items())),
                ("kernels", _kernels(report.kernels, None if verbose else _SHOWN_KERNELS)),
                ("ranges", report.calibration),
                ("error", error(report.fidelity)),
                ("budget", report.budget),
                ("recipe file", report.recipe_file),
                ("took", duration(report.seconds)),
            ]
        )
    )
    provider_proofs(console, report.providers)
    warnings(console, report.warnings)
    verdict(console, report.ok, f"{report.output}" if report.output else report.verdict)


def frontier(report: QuantizeReport, limit: int | None) -> Table:
    """The fastest candidates that were tried, the chosen one marked."""
    tried = [c for c in report.frontier if c.fidelity is not None]
    ordered = sorted(tried, key=lambda c: (c.latency is None, c.latency.value if c.latency else 0.0))
    shown = [c for i, c in enumerate(ordered) if limit is None or i < limit or c.chosen]
    quality = "SQNR dB" if report.metric is None else report.metric.name
    title = f"{len(report.frontier)} recipes tried" + (f", the fastest {limit}" if len(ordered) > len(shown) else "")
    made = table(
        "recipe", "size", "latency", markup(quality), "budget", title=title, right=("size", "latency", quality)
    )
    for one in shown:
        assert one.fidelity is not None
        value = number(one.fidelity.channel_db) if report.metric is None else "-"
        if one.metric is not None:
            value = f"{one.metric.value:.4f}"
        made.add_row(
            ("> " if one.chosen else "  ") + markup(one.name),
            size(one.bytes),
            "-" if one.latency is None else f"{one.latency.value:.3f}",
            value,
            "kept" if one.within_budget else "-",
        )
    return made


def _not_run(report: QuantizeReport) -> str:
    """How many candidates could not be built or run, and why the first of them could not."""
    failed = [c for c in report.frontier if c.note and c.fidelity is None and c.latency is None]
    return f"{len(failed)} of {len(report.frontier)}: {failed[0].note}" if failed else ""


def latency(found: LatencyRatio) -> str:
    """ "0.354 [0.33-0.36]": the ratio and its 95 % interval."""
    return f"{found.value:.3f} ({found.low:.2f} to {found.high:.2f})"


def error(found: Fidelity | None) -> str:
    """One line on how far the outputs are from float."""
    if found is None:
        return ""
    agreement = "" if found.agreement is None else f", same argmax {found.agreement * 100:.2f} %"
    if found.column_db is not None:
        agreement += f", weakest {found.weakest} at {number(found.column_db)} dB"
    if found.neighbours is not None:
        agreement += f", {found.neighbours * 100:.1f} % of neighbours kept"
    samples = f"{found.samples} sample{'' if found.samples == 1 else 's'}"
    return f"SQNR {number(found.sqnr_db)} dB, cosine {cosine(found.cosine)}{agreement} ({samples})"


def _kernels(kernels: Mapping[str, int], limit: int | None) -> str:
    items = list(kernels.items())
    shown = ", ".join(f"{count} {name}" for name, count in items[:limit])
    rest = 0 if limit is None else len(items) - limit
    return shown + (f" and {rest} other kind{'s' if rest != 1 else ''}" if rest > 0 else "")

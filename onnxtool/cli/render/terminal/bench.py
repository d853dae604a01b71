"""Terminal view of a BenchReport."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict, warnings
from onnxtool.cli.render.terminal.placement import show as show_placement
from onnxtool.cli.render.text import clean, count, duration, markup, plural, size
from onnxtool.report.measurement.bench import BenchReport, Latency
from onnxtool.report.measurement.profile import NodeTime, Profile

if TYPE_CHECKING:
    from rich.console import Console

_TIMES = ("nodes", "time", "share", "FLOPs", "bytes")
_BOUNDS = {"compute": "comp", "memory": "mem"}
_MANY = 10
_COLOURS = {"faster": "green", "slower": "red", "unclear": "yellow", "same": ""}


def render(report: BenchReport, console: Console, verbose: int = 0) -> None:
    """One table for what each model costs to hold, one for the latencies of each setting."""
    names = short_names([m.model for m in report.models])
    held = table(
        "model",
        "file",
        "load",
        "peak memory",
        "model's part",
        right=("file", "load", "peak memory", "model's part"),
    )
    for model in report.models:
        load = model.load
        held.add_row(
            markup(names[model.model]),
            size(model.bytes),
            duration(load.seconds),
            "-" if load.peak_bytes is None else size(load.peak_bytes),
            "-" if load.model_bytes is None else size(load.model_bytes),
        )
    console.print(held)
    settings = list(dict.fromkeys((item.batch, item.threads) for item in report.latencies))
    for batch, threads in settings:
        rows = [item for item in report.latencies if (item.batch, item.threads) == (batch, threads)]
        title = f"batch {batch}, " + (f"{threads} thread{'s' if threads != 1 else ''}" if threads else "all cores")
        console.print(_table(title, rows, names))
    for profile in report.profiles:
        _profile(profile, names, console, verbose)
    for placement in report.placements:
        show_placement(placement, console, verbose)
    warnings(console, report.warnings)
    for line in report.regressions:
        console.print(f"[red]slower:[/] {markup(line, 500)}")
    runs = f"{min((i.runs for i in report.latencies), default=0)} runs each"
    provider = report.provider.removesuffix("ExecutionProvider")
    where = f"{report.runtime} ({provider}) on {report.cpu}, {plural(report.cores, 'core')}; {clean(report.data)}"
    verdict(console, report.ok, f"{runs}; {where}")


def _table(title: str, rows: Sequence[Latency], names: dict[str, str]) -> object:
    numbers = ["median", "p90", "p99", "items/s"]
    several = len(rows) > 1
    columns = ["model", *numbers, *(["ratio [95 %]", "verdict"] if several else [])]
    made = table(*columns, title=title, right=[*numbers, "ratio [95 %]"])
    made.collapse_padding = True  # seven columns have to fit into 80 characters
    for column in made.columns[1:]:
        column.no_wrap = True
    for row in rows:
        cells = [
            markup(names[row.model]),
            duration(row.median),
            duration(row.p90),
            duration(row.p99),
            count(row.throughput),
        ]
        if several and row.ratio is not None:
            colour = _COLOURS.get(row.verdict, "")
            shown = f"[{colour}]{row.verdict}[/]" if colour else row.verdict
            cells += [markup(f"{row.ratio:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]"), shown]
        made.add_row(*cells)
    return made


def _profile(profile: Profile, names: dict[str, str], console: Console, verbose: int) -> None:
    """Operator types, then the slowest nodes; with -v all of them."""
    name = names.get(profile.model, profile.model)
    title = f"{clean(name)}: time by operator"
    operators = table("operator", "nodes", "time", "share", "FLOPs", "bytes", title=title, right=_TIMES)
    for kind in profile.operators if verbose else profile.operators[:_MANY]:
        work = ("" if kind.flops is None else count(kind.flops), "" if kind.bytes is None else size(kind.bytes))
        operators.add_row(markup(kind.operator), str(kind.nodes), duration(kind.seconds), f"{kind.share:.1%}", *work)
    console.print(operators)
    _nodes(profile, console, verbose)
    if profile.peaks is not None:
        peaks = f"{profile.peaks.gflops:.0f} GFLOP/s in float32 and {profile.peaks.gbs:.1f} GB/s"
        console.print(f"of peak: of {peaks}, measured on this machine, whichever bounds the node (comp, mem);")
        console.print("more than 100 % where data stays in the caches or int8 is at work")


def _nodes(profile: Profile, console: Console, verbose: int) -> None:
    """The slowest nodes under their names in the file, and how near each comes to what limits it."""
    speeds = ("time", "share", "GFLOP/s", "GB/s", "of peak")
    nodes = table("slowest nodes", "operator", *speeds, right=speeds)
    nodes.collapse_padding = True  # seven columns have to fit into 80 characters
    for column in nodes.columns[1:]:
        column.no_wrap = True
    for node in profile.nodes if verbose else profile.nodes[:_MANY]:
        cells = (
            duration(node.seconds),
            f"{node.share:.1%}",
            "" if node.gflops is None else f"{node.gflops:.1f}",
            "" if node.gbs is None else f"{node.gbs:.1f}",
            "" if node.attained is None else f"{node.attained:.0%} {_BOUNDS[node.bound]}",
        )
        nodes.add_row(markup(original_name(node, None if verbose else 1)), markup(node.operator), *cells)
    console.print(nodes)


def original_name(node: NodeTime, shown: int | None) -> str:
    """A node by the nodes of the file that it does the work of; the runtime's own name where there are none."""
    if not node.originals:
        return f"({node.node})"
    names = node.originals if shown is None else node.originals[:shown]
    rest = len(node.originals) - len(names)
    return " + ".join(names) + (f" + {rest} more" if rest else "")


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Each path without the folder that all of them share."""
    if len(set(paths)) < 2:
        return {p: os.path.basename(p) for p in paths}
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(p)) for p in paths])
    return {p: os.path.relpath(os.path.abspath(p), folder) for p in paths}

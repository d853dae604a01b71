"""What `bench` says of models measured side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from onnxtool.cli.text import count, duration, interval, plural, size
from onnxtool.cli.views.placement import placement_parts
from onnxtool.cli.views.view import Bars, Boxes, Line, Part, Row, Table, Verdict, state, warnings
from onnxtool.report.measurement.bench import BenchReport, Latency
from onnxtool.report.measurement.profile import NodeTime, Profile

_FEW, _BARS = 10, 15
_BOUNDS = {"compute": "comp", "memory": "mem", "": ""}


def bench(report: BenchReport) -> Iterator[Part]:
    """One table for what each model costs to hold, one for the latencies of each setting."""
    runs = f"{min((i.runs for i in report.latencies), default=0)} runs each"
    provider = report.provider.removesuffix("ExecutionProvider")
    where = f"{report.runtime} ({provider}) on {report.cpu}, {plural(report.cores, 'core')}; {report.data}"
    yield Verdict(f"{runs}; {where}")
    names = short_names([m.model for m in report.models])
    held = [
        (
            names[m.model],
            size(m.bytes),
            duration(m.load.seconds),
            *("-" if n is None else size(n) for n in (m.load.peak_bytes, m.load.model_bytes)),
        )
        for m in report.models
    ]
    numbers = ("file", "load", "peak memory", "model's part")
    yield Table(("model", *numbers), held, numbers)
    yield Bars("Size of the files", [(names[m.model], m.bytes, size(m.bytes)) for m in report.models])
    for batch, threads in dict.fromkeys((item.batch, item.threads) for item in report.latencies):
        items = [item for item in report.latencies if (item.batch, item.threads) == (batch, threads)]
        title = f"batch {batch}, {plural(threads, 'thread') if threads else 'all cores'}"
        yield _latencies(title, items, names)
        yield Boxes("", [(names.get(i.model, i.model), i.quantiles) for i in items if len(i.quantiles) == 21])
    for profile in report.profiles:
        yield from _profile(profile, names.get(profile.model, profile.model))
    for placement in report.placements:
        yield from placement_parts(placement)
    yield from warnings(report.warnings)
    yield from (Line(line, "slower:", "bad") for line in report.regressions)


def _latencies(title: str, items: Sequence[Latency], names: dict[str, str]) -> Table:
    rows: list[Row] = [
        (
            names.get(item.model, item.model),
            *(duration(t) for t in (item.median, item.p90, item.p99)),
            count(item.throughput),
            interval(item.ratio, item.ratio_low, item.ratio_high),
            state(item.verdict),
        )
        for item in items
    ]
    numbers = ("median", "p90", "p99", "items/s", "ratio [95 %]")
    return Table(("model", *numbers, "verdict"), rows, numbers, title)


def _profile(profile: Profile, name: str) -> Iterator[Part]:
    """Operator types, then the slowest nodes under their names in the file, and what limits them."""
    operators = [
        (
            o.operator,
            str(o.nodes),
            duration(o.seconds),
            f"{o.share:.1%}",
            "" if o.flops is None else count(o.flops),
            "" if o.bytes is None else size(o.bytes),
        )
        for o in profile.operators
    ]
    numbers = ("nodes", "time", "share", "FLOPs", "bytes")
    yield Table(("operator", *numbers), operators, numbers, f"{name}: time by operator", _FEW)
    yield Bars("", [(o.operator, o.seconds, f"{o.share:.1%}") for o in profile.operators], few=_BARS)
    speeds = ("time", "share", "GFLOP/s", "GB/s", "FLOPs/byte", "of peak")
    columns = ("slowest nodes", "operator", *speeds)
    few = [_node(node, 1) for node in profile.nodes[:_FEW]]
    yield Table(columns, few, speeds, wide=("FLOPs/byte",), when="brief")
    yield Table(columns, [_node(node, None) for node in profile.nodes], speeds, wide=("FLOPs/byte",), when="full")
    if profile.peaks is not None:
        peaks = f"{profile.peaks.gflops:.0f} GFLOP/s in float32 and {profile.peaks.gbs:.1f} GB/s"
        yield Line(f"of peak: of {peaks}, measured on this machine, whichever bounds the node (comp, mem);")
        yield Line("more than 100 % where data stays in the caches or int8 is at work")


def _node(node: NodeTime, shown: int | None) -> Row:
    return (
        original_name(node, shown),
        node.operator,
        duration(node.seconds),
        f"{node.share:.1%}",
        *("" if value is None else f"{value:.1f}" for value in (node.gflops, node.gbs, node.intensity)),
        "" if node.attained is None else f"{node.attained:.0%} {_BOUNDS.get(node.bound, node.bound)}".rstrip(),
    )


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

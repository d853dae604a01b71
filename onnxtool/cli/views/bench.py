"""What `bench` says of models measured side by side."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence

from onnxtool.cli.text import count, duration, interval, plural, size
from onnxtool.cli.views.view import Bars, Boxes, Code, Facts, Line, Part, Row, Table, Verdict, state, warnings
from onnxtool.report.measurement.bench import (
    BenchMatrixReport,
    BenchReport,
    EndpointBenchReport,
    Latency,
    LoadResult,
    MeasuredSetting,
)
from onnxtool.report.measurement.placement import Placement, PlacementReport
from onnxtool.report.measurement.profile import NodeTime, Profile

_LANGUAGES = {"python": "Python", "csharp": "C#", "cpp": "C++"}


def bench_matrix(report: BenchMatrixReport) -> Iterator[Part]:
    """One row for each setting, then the one to use; with --best its settings and code."""
    best = report.best
    sure = "" if best.ratio == 1 else f", {interval(best.ratio, best.ratio_low, best.ratio_high)} measured again"
    where = f"{report.runtime} on {report.cpu}, {plural(report.cores, 'core')}; batch {report.batch}; {report.data}"
    yield Verdict(f"fastest that is equal: {best.name}{sure}; {where}", report.model)
    chosen = next((i for i, row in enumerate(report.rows) if row.name == best.name), -1)
    numbers = ("load", "memory", "error", "latency", "ratio [95 %]")
    columns = ("setting", *numbers, "outputs", "")
    yield Table(columns, [_setting(row) for row in report.rows], numbers, chosen=chosen)
    yield from warnings(report.warnings)
    if report.show_code:
        yield Code(json.dumps(best.settings, indent=2).splitlines(), "json")
        for language, code in best.code.items():
            yield Code(code.splitlines(), language, _LANGUAGES.get(language, language))


def _setting(row: MeasuredSetting) -> Row:
    memory = None if row.load is None else row.load.model_bytes
    error = None if row.proof is None else row.proof.error
    return (
        row.name,
        "" if row.load is None else duration(row.load.seconds),
        "" if memory is None else size(memory),
        "" if error is None else f"{error:.0e}",
        "" if row.median is None else duration(row.median),
        interval(row.ratio, row.ratio_low, row.ratio_high),
        state(row.verdict),
        row.speed,
    )


def endpoint_bench(report: EndpointBenchReport) -> Iterator[Part]:
    """One row for each loop, then how the endpoint relates to the file."""
    told = []
    if report.latency_ratio is not None and report.overhead is not None and report.throughput_ratio is not None:
        told = [
            f"{report.latency_ratio:.2f}x the latency of session.run ({1e3 * report.overhead:+.2f} ms)",
            f"{report.throughput_ratio:.2f}x its throughput",
        ]
    if report.equal is not None:
        told.append("the file's answers" if report.equal else "other answers than the file")
    yield Verdict("; ".join(told) or ("every request was answered" if report.ok else "requests failed"))
    yield Facts((("endpoint", report.url), ("file", report.model), ("request", f"{report.request_bytes} bytes")))
    rows = [
        (
            _loop(r),
            *(duration(s) for s in (r.median, r.p90, r.p99, r.p999, r.longest)),
            f"{r.throughput:.0f}",
            str(r.requests),
            ", ".join(f"{n} x {status}" for status, n in r.errors.items()) or "0",
        )
        for r in report.results
    ]
    numbers = ("median", "p90", "p99", "p99.9", "longest", "requests/s", "requests", "errors")
    yield Table(("loop", *numbers), rows, numbers, wide=("requests",))


def _loop(result: LoadResult) -> str:
    if result.loop == "session":
        return "session.run"
    if result.loop == "open":
        return f"open, {result.rate:g} requests/s"
    return f"closed, {plural(result.connections, 'connection')}"


_MANY = 12


def placement(report: PlacementReport) -> Iterator[Part]:
    """What each provider does, then what runs elsewhere, or where there is room every node."""
    found = report.placement
    fallbacks = len(found.fallbacks)
    outcome = f"{fallbacks} of {len(found.nodes)} nodes fall back" if fallbacks else "no node falls back"
    yield Verdict(f"{outcome} from {', '.join(found.requested)}; {report.runtime}; {report.data}")
    yield from placement_parts(found)


def placement_parts(found: Placement) -> Iterator[Part]:
    """The parts, for `bench` too."""
    rows = [
        (
            share.provider,
            *(str(share.nodes), str(share.kernels), duration(share.seconds), f"{share.time_share:.1%}"),
            "" if share.flops_share is None else f"{share.flops_share:.1%}",
        )
        for share in found.shares
    ]
    idle = Counter(n.state for n in found.nodes if not n.provider)
    rows += [(f"({state})", str(count), "", "", "", "") for state, count in idle.items()]
    numbers = ("nodes", "kernels", "time", "share", "FLOPs")
    yield Table(("provider", *numbers), rows, numbers, f"{found.model}: where it runs")
    copies = f"{found.copies} copies between devices ({duration(found.copy_seconds)})"
    yield Line(f"{found.crossings} tensors go from one provider to another; {copies} in a run")
    groups = Counter((n.operator, _short(n.provider), n.reason) for n in found.nodes if n.reason)
    reasons = [(operator, str(count), *where) for (operator, *where), count in groups.most_common(_MANY)]
    yield Table(("operator", "nodes", "runs on", "because"), reasons, ("nodes",), when="brief")
    nodes = [(n.node, n.operator, _short(n.provider), n.state, n.reason) for n in found.nodes]
    yield Table(("node", "operator", "runs on", "as", "because"), nodes, when="full")


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider")


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

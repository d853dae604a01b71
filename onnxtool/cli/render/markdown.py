"""A summary in Markdown: for job summaries and comments on pull requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from onnxtool.cli.render.terminal.bench import original_name
from onnxtool.cli.render.terminal.compare import why
from onnxtool.cli.render.text import clean, cosine, count, duration, number, size
from onnxtool.report.base import Report
from onnxtool.report.check import CheckReport, ChecksReport, Severity
from onnxtool.report.compare import CompareReport
from onnxtool.report.measurement.bench import BenchReport

_SUSPECTS, _SLOWEST = 3, 10


def render(report: Report) -> str:
    """The report as Markdown."""
    lines = [f"### onnxtool {report.kind}: {'OK' if report.ok else 'FAILED'}", "", *_body(report), ""]
    return "\n".join(lines)


def _body(report: Report) -> Iterator[str]:
    if isinstance(report, CheckReport):
        yield from _check([report])
    elif isinstance(report, ChecksReport):
        yield from _check(report.reports)
        for lost in report.unreadable:
            yield f"- **error** {_cell(lost.error)}"
    elif isinstance(report, CompareReport):
        yield from _compare(report)
    elif isinstance(report, BenchReport):
        yield from _bench(report)
    else:
        yield f"verdict: {'good' if report.ok else 'bad'}"


def _check(reports: Sequence[CheckReport]) -> Iterator[str]:
    rows = [
        (r.model, "passed" if r.ok else "**failed**", size(r.bytes), *(str(r.count(s)) for s in Severity))
        for r in reports
    ]
    yield from _table(("model", "result", "size", "errors", "warnings", "notes"), rows)
    for report in reports:
        shown = [f for f in report.findings if f.severity is not Severity.NOTE]
        if shown:
            yield ""
            yield f"**{_cell(report.model)}**"
            yield ""
            for finding in shown:
                where = f"{_cell(finding.where)}: " if finding.where else ""
                yield f"- {finding.severity.value} {finding.id} {where}{_cell(finding.message)}"


def _compare(report: CompareReport) -> Iterator[str]:
    tolerance = report.rule or f"rtol {report.rtol:g}, atol {report.atol:g}"
    yield f"{_cell(report.a)} against {_cell(report.b)}, {_cell(report.data)}, {_cell(tolerance)}"
    yield ""
    rows = [
        (
            o.name,
            *(number(v) for v in (o.max_abs, o.max_rel)),
            cosine(o.cosine),
            number(o.sqnr_db),
            "equal" if o.ok else "**differs**",
        )
        for o in report.outputs
    ]
    yield from _table(("output", "max abs", "max rel", "cosine", "SQNR dB", "verdict"), rows)
    yield ""
    yield from (f"- {_cell(o.name)}: {_cell(why(o))}" for o in report.outputs if not o.ok)
    culprit = report.layers.culprit if report.layers is not None else None
    if culprit is not None:
        yield f"- first wrong tensor: **{_cell(culprit.tensor)}**, made by"
        for suspect in culprit.suspects[:_SUSPECTS]:
            weights = " or ".join(suspect.explaining_weights) or ", ".join(suspect.changed_weights)
            about = f" (its {_cell(weights)} is another one)" if weights else ""
            yield f"  - {suspect.model}: {_cell(suspect.operator)} {_cell(suspect.node)}{about}"


def _bench(report: BenchReport) -> Iterator[str]:
    rows = [
        (
            item.model,
            str(item.batch),
            str(item.threads or "all"),
            *(duration(v) for v in (item.median, item.p90, item.p99)),
            count(item.throughput),
            "" if item.ratio is None else f"{item.ratio:.2f} [{item.ratio_low:.2f}, {item.ratio_high:.2f}]",
            item.verdict,
        )
        for item in report.latencies
    ]
    yield from _table(("model", "batch", "threads", "median", "p90", "p99", "items/s", "ratio", "verdict"), rows)
    for line in report.regressions:
        yield f"- **slower** {_cell(line)}"
    for profile in report.profiles:
        yield ""
        nodes = [
            (
                original_name(n, 1),
                n.operator,
                duration(n.seconds),
                f"{n.share:.1%}",
                *("" if v is None else f"{v:.1f}" for v in (n.gflops, n.gbs)),
            )
            for n in profile.nodes[:_SLOWEST]
        ]
        yield from _table((f"slowest nodes of {profile.model}", "runs as", "time", "share", "GFLOP/s", "GB/s"), nodes)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(map(_cell, columns)) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(c if c.startswith("**") else _cell(c) for c in row) + " |"


def _cell(text: str) -> str:
    """Text from files, with everything that means something in Markdown or HTML made harmless."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", clean(text, 300))

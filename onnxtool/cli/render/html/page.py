"""A report as one HTML page that needs nothing else: no scripts, no fonts, no requests; light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from onnxtool import __version__
from onnxtool.cli.render.html.plots import Bar, bars, box_plot, depth_plot
from onnxtool.cli.render.terminal.bench import original_name
from onnxtool.cli.render.text import clean, count, duration, number, size
from onnxtool.errors import UsageError
from onnxtool.report.base import Report
from onnxtool.report.bench import BenchReport
from onnxtool.report.check import CheckReport, ChecksReport, Severity
from onnxtool.report.compare import LOWEST_DECADE, CompareReport, TensorDifference
from onnxtool.report.layers import Layers
from onnxtool.report.optimize import OptimizeReport
from onnxtool.report.profile import Profile

# Rows of the table of nodes.
_SLOWEST = 20

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --bad: #cf222e; --warn: #b35900; --bar: #0969da; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #ff7b72; --warn: #d29922; --bar: #58a6ff; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3, p { overflow-wrap: anywhere; } h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h3 { font-size: 1rem; }
table { border-collapse: collapse; width: 100%; } .scroll { overflow-x: auto; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td { overflow-wrap: break-word; } .scroll { margin: .75rem 0; } td.n, th.n { text-align: right; white-space: nowrap; }
td.n { font-variant-numeric: tabular-nums; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); } .dim { opacity: .7; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; } .grid { stroke: var(--line); }
.bar { fill: var(--bar); } .pale { fill-opacity: .35; } svg .small { font-size: 10px; }
.key { display: inline-block; width: .8em; height: .8em; background: var(--bar); } .key.pale { opacity: .35; }
.dot-good { fill: var(--good); } .dot-bad { fill: var(--bad); }
.whisker { stroke: currentColor; } .box { fill: var(--bar); fill-opacity: .35; stroke: var(--bar); }
footer { margin-top: 3rem; font-size: .85rem; opacity: .7; }
/* On a telephone pictures keep letters that can be read; they and wide tables are moved sideways. */
.picture { overflow-x: auto; } .picture svg { min-width: 36rem; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; } table { font-size: .85rem; } th, td { padding: .25rem .4rem; }
}
"""


def render(report: Report) -> str:
    """The page.

    Raises:
        UsageError: there is no page for this kind of report.
    """
    verdict = '<span class="good">OK</span>' if report.ok else '<span class="bad">FAILED</span>'
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>onnxtool {report.kind}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>onnxtool {report.kind}: {verdict}</h1>\n{body}\n"
        f"<footer>onnxtool {__version__}</footer></body></html>\n"
    )


def _body(report: Report) -> Iterator[str]:
    if isinstance(report, CheckReport):
        yield from _check(report)
    elif isinstance(report, ChecksReport):
        rows = [(r.model, "passed" if r.ok else "failed", *(str(r.count(s)) for s in Severity)) for r in report.reports]
        yield table(("model", "result", "errors", "warnings", "notes"), rows, right=3)
        yield from (f'<p class="bad">{text(u.error)}</p>' for u in report.unreadable)
        for one in report.reports:
            yield from _check(one)
    elif isinstance(report, CompareReport):
        yield from _compare(report)
    elif isinstance(report, BenchReport):
        yield from _bench(report)
    elif isinstance(report, OptimizeReport):
        from onnxtool.cli.render.html import optimize

        yield from optimize.body(report)
    else:
        raise UsageError(f"--html: there is no page for a {report.kind} report.")


def _check(report: CheckReport) -> Iterator[str]:
    yield f"<h2>{text(report.model)}</h2>"
    facts = [
        ("size", size(report.bytes)),
        ("nodes", str(report.nodes)),
        ("IR version", str(report.ir_version)),
        ("opsets", ", ".join(f"{d} {v}" for d, v in report.opsets.items())),
        ("producer", report.producer),
        *(("input", str(i)) for i in report.inputs),
        *(("output", str(o)) for o in report.outputs),
    ]
    yield table((), facts)
    stages = [(s.name, s.state, duration(s.seconds) if s.state != "skipped" else "", s.detail) for s in report.stages]
    yield table(("stage", "result", "time", ""), stages)
    if report.findings:
        rows = [(f.severity.value, f.id, f.where, f.message, f.fix) for f in report.findings]
        yield table(("severity", "id", "where", "finding", "fix"), rows)


def _compare(report: CompareReport) -> Iterator[str]:
    tolerance = f"rtol {report.rtol:g}, atol {report.atol:g}"
    yield f"<p>{text(report.a)} against {text(report.b)}, {text(report.data)}, {tolerance}</p>"
    rows = [
        (
            o.name,
            f"{o.dtype}[{', '.join(map(str, o.shape))}]",
            "equal" if o.ok else "differs",
            *(number(v) for v in (o.max_abs, o.max_rel, o.mean_abs, o.cosine, o.sqnr_db)),
        )
        for o in report.outputs
    ]
    columns = ("output", "shape", "verdict", "max abs", "max rel", "mean abs", "cosine", "SQNR dB")
    yield table(columns, rows, right=5)
    yield from (f'<p class="warn">{text(line)}</p>' for line in report.warnings)
    for output in report.outputs:
        yield from _histogram(output)
    if report.layers is not None:
        yield from _layers(report.layers)


def _histogram(output: TensorDifference) -> Iterator[str]:
    if sum(output.error_decades[1:]) == 0:
        return
    yield f"<h2>{text(output.name)}: elements by their error</h2>"
    labels = ["0", *(f"1e{LOWEST_DECADE + i}" for i in range(len(output.error_decades) - 1))]
    yield bars([Bar(label, n, str(n)) for label, n in zip(labels, output.error_decades, strict=True)])
    if output.worst_index is not None:
        where = f"worst at {list(output.worst_index)}: {output.expected} against {output.actual}"
        yield f'<p class="dim">{text(where)}</p>'


def _layers(layers: Layers) -> Iterator[str]:
    yield "<h2>Error along the depth</h2>"
    points = [(t.depth, t.error, t.ok or t.reused, f"{t.operator} {t.name}: {t.error:.3g}") for t in layers.tensors]
    yield depth_plot(points)
    if layers.culprit is not None:
        yield f'<p>First wrong tensor: <strong class="bad">{text(layers.culprit.tensor)}</strong>, made by</p>'
        suspects = layers.culprit.suspects
    else:
        yield "<p>Every tensor agrees" + (" on these inputs, but weights differ:</p>" if layers.changed else ".</p>")
        suspects = layers.changed
    rows = [
        (
            s.model,
            s.operator,
            s.node,
            ", ".join(s.inputs),
            ", ".join(s.changed_weights),
            " or ".join(s.explaining_weights),
        )
        for s in suspects
    ]
    if rows:
        yield table(("model", "operator", "node", "reads", "changed weights", "explained by"), rows)


def _bench(report: BenchReport) -> Iterator[str]:
    yield f"<p>{text(report.runtime)} on {text(report.cpu)}, {report.cores} cores; {text(report.data)}</p>"
    held = [
        (
            m.model,
            size(m.bytes),
            duration(m.load.seconds),
            "-" if m.load.peak_bytes is None else size(m.load.peak_bytes),
        )
        for m in report.models
    ]
    yield table(("model", "file", "load", "peak memory"), held, right=3)
    yield "<h2>Size of the files</h2>"
    yield bars([Bar(m.model, m.bytes, size(m.bytes)) for m in report.models], horizontal=True)
    for batch, threads in dict.fromkeys((i.batch, i.threads) for i in report.latencies):
        items = [i for i in report.latencies if (i.batch, i.threads) == (batch, threads)]
        yield f"<h2>Latency at batch {batch}, {threads or 'all'} threads</h2>"
        rows = [
            (
                i.model,
                i.verdict,
                *(duration(v) for v in (i.median, i.p90, i.p99)),
                count(i.throughput),
                "" if i.ratio is None else f"{i.ratio:.2f} [{i.ratio_low:.2f}, {i.ratio_high:.2f}]",
            )
            for i in items
        ]
        yield table(("model", "verdict", "median", "p90", "p99", "items/s", "ratio [95 %]"), rows, right=5)
        yield box_plot([(i.model, i.quantiles) for i in items if len(i.quantiles) == 21])
    for profile in report.profiles:
        yield f"<h2>{text(profile.model)}: time by operator</h2>"
        shown = profile.operators[:15]
        yield bars([Bar(o.operator, o.seconds, f"{o.share:.1%}") for o in shown], horizontal=True)
        yield from _slowest(profile)
    yield from (f'<p class="bad">{text(line)}</p>' for line in report.regressions)


def _slowest(profile: Profile) -> Iterator[str]:
    yield "<h3>Slowest nodes</h3>"
    rows = [
        (
            original_name(n, 3),
            n.operator,
            duration(n.seconds),
            f"{n.share:.1%}",
            *("" if v is None else f"{v:.1f}" for v in (n.gflops, n.gbs, n.intensity)),
            "" if n.attained is None else f"{n.attained:.0%} {n.bound}",
        )
        for n in profile.nodes[:_SLOWEST]
    ]
    yield table(("node", "runs as", "time", "share", "GFLOP/s", "GB/s", "FLOPs/byte", "of peak"), rows, right=6)
    if profile.peaks is not None:
        peaks = f"{profile.peaks.gflops:.0f} GFLOP/s in float32 and {profile.peaks.gbs:.1f} GB/s"
        yield f'<p class="dim">of peak: of {text(peaks)}, measured on this machine, whichever bounds the node</p>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: int = 0) -> str:
    """A table whose last `right` columns hold numbers."""
    width = len(columns)
    head = "".join(f"<th{_align(i, width, right)}>{text(c)}</th>" for i, c in enumerate(columns))
    lines = []
    for row in rows:
        cells = "".join(f"<td{_align(i, len(row), right)}{_colour(c)}>{_broken(c)}</td>" for i, c in enumerate(row))
        lines.append(f"<tr>{cells}</tr>")
    top = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<div class="scroll"><table>{top}<tbody>{"".join(lines)}</tbody></table></div>'


def _broken(cell: str) -> str:
    """A cell that may be broken where a path or a name has a joint."""
    return re.sub("([/_])", r"\1<wbr>", text(cell))


def _align(index: int, width: int, right: int) -> str:
    return ' class="n"' if index >= width - right else ""


def _colour(text: str) -> str:
    good, bad = ("passed", "equal", "faster"), ("failed", "differs", "error", "slower")
    name = "good" if text in good else "bad" if text in bad else "warn" if text in ("warning", "warned") else ""
    return f' class="{name}"' if name else ""


def text(value: object) -> str:
    """A value from a file or a report, safe to stand in the page."""
    return escape(clean(value, 500))

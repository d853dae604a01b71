"""The page of `bench`: latencies side by side, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.render.html.parts import table, text
from onnxtool.cli.render.html.plots import Bar, bars, box_plot
from onnxtool.cli.render.terminal.bench import original_name
from onnxtool.cli.render.text import count, duration, plural, size
from onnxtool.report.measurement.bench import BenchReport
from onnxtool.report.measurement.profile import Profile

# Rows of the table of nodes.
_SLOWEST = 20


def body(report: BenchReport) -> Iterator[str]:
    """The page\'s parts."""
    yield f"<p>{text(report.runtime)} on {text(report.cpu)}, {plural(report.cores, 'core')}; {text(report.data)}</p>"
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
    yield bars([Bar(m.model, m.bytes, size(m.bytes)) for m in report.models])
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
        yield bars([Bar(o.operator, o.seconds, f"{o.share:.1%}") for o in shown])
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

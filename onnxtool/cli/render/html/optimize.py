"""What `optimize --html` shows: both graphs' operators, the biggest changes, what each pass did, and the latency."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.render.html.parts import table, text
from onnxtool.cli.render.html.plots import Pair, pairs
from onnxtool.cli.render.text import duration, number, size
from onnxtool.report.optimize import OptimizeReport

_OPERATORS, _CHANGES = 30, 12


def body(report: OptimizeReport) -> Iterator[str]:
    """The page's parts."""
    yield f"<p>{text(report.source)} &rarr; {text(report.output)}, level {text(report.level)}</p>"
    yield table(("", "before", "after", "after / before"), _sizes(report), right=3)
    yield table((), [(k, v) for k, v in _facts(report) if v])
    yield from (f'<p class="warn">{text(line)}</p>' for line in report.warnings)
    yield from _operators(report)
    yield from _families(report)
    yield from _passes(report)


def _sizes(report: OptimizeReport) -> list[tuple[str, str, str, str]]:
    before, after, latency = report.before, report.after, report.latency
    rows = [
        ("nodes", str(before.nodes), str(after.nodes), f"{after.nodes / max(before.nodes, 1):.2f}"),
        ("size", size(before.bytes), size(after.bytes), f"{after.bytes / max(before.bytes, 1):.2f}"),
    ]
    if latency is not None:
        interval = f"{latency.value:.3f} [{latency.low:.3f}, {latency.high:.3f}]"
        rows.append(("latency", duration(latency.before), duration(latency.after), interval))
    return rows


def _facts(report: OptimizeReport) -> Iterator[tuple[str, str]]:
    if report.latency is not None:
        threads = report.latency.threads
        count = "all cores" if threads is None else f"{threads} thread{'s' if threads != 1 else ''}"
        yield "latency", f"median, with its 95 % interval; {count}, side by side, the runtime's own optimizations on"
    comparison = report.comparison
    if comparison is None:
        yield "equality", "not compared"
    else:
        worst = max((o.max_abs for o in comparison.compared), default=0.0)
        words = "equal" if comparison.ok else "differs"
        if comparison.compared:
            yield "equality", f"{words} on {len(comparison.runs)} runs, max abs difference {number(worst)}"
        if comparison.not_compared:
            yield "not compared, because random", ", ".join(o.name for o in comparison.not_compared)
    yield "rewriting", f"{duration(report.seconds)}, {report.rounds} rounds"
    yield "left out", "; ".join(f"{d.name}: {d.reason}" for d in report.dropped)
    yield "chosen for", report.target or ""


def _operators(report: OptimizeReport) -> Iterator[str]:
    before, after = report.before.operators, report.after.operators
    names = sorted({**before, **after}, key=lambda n: (-max(before.get(n, 0), after.get(n, 0)), n))
    yield "<h2>Operators</h2>"
    yield '<p><span class="key pale"></span> before &nbsp; <span class="key"></span> after</p>'
    yield pairs([Pair(n, before.get(n, 0), after.get(n, 0)) for n in names[:_OPERATORS]])
    if len(names) > _OPERATORS:
        yield f'<p class="dim">and {len(names) - _OPERATORS} more operators</p>'
    changed = [n for n in names if before.get(n, 0) != after.get(n, 0)]
    changed.sort(key=lambda n: (-abs(after.get(n, 0) - before.get(n, 0)), n))
    yield "<h2>Biggest changes</h2>"
    rows = [
        (n, str(before.get(n, 0)), str(after.get(n, 0)), f"{after.get(n, 0) - before.get(n, 0):+d}")
        for n in changed[:_CHANGES]
    ]
    yield table(("operator", "before", "after", "change"), rows, right=3) if rows else "<p>none</p>"


def _families(report: OptimizeReport) -> Iterator[str]:
    if not report.families:
        return
    yield "<h2>Fusions into the runtime's own operators</h2>"
    yield table(("family", "", "why"), [(f.name, "kept" if f.kept else "left out", f.reason) for f in report.families])


def _passes(report: OptimizeReport) -> Iterator[str]:
    fired = [p for p in report.passes if p.rewrites]
    yield "<h2>Passes</h2>"
    rows = [(p.name, p.level, str(p.rewrites), duration(p.seconds)) for p in fired]
    yield table(("pass", "level", "rewrites", "time"), rows, right=2) if rows else "<p>none changed anything</p>"
    idle = len(report.passes) - len(fired)
    if idle:
        spent = sum(p.seconds for p in report.passes if not p.rewrites)
        yield f'<p class="dim">{idle} more found nothing to do, in {duration(spent)}</p>'

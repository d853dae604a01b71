"""What `optimize` says: the sizes, the operators that changed, what each pass did, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import duration, interval, number, plural, size
from onnxtool.cli.views.compare import provider_proofs
from onnxtool.cli.views.view import Bars, Facts, Line, Part, Table, Verdict, state, warnings
from onnxtool.report.compare import CompareReport
from onnxtool.report.optimize import OptimizeReport, PassListReport

_OPERATORS = 12
_BEFORE_AFTER = ("before", "after")


def summary(report: OptimizeReport) -> str:
    """What was gained and how that was proven, in a line."""
    parts = [f"{report.before.nodes} -> {report.after.nodes} nodes"]
    if report.latency is not None:
        found = report.latency
        speed = "faster" if found.high < 1 else "slower" if found.low > 1 else "as fast"
        parts.append(f"latency {number(found.value)}x ({number(found.low)} to {number(found.high)}), {speed}")
    if report.comparison is None:
        parts.append("not compared")
    else:
        parts += _equality(report.comparison)
    faults = [d.name for d in report.dropped if d.fault]
    if faults:
        parts.append(f"without {', '.join(faults)}")
    return "; ".join(parts)


def _equality(comparison: CompareReport) -> Iterator[str]:
    """What was compared, and what was not."""
    if comparison.ok:
        worst = max((o.max_abs for o in comparison.compared), default=0.0)
        runs = f"equal on {plural(len(comparison.runs), 'run')}, max abs difference {number(worst)}"
        certified = comparison.verdict == "certified"
        yield f"certified: the same real function; {runs}" if certified else runs
    if comparison.not_compared:
        yield f"not compared, because random: {', '.join(o.name for o in comparison.not_compared)}"
    blind = [o for o in comparison.not_tested if o.compared]
    if blind and comparison.verdict != "certified":
        listed = ", ".join(f"{o.name} ({o.untested} in every run)" for o in blind)
        yield f"not tested: {listed}; give --data"


def optimize(report: OptimizeReport) -> Iterator[Part]:
    """Size before and after, the operators that changed, what each pass did, latency, verdict."""
    yield Verdict(report.verdict or summary(report), f"{report.source}, level {report.level}")
    yield _sizes(report)
    if report.latency is not None:
        threads = "all cores" if report.latency.threads is None else plural(report.latency.threads, "thread")
        how = f"latency: median, with its 95 % interval; {threads}, side by side, the runtime's own optimizations on"
        yield Line(how, tone="dim", indent=2, when="full")
    yield from _operators(report)
    yield from _passes(report)
    families = [(f.name, state("kept") if f.kept else "left out", f.reason) for f in report.families]
    yield Table(("family", "", "why"), families, title="Fusions into the runtime's own operators", when="full")
    yield Facts(
        (
            ("chosen for", report.target),
            ("fusions kept", ", ".join(f.name for f in report.families if f.kept)),
            ("left out", ", ".join(f"{d.name} ({d.reason})" for d in report.dropped)),
            ("rule", "" if report.comparison is None else report.comparison.rule),
            ("certificate", "" if (c := report.comparison) is None or c.certificate is None else c.certificate.summary),
            ("written", report.output),
        )
    )
    if report.compiled is not None:
        form = report.compiled
        times = f"loads in {duration(form.load_seconds)} instead of {duration(form.compile_seconds)}"
        yield Line(f"compiled {form.output} ({size(form.bytes)}, for {form.provider}): {times}")
    yield from provider_proofs(report.providers)
    yield from warnings(report.warnings)


def _sizes(report: OptimizeReport) -> Table:
    before, after, latency = report.before, report.after, report.latency
    rows = [
        ("nodes", str(before.nodes), str(after.nodes), f"{after.nodes / max(before.nodes, 1):.2f}"),
        ("size", size(before.bytes), size(after.bytes), f"{after.bytes / max(before.bytes, 1):.2f}"),
    ]
    if latency is not None:
        ratio = interval(latency.value, latency.low, latency.high, digits=3)
        rows.append(("latency", duration(latency.before), duration(latency.after), ratio))
    numbers = (*_BEFORE_AFTER, "after / before")
    return Table(("", *numbers), rows, numbers=numbers)


def _operators(report: OptimizeReport) -> Iterator[Part]:
    before, after = report.before.operators, report.after.operators
    counts = {name: (before.get(name, 0), after.get(name, 0)) for name in {**before, **after}}
    largest = sorted(counts, key=lambda name: (-max(counts[name]), name))
    bars = [(name, after.get(name, 0), str(after.get(name, 0))) for name in largest]
    yield Bars("Operators", bars, before=[before.get(name, 0) for name in largest])
    changes = sorted(counts, key=lambda name: (-abs(counts[name][0] - counts[name][1]), name))
    rows = [(name, *map(str, counts[name])) for name in changes]
    changed = [row for row in rows if row[1] != row[2]]
    yield Table(("operator", *_BEFORE_AFTER), changed, _BEFORE_AFTER, "Biggest changes", few=_OPERATORS, when="brief")
    yield Table(("operator", *_BEFORE_AFTER), rows, _BEFORE_AFTER, "Biggest changes first", when="full")


def _passes(report: OptimizeReport) -> Iterator[Part]:
    """Those that changed something; where there is room also how long the others took."""
    rows = [(p.name, p.level, str(p.rewrites), duration(p.seconds)) for p in report.passes if p.rewrites]
    yield Table(("pass", "level", "rewrites", "time"), rows, ("rewrites", "time"), "Passes")
    idle = [p for p in report.passes if not p.rewrites]
    spent = duration(sum(p.seconds for p in idle))
    names = f", {plural(len(idle), 'other pass', 'other passes')} {spent} of it: {', '.join(p.name for p in idle)}"
    taken = f"rewriting took {duration(report.seconds)} in {plural(report.rounds, 'round')}"
    yield Line(taken + (names if idle else ""), tone="dim", indent=2, when="full")


def passes(report: PassListReport) -> Iterator[Part]:
    """One row for each pass, in the order in which they run."""
    rows = [
        (p.name, p.level, p.description + (f" (from {p.origin})" if p.origin != "onnxtool" else ""))
        for p in report.passes
    ]
    yield Table(("pass", "level", "what it does"), rows)

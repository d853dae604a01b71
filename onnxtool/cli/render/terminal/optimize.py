"""Terminal view of an OptimizeReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, provider_proofs, table, verdict, warnings
from onnxtool.cli.render.text import clean, duration, markup, number, size
from onnxtool.report.compare import CompareReport
from onnxtool.report.optimize import OptimizeReport

if TYPE_CHECKING:
    from rich.console import Console

_OPERATORS = 12


def render(report: OptimizeReport, console: Console, verbose: int = 0) -> None:
    """Size before and after, the operators that changed, what each pass did, latency, verdict."""
    made = table("", "before", "after", right=("before", "after"))
    made.add_row("nodes", str(report.before.nodes), str(report.after.nodes))
    made.add_row("size", size(report.before.bytes), size(report.after.bytes))
    if report.latency is not None:
        made.add_row("latency", duration(report.latency.before), duration(report.latency.after))
    console.print(made)
    _operators(report, console, verbose)
    _passes(report, console, verbose)
    slow = ", ".join(f"{d.name} ({d.reason})" for d in report.dropped if not d.fault)
    kept = ", ".join(f.name for f in report.families if f.kept)
    target = ("chosen for", report.target or "")
    rule = "" if report.comparison is None else report.comparison.rule
    told = (target, ("fusions kept", kept), ("left out", slow), ("rule", rule), ("written", report.output))
    console.print(facts(told))
    if report.compiled is not None:
        form = report.compiled
        times = f"loads in {duration(form.load_seconds)} instead of {duration(form.compile_seconds)}"
        console.print(f"compiled {markup(form.output)} ({size(form.bytes)}, for {markup(form.provider)}): {times}")
    provider_proofs(console, report.providers)
    warnings(console, report.warnings)
    verdict(console, report.ok, clean(report.verdict) or _summary(report))


def _operators(report: OptimizeReport, console: Console, verbose: int) -> None:
    before, after = report.before.operators, report.after.operators
    names = [n for n in {**before, **after} if verbose or before.get(n, 0) != after.get(n, 0)]
    names.sort(key=lambda n: (-abs(before.get(n, 0) - after.get(n, 0)), n))
    if not names:
        return
    shown = names if verbose else names[:_OPERATORS]
    made = table("operator", "before", "after", right=("before", "after"))
    for name in shown:
        made.add_row(markup(name), str(before.get(name, 0)), str(after.get(name, 0)))
    console.print(made)
    if len(names) > len(shown):
        console.print(f"  and {len(names) - len(shown)} more operators that changed (-v shows all)")


def _passes(report: OptimizeReport, console: Console, verbose: int) -> None:
    shown = [p for p in report.passes if p.rewrites or verbose]
    if not shown:
        return
    made = table("pass", "level", "rewrites", "time", right=("rewrites", "time"))
    for item in shown:
        made.add_row(markup(item.name), item.level, str(item.rewrites), duration(item.seconds))
    console.print(made)


def _summary(report: OptimizeReport) -> str:
    parts = [f"{report.before.nodes} -> {report.after.nodes} nodes"]
    if report.latency is not None:
        lat = report.latency
        said = "faster" if lat.high < 1 else "slower" if lat.low > 1 else "as fast"
        parts.append(f"latency {number(lat.value)}x ({number(lat.low)} to {number(lat.high)}), {said}")
    if report.comparison is None:
        parts.append("not compared")
    else:
        parts += _equality(report.comparison)
    faults = [clean(d.name) for d in report.dropped if d.fault]
    if faults:
        parts.append(f"without {', '.join(faults)}")
    return "; ".join(parts)


def _equality(comparison: CompareReport) -> list[str]:
    """What was compared, and what was not."""
    parts = []
    if comparison.ok:
        worst = max((o.max_abs for o in comparison.compared), default=0.0)
        runs = len(comparison.runs)
        parts.append(f"equal on {runs} run{'s' if runs != 1 else ''}, max abs difference {number(worst)}")
    left = [clean(o.name) for o in comparison.not_compared]
    if left:
        parts.append(f"not compared, because random: {', '.join(left)}")
    return parts

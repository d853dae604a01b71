"""Terminal view of a ConvertReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, provider_proofs, table, tensors, verdict, warnings
from onnxtool.cli.render.text import clean, duration, markup, number, size
from onnxtool.report.convert import ConvertReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: ConvertReport, console: Console, verbose: int = 0) -> None:
    """What was recognised, what was written, one row for each output compared, and the verdict."""
    total = sum(report.seconds.values())
    stages = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in report.seconds.items())
    console.print(
        facts(
            [
                ("source", f"{clean(report.source)} ({report.form}, {report.framework})"),
                ("sha256", report.source_sha256 if verbose else None),
                ("inputs", tensors(report.inputs)),
                ("outputs", tensors(report.outputs)),
                ("opset", f"{report.opset}, {report.nodes} nodes"),
                ("size", size(report.size_bytes) if report.written else None),
                ("time", f"{duration(total)} ({stages})"),
            ]
        )
    )
    for note in report.notes:
        console.print(f"[dim]note:[/] {markup(note, 1000)}")
    if report.comparison is not None:
        _compared(report, console)
    provider_proofs(console, report.providers)
    if report.written and not all(p.ok for p in report.providers):
        verdict(console, False, f"{report.output} written, and equal on the CPU; not on every provider asked for")
    elif report.ok and report.comparison is not None:
        runs = len(report.comparison.runs)
        compared = f"equal to its source in {runs} run{'s' if runs != 1 else ''}"
        if report.untested:
            compared = f"compared in {runs} run{'s' if runs != 1 else ''}, {report.untested}"
        verdict(console, True, f"{report.output} written; {compared}")
    elif report.ok:
        warnings(console, ["not compared with its source (--no-verify)."])
        verdict(console, True, f"{report.output} written, unverified")
    else:
        where = f"; kept as {report.kept} for study" if report.kept else ""
        rows = "" if report.changed_rows is None else " in {} of {} rows of the sample".format(*report.changed_rows)
        verdict(console, False, f"outputs differ from the source's{rows}; {report.output} not written{where}")


def _compared(report: ConvertReport, console: Console) -> None:
    comparison = report.comparison
    assert comparison is not None
    numbers = ("max abs", "max rel")
    made = table("output", "shape", *numbers, "verdict", right=numbers)
    for item in comparison.outputs:
        made.add_row(
            markup(item.name),
            f"{item.dtype}[{', '.join(map(str, item.shape))}]".replace("[", "\\["),
            number(item.max_abs),
            number(item.max_rel),
            "[green]equal[/]" if item.ok else "[red]differs[/]",
        )
    console.print(made)
    worst = comparison.worst
    if worst is not None and not worst.ok:
        reason = worst.note or (
            f"{worst.mismatched} of {worst.total} elements outside rtol {comparison.rtol:g}, atol {comparison.atol:g}; "
            f"worst at {list(worst.worst_index or ())} of run {worst.worst_run + 1}: "
            f"{worst.expected} against {worst.actual}"
        )
        console.print(f"  worst output {markup(worst.name)}: {markup(reason, 500)}")
    if comparison.counterexample is not None:
        console.print(f"  [red]differs with[/] {markup(str(comparison.counterexample), 500)}", soft_wrap=True)
    if len(comparison.outputs) and comparison.runs:
        sizes = "; ".join(", ".join(f"{n} {list(s)}" for n, s in run.items()) for run in comparison.runs)
        limits = f"within rtol {comparison.rtol:g}, atol {comparison.atol:g}"
        console.print(f"  compared on {markup(comparison.data)}, {limits}: {markup(sizes, 400)}", style="dim")
    if comparison.rule:
        console.print(f"  rule: {markup(comparison.rule, 300)} (docs/equality.md)", style="dim")
    if comparison.coverage is not None:
        console.print(f"  besides: {markup(comparison.coverage.summary, 300)}", style="dim")

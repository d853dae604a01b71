"""Terminal view of an EditReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import diff as changes
from onnxtool.cli.render.terminal import facts, table, tensors, verdict, warnings
from onnxtool.cli.render.text import markup, number, size
from onnxtool.report.diff import DiffReport
from onnxtool.report.edit import EditReport, Proof

if TYPE_CHECKING:
    from rich.console import Console


def render(report: EditReport, console: Console, verbose: int = 0) -> None:
    """Each operation with what it did and how that was proven; for a dry run, what would change."""
    made = table("operation", "done", "proof")
    for step in report.steps:
        option = f"--{step.operation} {step.value}".strip()
        made.add_row(markup(option, 200), markup(step.done, 300), markup(_told(step.proof), 500))
    console.print(made)
    if report.changes is not None:
        changes.render(DiffReport(report.source, "(edited)", report.changes, {}), console, verbose)
    sizes = f"{size(report.bytes_before)} -> {size(report.bytes_after)}"
    console.print(
        facts(
            (
                ("inputs", tensors(report.inputs)),
                ("outputs", tensors(report.outputs)),
                ("size", sizes),
                ("written", report.output or "nothing (dry run)"),
            )
        )
    )
    warnings(console, report.warnings)
    proven = sum(s.proof is not None and s.proof.compared for s in report.steps)
    count = len(report.steps)
    told = (
        f"{count} operation{'s' if count != 1 else ''}, {proven} proven" if proven else f"{count} applied, none proven"
    )
    run = sum(s.proof is not None and not s.proof.compared for s in report.steps)
    told += f", {run} only run: the outputs are random and were not compared" if run else ""
    verdict(console, report.ok, told)


def _told(proof: Proof | None) -> str:
    if proof is None:
        return "not asked for"
    parts = [proof.claim]
    if proof.runs:
        parts.append(f"{proof.runs} run{'s' if proof.runs != 1 else ''}")
    if not proof.exact and proof.max_abs:
        parts.append(f"max abs difference {number(proof.max_abs)}")
    if proof.unproven:
        parts.append(f"not proven: {proof.unproven}")
    return "; ".join(parts)

"""What `edit` says: each operation with what it did and how that was checked."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import number, plural, size
from onnxtool.cli.views.diff import diff
from onnxtool.cli.views.view import Facts, Part, Table, Verdict, warnings
from onnxtool.report.diff import DiffReport
from onnxtool.report.edit import EditReport, OperationListReport, Proof


def edit(report: EditReport) -> Iterator[Part]:
    """Each operation with its proof; for a dry run, what would change."""
    count = len(report.steps)
    checked = sum(s.proof is not None and s.proof.compared for s in report.steps)
    run = sum(s.proof is not None and not s.proof.compared for s in report.steps)
    told = f"{plural(count, 'operation')}, {checked} checked" if checked else f"{count} applied, none checked"
    told += f", {run} only run: the outputs are random and were not compared" if run else ""
    unproven = len(report.unproven)
    told += f"; {plural(unproven, 'assumption')} not proven" if unproven else ""
    told += f": {report.verdict}"
    yield Verdict(told, report.source)
    steps = [(f"--{s.operation} {s.value}".strip(), s.done, _describe_proof(s.proof)) for s in report.steps]
    yield Table(("operation", "done", "proof"), steps)
    rows = [(a.status, a.node, a.claim, a.reason) for s in report.steps for a in s.assumptions]
    yield Table(("assumed", "node", "what", "why"), rows, title="Assumptions")
    if report.changes is not None:
        yield from diff(DiffReport(report.source, "(edited)", report.changes, {}))
    yield Facts(
        (
            ("inputs", ", ".join(map(str, report.inputs))),
            ("outputs", ", ".join(map(str, report.outputs))),
            ("size", f"{size(report.bytes_before)} -> {size(report.bytes_after)}"),
            ("written", report.output or "nothing (dry run)"),
        )
    )
    yield from warnings(report.warnings)


def _describe_proof(proof: Proof | None) -> str:
    if proof is None:
        return "not asked for"
    parts = [proof.claim]
    if proof.runs:
        parts.append(plural(proof.runs, "run"))
    if not proof.exact and proof.max_abs:
        parts.append(f"max abs difference {number(proof.max_abs)}")
    if proof.unproven:
        parts.append(f"not proven: {proof.unproven}")
    return "; ".join(parts)


def operations(report: OperationListReport) -> Iterator[Part]:
    """One line for each operation."""
    rows = [
        (f"--{o.name} {o.value}".strip(), o.description + (f" ({o.origin})" if o.origin != "onnxtool" else ""))
        for o in report.operations
    ]
    yield Table(("operation", "what it does"), rows)

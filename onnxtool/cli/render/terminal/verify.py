"""Terminal view of a VerifyReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import compare, facts, table, verdict
from onnxtool.cli.render.text import markup
from onnxtool.report.verify import VerifyReport

if TYPE_CHECKING:
    from rich.console import Console


def render(report: VerifyReport, console: Console, verbose: int = 0) -> None:
    """The digest, then the steps that made the file."""
    rows = [("model", report.model), ("external data", ", ".join(report.external)), ("digest", report.recorded)]
    if not report.unchanged:
        rows.append(("actual digest", report.actual))
    if report.signature is not None:
        rows.append(("signature", report.signature))
    console.print(facts(rows))
    if report.history:
        steps = table("step", "onnxtool", "source", "SHA-256 of the source")
        for entry in report.history:
            cells = (entry.get(key, "") for key in ("command", "onnxtool", "source", "source_sha256"))
            steps.add_row(*(markup(cell) for cell in cells))
        console.print(steps)
    if report.replay is not None:
        compare.render(report.replay, console, verbose)
    verdict(console, report.ok, _sentence(report))


def _sentence(report: VerifyReport) -> str:
    if report.replay is not None:
        again = "equal to its source once more" if report.replay.ok else "the recorded proof fails now"
        return f"{_provenance(report)}; {again}"
    if report.signature_fault is not None:
        return f"{_provenance(report)}; the signature is not good: {report.signature_fault}"
    if report.signature is not None:
        return f"{_provenance(report)}; {'signed' if report.signature_made else 'the signature is good'}"
    return _provenance(report)


def _provenance(report: VerifyReport) -> str:
    if report.recorded is None:
        return "the file bears no digest of onnxtool at its end: not written by it, or written over since"
    if not report.unchanged:
        return "the file or its external data was changed after onnxtool wrote it"
    if report.stale:
        return f"unchanged, but stale: {'; '.join(report.stale)}"
    if report.source is None:
        return "unchanged since onnxtool wrote it"
    if report.source_step is None:
        return f"unchanged, but {report.source} is the source of no step"
    return f"unchanged, and made from {report.source} (step {report.source_step})"

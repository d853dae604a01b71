"""What `verify` says: whether a file is as it was written, and the steps that made it."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.views import compare
from onnxtool.cli.views.view import Facts, Line, Part, Table, View
from onnxtool.report.verify import VerifyReport


def verify(report: VerifyReport) -> View:
    """The digest, then the steps that made the file."""
    return View(report.ok, _verdict(report), _parts(report))


def _parts(report: VerifyReport) -> Iterator[Part]:
    yield Facts(
        (
            ("model", report.model),
            ("external data", ", ".join(report.external)),
            ("digest", report.recorded),
            ("actual digest", None if report.unchanged else report.actual),
            ("signature", report.signature),
        )
    )
    keys = ("command", "onnxtool", "source", "source_sha256")
    steps = [tuple(str(entry.get(key, "")) for key in keys) for entry in report.history]
    yield Table(("step", "onnxtool", "source", "SHA-256 of the source"), steps)
    if report.replay is not None:
        again = compare.compare(report.replay)
        yield from again.parts
        yield Line(again.verdict, "OK" if again.ok else "FAILED", "good" if again.ok else "bad")


def _verdict(report: VerifyReport) -> str:
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
        return "the file has no digest; it was not written by onnxtool, or written over since"
    if not report.unchanged:
        return "the file or its external data was changed after onnxtool wrote it"
    if report.stale:
        return f"unchanged, but stale: {'; '.join(report.stale)}"
    if report.source is None:
        return "unchanged since onnxtool wrote it"
    if report.source_step is None:
        return f"unchanged, but {report.source} is the source of no step"
    return f"unchanged, and made from {report.source} (step {report.source_step})"

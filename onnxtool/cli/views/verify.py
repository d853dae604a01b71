"""What `verify` says: whether a file is as it was written, and the steps that made it."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.views import view_of
from onnxtool.cli.views.view import Facts, Part, Table, Verdict, inner_view
from onnxtool.report.verify import VerifyReport


def verify(report: VerifyReport) -> Iterator[Part]:
    """The digest, then the steps that made the file."""
    yield Verdict(_verdict(report))
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
        yield from inner_view(view_of(report.replay))


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

"""What `certificate` says."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import plural
from onnxtool.cli.views.view import Line, Part, Verdict
from onnxtool.report.certificate import CertificateReport


def certificate(report: CertificateReport) -> Iterator[Part]:
    """The verdict, and what it rests on."""
    yield Verdict(f"{report.verdict}: {report.summary}", f"{report.a} against {report.b}")
    if report.change:
        yield Line(f"the two files differ only in {report.change}", indent=2, whole=True)
    if report.points:
        largest = max(p.prime for p in report.points)
        yield Line(
            f"{plural(len(report.points), 'random point')} in fields of about {largest:,} numbers", "evaluated at"
        )
    if report.constants:
        yield Line(f"{len(report.constants)} within {report.ulps:.3g} ulp of their exact values", "rounded constants")

"""What the commands say that bring a model to where it is used: `package`, `serve` and `view`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import plural, size
from onnxtool.cli.views.view import Code, Part, Table, Verdict, warnings
from onnxtool.report.package import PackageReport
from onnxtool.report.serve import ServeReport, ViewReport


def package(report: PackageReport) -> Iterator[Part]:
    """One row for each package, then what to type."""
    tested = sum(p.proof.started.complete for p in report.packages)
    untested = [p.kind for p in report.packages if not p.proof.started.complete]
    gives = "gives" if tested == 1 else "give"
    told = [f"tested: {plural(tested, 'package')} {gives} the file's answers"] if tested else []
    yield Verdict("; ".join([*told, *([f"{', '.join(untested)}: not tested"] if untested else [])]), report.model)
    rows = [
        (
            *(p.kind, p.folder, size(p.bytes), p.proof.started.how if p.proof.started.complete else "not tested"),
            f"{max((o.max_abs for o in p.proof.outputs), default=0.0):.1e}",
        )
        for p in report.packages
    ]
    yield Table(("package", "folder", "size", "tested by", "max abs"), rows, ("size", "max abs"))
    for p in report.packages:
        yield Code((p.folder, *(f"  {command}" for command in p.commands)))
        yield Code([f"  {file}" for file in p.files], when="full")
    yield from warnings(report.warnings)


def serve(report: ServeReport) -> Iterator[Part]:
    """A server that has ended."""
    failed = f", {report.failures} of them errors" if report.failures else ""
    yield Verdict(f"served {plural(report.requests, 'request')}{failed} in {report.seconds:.0f} s")


def view(report: ViewReport) -> Iterator[Part]:
    """A page that is being served."""
    yield Verdict(f"{report.model} at {report.url} (Ctrl-C ends it)")

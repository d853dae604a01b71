"""GitHub annotations: workflow commands that put findings beside the files in a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import clean
from onnxtool.cli.views import view_of
from onnxtool.report.base import Report
from onnxtool.report.check import CheckReport, ChecksReport, Severity
from onnxtool.report.compare import CompareReport
from onnxtool.report.measurement.bench import BenchReport

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report) -> str:
    """One workflow command in each line; empty when there is nothing to say."""
    return "".join(line + "\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    if isinstance(report, CheckReport):
        # GitHub shows ten of a kind: notes would hide what matters.
        for finding in report.findings:
            if finding.severity is not Severity.NOTE or report.fail_on is Severity.NOTE:
                where = f"{finding.where}: " if finding.where else ""
                yield _command(_LEVELS[finding.severity], report.model, finding.id, where + finding.message)
    elif isinstance(report, ChecksReport):
        for one in report.reports:
            yield from _lines(one)
        for lost in report.unreadable:
            yield _command("error", lost.model, "unreadable", lost.error)
    elif isinstance(report, CompareReport):
        for output in report.outputs:
            if output.compared and not output.ok:
                told = output.note or f"{output.mismatched} of {output.total} elements outside tolerance"
                yield _command("error", report.b, f"{output.name} differs", told)
        if not report.equal and not report.differs:
            yield _command("error", report.b, "not tested", view_of(report).verdict.text)
    elif isinstance(report, BenchReport):
        for line in report.regressions:
            yield _command("error", "", "slower", line)


def _command(level: str, file: str, title: str, message: str) -> str:
    properties = [
        f"{key}={_property(value)}" for key, value in (("file", file), ("title", f"onnxtool {title}")) if value
    ]
    return f"::{level} {','.join(properties)}::{_data(clean(message, 1000))}"


def _data(text: str) -> str:
    """Escaped as GitHub's toolkit does it: a line break in a name must not start a command of its own."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(clean(text, 300)).replace(":", "%3A").replace(",", "%2C")

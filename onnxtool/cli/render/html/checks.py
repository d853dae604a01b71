"""The page of `check` on several models: a row for each, then each in full."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.render.html import check
from onnxtool.cli.render.html.parts import table, text
from onnxtool.report.check import ChecksReport, Severity


def body(report: ChecksReport) -> Iterator[str]:
    """The page's parts."""
    rows = [(r.model, "passed" if r.ok else "failed", *(str(r.count(s)) for s in Severity)) for r in report.reports]
    yield table(("model", "result", "errors", "warnings", "notes"), rows, right=3)
    yield from (f'<p class="bad">{text(u.error)}</p>' for u in report.unreadable)
    for one in report.reports:
        yield from check.body(one)

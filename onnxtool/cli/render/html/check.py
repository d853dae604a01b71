"""The page of `check`: stages and findings."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.render.html.parts import table, text
from onnxtool.cli.render.text import duration, size
from onnxtool.report.check import CheckReport


def body(report: CheckReport) -> Iterator[str]:
    """The page\'s parts."""
    yield f"<h2>{text(report.model)}</h2>"
    facts = [
        ("size", size(report.bytes)),
        ("nodes", str(report.nodes)),
        ("IR version", str(report.ir_version)),
        ("opsets", ", ".join(f"{d} {v}" for d, v in report.opsets.items())),
        ("producer", report.producer),
        *(("input", str(i)) for i in report.inputs),
        *(("output", str(o)) for o in report.outputs),
    ]
    yield table((), facts)
    stages = [(s.name, s.state, duration(s.seconds) if s.state != "skipped" else "", s.detail) for s in report.stages]
    yield table(("stage", "result", "time", ""), stages)
    if report.findings:
        rows = [(f.severity.value, f.id, f.where, f.message, f.fix) for f in report.findings]
        yield table(("severity", "id", "where", "finding", "fix"), rows)

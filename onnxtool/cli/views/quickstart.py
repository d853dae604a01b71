"""What `quickstart` says when all its steps are done."""

from __future__ import annotations

from collections.abc import Iterator

from onnxtool.cli.text import size
from onnxtool.cli.views.view import Code, Part, Table, Verdict, warnings
from onnxtool.report.quickstart import QuickstartReport


def quickstart(report: QuickstartReport) -> Iterator[Part]:
    """The summary: one row for each stage."""
    kept = "within" if report.ok else "NOT within"
    drop = f"(drop {report.accuracy_drop * 100:.2f} points)"
    yield Verdict(f"int8 accuracy is {kept} {report.max_drop:.0%} of float {drop}")
    rows = [
        (
            *(stage.name, stage.file or ""),
            "" if stage.bytes is None else size(stage.bytes),
            "" if stage.nodes is None else str(stage.nodes),
            "" if stage.accuracy is None else f"{stage.accuracy:.2%}",
            "" if stage.latency_ratio is None else f"{stage.latency_ratio:.2f}x",
            stage.outcome,
        )
        for stage in report.stages
    ]
    numbers = ("size", "nodes", "accuracy", "latency")
    # The outcomes were printed step by step already.
    yield Table(("stage", "file", *numbers, "outcome"), rows, numbers, wide=("outcome",))
    yield Code(
        (
            f"accuracy: on {report.images} labelled digits that the model never saw",
            f"latency:  batch {report.batch}, one thread, median over that of {report.baseline}, measured side by side",
            f"files:    {report.folder}",
        )
    )
    yield from warnings(report.warnings)

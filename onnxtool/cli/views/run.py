"""What `run` says: what went in, what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnxtool.cli.text import duration, number
from onnxtool.cli.views.view import Line, Part, Table, Verdict, warnings
from onnxtool.report.run import ArraySummary, RunReport

_FALLBACKS = 5


def run(report: RunReport) -> Iterator[Part]:
    """Inputs and outputs; the first elements where there is room."""
    where = f", written to {report.written}" if report.written else ""
    timing = f"loaded in {duration(report.load_seconds)}, ran in {duration(report.run_seconds)}"
    yield Verdict(f"{timing} on {report.data}{where}", report.model)
    yield from _arrays("inputs", report.inputs)
    yield from _arrays("outputs", report.outputs)
    yield from warnings(report.warnings)
    for index, line in enumerate(report.fallbacks):
        yield Line(line, "fallback:", "bad", when="always" if index < _FALLBACKS else "full")
    if len(report.fallbacks) > _FALLBACKS:
        yield Line(f"... and {len(report.fallbacks) - _FALLBACKS} more fallbacks (-v)", when="brief")


def _arrays(title: str, items: Sequence[ArraySummary]) -> Iterator[Part]:
    rows = [
        (
            item.name,
            f"{item.dtype}[{', '.join(map(str, item.shape))}]",
            *("-" if v is None else number(v) for v in (item.minimum, item.maximum, item.mean)),
        )
        for item in items
    ]
    numbers = ("min", "max", "mean")
    yield Table((title, "shape", *numbers), rows, numbers)
    yield from (Line(f"{item.name}: {_values(item.first)}", indent=2, when="full") for item in items)


def _values(values: Sequence[Any]) -> str:
    shown = ", ".join(number(v) if isinstance(v, float) else str(v) for v in values)
    return f"{shown}, ..." if len(values) >= 8 else shown

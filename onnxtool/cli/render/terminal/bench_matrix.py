"""Terminal view of a BenchMatrixReport."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict, warnings
from onnxtool.cli.render.text import clean, duration, markup, plural, size
from onnxtool.report.measurement.bench_matrix import BenchMatrixReport

if TYPE_CHECKING:
    from rich.console import Console

_NUMBERS = ("load", "memory", "error", "latency", "ratio [95 %]")
_COLOURS = {"equal": "green", "differs": "red", "failed": "red"}
_LANGUAGES = {"python": "Python", "csharp": "C#", "cpp": "C++"}


def render(report: BenchMatrixReport, console: Console, verbose: int = 0) -> None:
    """One row for each setting, then the one to use; with --best its settings and code."""
    made = table("setting", *_NUMBERS, "outputs", "", right=_NUMBERS)
    made.collapse_padding = True
    for row in report.rows:
        memory = None if row.load is None else row.load.model_bytes
        error = None if row.proof is None else row.proof.error
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]"
        chosen = "> " if row.name == report.best.name else "  "
        made.add_row(
            chosen + markup(row.name, 120),
            "" if row.load is None else duration(row.load.seconds),
            "" if memory is None else size(memory),
            "" if error is None else f"{error:.0e}",
            "" if row.median is None else duration(row.median),
            markup(ratio),
            f"[{_COLOURS[row.verdict]}]{row.verdict}[/]",
            row.speed,
        )
    console.print(made)
    warnings(console, report.warnings)
    if report.show_code:
        console.print(json.dumps(report.best.settings, indent=2), markup=False, highlight=False, soft_wrap=True)
        for language, code in report.best.code.items():
            console.print(f"\n[bold]{_LANGUAGES[language]}[/]")
            console.print(code, markup=False, highlight=False, soft_wrap=True)
    best = report.best
    sure = "" if best.ratio == 1 else f", {best.ratio:.2f} [{best.ratio_low:.2f}, {best.ratio_high:.2f}] measured again"
    where = (
        f"{report.runtime} on {report.cpu}, {plural(report.cores, 'core')}; batch {report.batch}; {clean(report.data)}"
    )
    verdict(console, report.ok, f"fastest that is equal: {best.name}{sure}; {where}")

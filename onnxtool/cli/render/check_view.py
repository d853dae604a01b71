"""Terminal view of a CheckReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, table, verdict
from onnxtool.cli.render.text import clean, duration, markup, size
from onnxtool.report.base import TensorInfo
from onnxtool.report.check import CheckReport, Severity

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_STATES = {"passed": "green", "failed": "red", "warned": "yellow", "skipped": "dim"}
_MANY = 8


def render(report: CheckReport, console: Console, verbose: int = 0) -> None:
    """The outside of the model, the stages, the findings."""
    console.print(
        facts(
            [
                ("model", f"{report.model} ({size(report.bytes)}, {report.nodes} nodes)"),
                ("IR version", report.ir_version),
                ("opsets", ", ".join(f"{domain} {version}" for domain, version in report.opsets.items())),
                ("producer", report.producer),
                *_tensors("input", report.inputs, verbose),
                *_tensors("output", report.outputs, verbose),
            ]
        )
    )
    stages = table("stage", "result", "time", "", right=("time",))
    for stage in report.stages:
        colour = _STATES.get(stage.state, "")
        time = "" if stage.state == "skipped" else duration(stage.seconds)
        stages.add_row(markup(stage.name), f"[{colour}]{stage.state}[/]", time, markup(stage.detail))
    console.print(stages)
    for finding in report.findings:
        where = f" {markup(finding.where)}:" if finding.where else ""
        colour = _COLOURS[finding.severity]
        console.print(
            f"[{colour}]{finding.severity.value}[/] {finding.id}{where} {markup(finding.message, 800)}", soft_wrap=True
        )
        if finding.fix and (verbose or finding.severity is Severity.ERROR):
            console.print(f"  fix: {markup(finding.fix)}", soft_wrap=True)
    verdict(console, report.ok, _summary(report))


def _tensors(label: str, items: tuple[TensorInfo, ...], verbose: int) -> list[tuple[str, str]]:
    shown = items if verbose else items[:_MANY]
    rows = [(label if not i else "", clean(str(item))) for i, item in enumerate(shown)]
    return rows + ([("", f"and {len(items) - len(shown)} more (-v)")] if len(items) > len(shown) else [])


def _summary(report: CheckReport) -> str:
    counts = [(report.count(s), s.value) for s in Severity]
    told = ", ".join(f"{n} {name}{'s' if n != 1 else ''}" for n, name in counts if n)
    return told or "no findings"

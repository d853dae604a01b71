"""Terminal view of a CheckReport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, table, verdict
from onnxtool.cli.render.text import clean, duration, markup, size
from onnxtool.report.base import TensorInfo
from onnxtool.report.check import CheckReport, Finding, Severity

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
    findings(console, report.findings, verbose)
    verdict(console, report.ok, _summary(report))


def findings(console: Console, items: Sequence[Finding], verbose: int) -> None:
    """Findings grouped by id, one line each; with -v every single one, with its fix."""
    groups: dict[str, list[Finding]] = {}
    for item in items:
        groups.setdefault(item.id, []).append(item)
    for identifier, group in groups.items():
        first = group[0]
        colour = _COLOURS[first.severity]
        head = f"[{colour}]{first.severity.value}[/] {identifier}"
        if verbose or len(group) == 1:
            for item in group:
                console.print(f"{head} {_told(item)}", soft_wrap=True)
        else:
            console.print(f"{head} {len(group)}x, such as {_told(first)}", soft_wrap=True)
        if first.fix and (verbose or first.severity is not Severity.NOTE):
            console.print(f"  [dim]fix:[/] {markup(first.fix)}", soft_wrap=True)


def _told(finding: Finding) -> str:
    where = f"{markup(finding.where)}: " if finding.where else ""
    return where + markup(finding.message, 800)


def _tensors(label: str, items: tuple[TensorInfo, ...], verbose: int) -> list[tuple[str, str]]:
    shown = items if verbose else items[:_MANY]
    rows = [(label if not i else "", clean(str(item))) for i, item in enumerate(shown)]
    return rows + ([("", f"and {len(items) - len(shown)} more (-v)")] if len(items) > len(shown) else [])


def _summary(report: CheckReport) -> str:
    counts = [(report.count(s), s.value) for s in Severity]
    told = ", ".join(f"{n} {name}{'s' if n != 1 else ''}" for n, name in counts if n)
    return f"{told} (onnxtool check --explain ID tells more)" if told else "no findings"

"""Terminal view of a DoctorReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import facts, table, verdict
from onnxtool.cli.render.text import markup, size
from onnxtool.report.doctor import DoctorReport

if TYPE_CHECKING:
    from rich.console import Console


def _providers(report: DoctorReport) -> object:
    """What --provider takes, and what would bring the others."""
    made = table("provider", "state", "devices, or what installs it")
    for info in report.available:
        missing = info.state in ("not installed", "failed", "crashes")
        state = f"[yellow]{info.state}[/]" if missing else f"[green]{info.state}[/] {markup(info.version or '')}"
        works = "" if missing else "; ".join(info.devices)
        detail = f"{info.command}   ({info.where})" if info.command else works or info.where
        made.add_row(markup(info.name), state, markup(detail, 200))
    return made


def render(report: DoctorReport, console: Console, verbose: int = 0) -> None:
    """Versions, then extras, then what the processor can do."""
    memory = f", {size(report.memory_bytes)} memory" if report.memory_bytes else ""
    rows = [
        ("Python", f"{report.python} on {report.platform}"),
        ("processor", f"{report.cpu}, {report.cores} core{'s' if report.cores != 1 else ''}{memory}"),
        ("packages", ", ".join(f"{name} {found or 'MISSING'}" for name, found in report.packages.items())),
        ("newest opset", f"{report.max_opset} (of the onnx package)" if report.max_opset else None),
    ]
    console.print(facts(rows))
    if report.available:
        console.print(_providers(report))
    extras = table("extra", "state", "packages")
    for extra in report.extras:
        state = "[green]installed[/]" if extra.installed else "[yellow]missing[/]"
        found = ", ".join(f"{name} {found}" for name, found in extra.versions.items())
        detail = markup(found) if extra.installed else markup(extra.command)
        extras.add_row(markup(extra.name), state, detail)
    console.print(extras)
    features = table("CPU feature", "", "for int8 models")
    for feature in report.features:
        state = {True: "[green]yes[/]", False: "no", None: "unknown"}[feature.present]
        features.add_row(markup(feature.name), state, markup(feature.meaning))
    console.print(features)
    for line in report.advice:
        console.print(markup(line))
    for line in report.problems:
        console.print(f"[red]problem:[/] {markup(line)}")
    verdict(console, report.ok, "ready" if report.ok else "the base install is incomplete")

"""Terminal view of a BuildHistoryReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict
from onnxtool.cli.render.text import duration, markup, size
from onnxtool.report.build import BuildHistoryReport, PastBuild

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN = 20


def render(report: BuildHistoryReport, console: Console, verbose: int = 0) -> None:
    """The latest builds, and what became of each model's size and latency since its first one."""
    made = table("when", "verdict", "built", "cached", "failed", "time", right=("built", "cached", "failed", "time"))
    for build in report.builds if verbose else report.builds[-_SHOWN:]:
        counts = (str(build.built), str(build.cached), str(build.failed))
        made.add_row(build.when, "OK" if build.ok else "FAILED", *counts, duration(build.seconds))
    console.print(made)
    trends = table("model", "builds", "outputs", "size", "latency", right=("builds", "outputs"))
    for name in sorted({name for build in report.builds for name in build.outputs}):
        trends.add_row(markup(name), *_trend([b for b in report.builds if name in b.outputs], name))
    console.print(trends)
    verdict(console, True, f"{len(report.builds)} builds of {report.file}")


def _trend(builds: list[PastBuild], name: str) -> tuple[str, ...]:
    outputs = [build.outputs[name] for build in builds]
    times = [seconds for _, _, seconds in outputs if seconds is not None]
    sizes = [count for _, count, _ in outputs]
    return (
        str(len(outputs)),
        str(len({digest for digest, _, _ in outputs})),
        f"{size(sizes[0])} -> {size(sizes[-1])}",
        f"{duration(times[0])} -> {duration(times[-1])}" if times else "",
    )

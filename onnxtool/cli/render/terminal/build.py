"""Terminal view of a BuildReport."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxtool.cli.render.terminal import table, verdict
from onnxtool.cli.render.text import duration, markup, size
from onnxtool.report.build import BuildReport, CandidatePoint, ModelOutcome

if TYPE_CHECKING:
    from rich.console import Console

_COLOURS = {"built": "green", "unchanged": "", "stale": "yellow", "failed": "red"}
_NEAREST = 5


def render(report: BuildReport, console: Console, verbose: int = 0) -> None:
    """One row for each model; why it is stale or failed below; with -v every step."""
    made = table(
        "model", "state", "steps", "size", "latency", "of float", "drop", right=("size", "latency", "of float", "drop")
    )
    for model in report.models:
        colour = _COLOURS.get(model.state, "")
        made.add_row(
            markup(model.name),
            f"[{colour}]{model.state}[/]" if colour else model.state,
            markup(_steps(model)),
            size(model.bytes) if model.bytes else "",
            "" if model.seconds is None else duration(model.seconds),
            "" if model.ratio is None else f"{model.ratio:.2f}",
            "" if model.drop is None else f"{model.drop:.2%}",
        )
    console.print(made)
    for model in report.models:
        _details(model, console, verbose)
    counts = {state: sum(m.state == state for m in report.models) for state in _COLOURS}
    told = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
    steps = f"{report.count('built')} steps run, {report.count('cached')} from the cache"
    if report.dry_run:
        steps = f"{report.count('stale')} steps stale, {report.count('cached')} in the cache"
    verdict(console, report.ok, f"{told}; {steps}; {duration(report.seconds)}")


def _steps(model: ModelOutcome) -> str:
    marks = {"built": "", "cached": "", "stale": " (stale)", "waiting": " (waiting)", "failed": " (failed)"}
    return ", ".join(s.command + marks.get(s.state, f" ({s.state})") for s in model.steps)


def _details(model: ModelOutcome, console: Console, verbose: int) -> None:
    if model.error:
        console.print(f"[red]{markup(model.name)}:[/] {markup(model.error, 1000)}")
    for step in model.steps:
        if verbose or step.state == "stale":
            told = "; ".join(filter(None, (step.reason, step.summary)))
            console.print(f"{markup(model.name)}: {step.command} {step.state}: {markup(told, 500)}")
    for note in model.notes:
        console.print(f"{markup(model.name)}: {markup(note, 500)}")
    if model.error and model.candidates:
        _nearest(model, console)


def _nearest(model: ModelOutcome, console: Console) -> None:
    """The candidates nearest to the limits, and those that no other beats."""
    shown = [c for i, c in enumerate(model.candidates) if i < _NEAREST or c.pareto]
    made = table(
        "nearest candidates",
        "size",
        "latency",
        "of float",
        "drop",
        "front",
        right=("size", "latency", "of float", "drop"),
    )
    for point in shown:
        made.add_row(*_row(point))
    console.print(made)


def _row(point: CandidatePoint) -> tuple[str, ...]:
    return (
        markup(point.name),
        size(point.bytes),
        "-" if point.seconds is None else duration(point.seconds),
        "-" if point.ratio is None else f"{point.ratio:.2f}",
        "-" if point.drop is None else f"{point.drop:.2%}",
        "Pareto" if point.pareto else "",
    )

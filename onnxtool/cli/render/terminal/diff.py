"""Terminal view of a DiffReport, in the manner of git."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from onnxtool.cli.render.text import markup
from onnxtool.report.diff import Change, DiffReport

if TYPE_CHECKING:
    from rich.console import Console

_MANY = 40
_PLURALS = {"header": "header", "metadata": "metadata"}


def render(report: DiffReport, console: Console, verbose: int = 0) -> None:
    """Changes by what they are about; of many nodes the first, with -v all."""
    console.print(f"[bold]--- {markup(report.a, 500)}[/]", soft_wrap=True)
    console.print(f"[bold]+++ {markup(report.b, 500)}[/]", soft_wrap=True)
    for what, group in groupby(report.changes, key=lambda change: change.what):
        changes = list(group)
        console.print(f"[cyan]@@ {_PLURALS.get(what, f'{what}s')}: {_counts(changes)} @@[/]")
        for change in changes if verbose else changes[:_MANY]:
            _print(change, console)
        if len(changes) > _MANY and not verbose:
            console.print(f"  and {len(changes) - _MANY} more (-v)")
    if report.operators:
        told = ", ".join(f"{name} {a} -> {b}" for name, (a, b) in report.operators.items())
        console.print(f"[cyan]@@ operators @@[/] {markup(told, 2000)}", soft_wrap=True)
    number = len(report.changes)
    console.print(f"{number} difference{'s' if number != 1 else ''}" if number else "no difference")


def _counts(changes: list[Change]) -> str:
    kinds = ("changed", "renamed", "removed", "added")
    return ", ".join(f"{n} {kind}" for kind in kinds if (n := sum(c.kind == kind for c in changes)))


def _print(change: Change, console: Console) -> None:
    name = markup(change.name)
    if change.kind == "renamed":
        console.print(f"[yellow]~ {markup(change.before)} is now {markup(change.after)}[/]", soft_wrap=True)
        return
    if change.kind in ("removed", "changed"):
        console.print(f"[red]- {name}: {markup(change.before, 400)}[/]", soft_wrap=True)
    if change.kind in ("added", "changed"):
        console.print(f"[green]+ {name}: {markup(change.after, 400)}[/]", soft_wrap=True)

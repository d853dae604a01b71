"""Reports for people: rich tables. Each kind of report has its renderer in a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onnxtool.cli.render.text import markup
from onnxtool.report.base import Report, TensorInfo
from onnxtool.report.provider_proof import ProviderProof

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Renderer = Callable[..., None]


def render(report: Report, console: Console, verbose: int = 0) -> None:
    """Print a report with the renderer of its kind: `cli/render/terminal/<kind>.py`, function `render`."""
    renderer: Renderer = import_module(f"onnxtool.cli.render.terminal.{report.kind}").render
    renderer(report, console, verbose)


def table(*columns: str, title: str | None = None, right: Iterable[str] = ()) -> Table:
    """An empty table in the style of all reports; columns named in `right` are right-aligned."""
    from rich import box
    from rich.table import Table

    right = set(right)
    made = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def facts(rows: Iterable[tuple[str, Any]]) -> Table:
    """A two-column list of facts; empty values are left out."""
    from rich.table import Table

    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for label, value in rows:
        if value not in (None, "", ()):
            made.add_row(markup(label), value if hasattr(value, "__rich__") else markup(value, 1000))
    return made


def tensors(specs: Sequence[TensorInfo]) -> str:
    """Inputs or outputs as one readable cell."""
    return ", ".join(str(s) for s in specs)


def verdict(console: Console, ok: bool, text: str) -> None:
    """The closing line: green or red where there is colour, a word everywhere."""
    console.print(f"[{'green' if ok else 'red'}]{'OK' if ok else 'FAILED'}[/]  {markup(text, 1000)}")


def warnings(console: Console, lines: Iterable[str]) -> None:
    """Warnings, one line each."""
    for line in lines:
        console.print(f"[yellow]warning:[/] {markup(line, 1000)}")


def provider_proofs(console: Console, proofs: Iterable[ProviderProof]) -> None:
    """A model on other providers, one line each."""
    for proof in proofs:
        colour = "red" if not proof.ok else "yellow" if proof.reduced else "green"
        console.print(f"[{colour}]provider[/] {markup(proof.summary, 1000)}")

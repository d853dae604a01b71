"""How packages are shown."""

from __future__ import annotations

from rich.console import Console

from onnxtool.cli.render.terminal import table, verdict, warnings
from onnxtool.cli.render.text import markup
from onnxtool.report.package import PackageReport


def render(report: PackageReport, console: Console, verbose: int) -> None:
    """One row for each package, then what to type."""
    made = table("package", "folder", "size", "proven by", "max abs", right=("size", "max abs"))
    for p in report.packages:
        worst = max((o.max_abs for o in p.proof.outputs), default=0.0)
        size = f"{p.bytes / 1e6:.1f} MB"
        made.add_row(markup(p.kind), markup(p.folder), size, markup(p.proof.started.how), f"{worst:.1e}")
    console.print(made)
    for p in report.packages:
        console.print(f"[dim]{markup(p.folder)}[/]", *(markup(c) for c in p.commands), sep="\n  ", soft_wrap=True)
        if verbose:
            console.print(*(f"  {markup(f)}" for f in p.files), sep="\n")
    warnings(console, report.warnings)
    count = len(report.packages)
    verdict(console, report.ok, f"{count} package{'s give' if count > 1 else ' gives'} the file's answers")

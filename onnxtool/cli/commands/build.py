"""`onnxtool build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE.toml] [TARGET...]",
            help="The build file, onnxtool.toml unless given; then models, patterns or tag:WORD.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", "--dry-run", help="Say what is stale and why; exit 1 if anything is."),
    ] = False,
    frozen: Annotated[bool, typer.Option("--frozen", help="Fail where anything differs from onnxtool.lock.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, metavar="N", help="How many steps run at a time.", show_default=False),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            "--executor",
            metavar="NAME",
            help="Where steps run: local, processes, dask://HOST:PORT or ray://HOST:PORT.",
            show_default=False,
        ),
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option("--cache", metavar="DIR", help="The cache, in place of the file's.", show_default=False),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Show the builds of this file so far, and end.")] = False,
    report_files: o.ReportOption = None,
    json: o.JsonOption = None,
    junit: o.JunitOption = None,
    html: o.HtmlOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Build every model of a file: run the steps whose ingredients changed, take all others from the cache.

    Exit 0 when all is built and within its limits, 1 when a model failed, misses them, or (--check) is stale. One
    failing model does not stop the others.
    """
    with Output(json, verbose, quiet, {"junit": junit, "html": html}, report_files) as out:
        from onnxtool.workflow.build import build, build_history
        from onnxtool.workflow.file import FILE_NAME

        given = arguments or []
        named = bool(given) and given[0].endswith(".toml")
        file, targets = (given[0], given[1:]) if named else (FILE_NAME, given)
        if history:
            out.emit(build_history(file, cache=cache))
            return
        report = build(file, targets, dry_run=check, frozen=frozen, jobs=jobs, executor=executor, cache=cache)
        if html is not None:
            from onnxtool.cli.forms.build_pages import write_model_pages

            write_model_pages(report, Path(html))
        out.emit(report)

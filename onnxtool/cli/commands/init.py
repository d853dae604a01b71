"""`onnxtool init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE...", help="Model files and folders.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.toml", help="The file to write.")] = Path(
        "onnxtool.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Write a first onnxtool.toml, with comments, from what the sources are recognised as."""
    with Output(json, verbose, quiet) as out:
        from onnxtool.workflow.init import init

        out.emit(init(sources, output, force=force))

"""`onnxtool cache`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


class ActionChoice(StrEnum):
    """What to do."""

    size = "size"
    prune = "prune"
    verify = "verify"


def command(
    action: Annotated[ActionChoice, typer.Argument(help="size counts, prune removes, verify looks for damage.")],
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="DIR",
            help="The cache; ONNXTOOL_CACHE or the user's own unless given.",
            show_default=False,
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size", metavar="SIZE", help="prune: remove the oldest until this is left.", show_default=False
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="prune: only what is older than 12h, 30d, 2w.", show_default=False
        ),
    ] = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Look after the cache of build.

    Exit 1 when verify finds something damaged; it removes that, so that the next build makes it again.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.workflow.cache import cache as look_after

        out.emit(look_after(action.value, folder=cache, max_size=max_size, older_than=older_than))

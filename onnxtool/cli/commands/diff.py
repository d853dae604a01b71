"""`onnxtool diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    files: Annotated[
        list[Path], typer.Argument(metavar="A B", help="The .onnx files before and after.", show_default=False)
    ],
    git: Annotated[
        bool,
        typer.Option("--git", help="Take the seven arguments that git gives a diff driver; the exit code is 0."),
    ] = False,
    json: o.JsonOption = None,
    markdown: o.MarkdownOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Show how two models differ in structure: operators, attributes, weights by hash, inputs, opsets, metadata.

    Exit 0 when there is no difference, 1 when there is. For git: git config diff.onnx.command "onnxtool diff --git"
    and a line "*.onnx diff=onnx" in .gitattributes.
    """
    with Output(json, verbose, quiet, {"markdown": markdown}) as out:
        from onnxtool.errors import UsageError
        from onnxtool.model.diff import diff

        if git and len(files) >= 7:
            # path old-file old-hex old-mode new-file new-hex new-mode; a missing side is /dev/null
            try:
                # git hands over the model alone, without its external data.
                out.emit(diff(files[1], files[4], external=False))
            except typer.Exit:
                return  # git takes any other exit code for a failure of the driver
            return
        if len(files) != 2:
            raise UsageError("diff takes two models: the one before and the one after.")
        out.emit(diff(*files))

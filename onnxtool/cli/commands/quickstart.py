"""`onnxtool quickstart`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where every file of the job is left; made when missing.")
    ] = Path("quickstart"),
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Do the whole job on a bundled real model: convert, check, optimize, quantize, compare, measure.

    The model reads handwritten digits. It starts from the PyTorch original where PyTorch is installed, else from its
    ONNX file. Every step is shown as the command that repeats it. Exit 0 when the int8 file's accuracy is within one
    point of float, 1 when not.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.walkthrough import quickstart

        def say(command: str, outcome: str) -> None:
            if out.for_people:
                from onnxtool.cli.forms.terminal import print_step

                print_step(out.console(), command, outcome)

        out.emit(quickstart(folder, say=say))

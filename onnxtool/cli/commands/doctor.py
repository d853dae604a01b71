"""`onnxtool doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    measure: Annotated[
        Path | None,
        typer.Option(
            "--measure",
            metavar="FILE.json",
            help="Time this machine's kernels by shape and type, for quantize --target FILE.json elsewhere.",
            show_default=False,
        ),
    ] = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Show versions, execution providers, extras and the CPU's int8 features.

    Exit 0 when everything that the base install needs is there, 1 when not. Missing extras are no failure.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.runtime.doctor import doctor

        if measure is not None:
            from onnxtool.quantization.kernel_table import measure_kernels

            measure_kernels(measure)
        out.emit(doctor())

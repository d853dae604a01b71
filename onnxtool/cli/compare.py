"""`onnxtool compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    a: Annotated[Path, typer.Argument(metavar="A", help="The reference: an .onnx file.", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="The model to judge.", show_default=False)],
    data: o.DataOption = None,
    rtol: o.RtolOption = 1e-3,
    atol: o.AtolOption = 1e-5,
    seed: o.SeedOption = 0,
    provider: o.ProviderOption = "cpu",
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Run two models on the same inputs and show how far their outputs are apart.

    Exit 0 when every output is within tolerance, 1 when one is not.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.runtime.session import SessionOptions
        from onnxtool.validate.compare import compare

        options = SessionOptions(provider, threads, custom_op_libraries=tuple(custom_op_library or ()))
        out.emit(compare(a, b, data=data, rtol=rtol, atol=atol, seed=seed, options=options))

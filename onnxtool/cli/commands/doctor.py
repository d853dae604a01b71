"""`onnxtool doctor`."""

from __future__ import annotations

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Show versions, execution providers, extras and the CPU's int8 features.

    Exit 0 when everything that the base install needs is there, 1 when not. Missing extras are no failure.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.runtime.doctor import doctor

        out.emit(doctor())

"""`onnxtool view`."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    model: o.ModelArgument,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Of this machine; 0 takes one that is free.")
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, and open nothing.")] = False,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Show a model's graph in the browser with Netron, until Ctrl-C.

    The page is served to this machine alone (localhost). Needs Netron: pip install netron.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.report.view import ViewReport
        from onnxtool.runtime.view import View

        with View(model, port) as shown:
            out.emit(ViewReport(str(model), shown.address))
            if not no_browser:
                typer.launch(shown.address)
            shown.wait()

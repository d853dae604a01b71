"""`onnxtool view`."""

from __future__ import annotations

import typer

from onnxtool.cli.output import Output
from onnxtool.options.view import ViewCommand


def command(asked: ViewCommand, out: Output) -> None:
    """Show a model's graph in the browser with Netron, until Ctrl-C.

    The page is served to this machine alone (localhost). Needs Netron: pip install netron.
    """
    from onnxtool.report.serve import ViewReport
    from onnxtool.runtime.view import NetronPage

    with NetronPage(asked.model, asked.port) as shown:
        out.emit(ViewReport(str(asked.model), shown.address))
        if asked.browser:
            typer.launch(shown.address)
        shown.wait()

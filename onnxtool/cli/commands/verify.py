"""`onnxtool verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    model: o.ModelArgument,
    source: Annotated[
        Path | None,
        typer.Option("--source", metavar="FILE", help="What the model should be made from.", show_default=False),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option("--sign", metavar="KEY.pem", help="Sign the model with this private key.", show_default=False),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option("--public-key", metavar="KEY.pem", help="Verify the model's signature.", show_default=False),
    ] = None,
    signature: Annotated[
        Path | None,
        typer.Option(
            "--signature", metavar="FILE", help="Where the signature is, or goes: MODEL.sig.", show_default=False
        ),
    ] = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Show whether a file is as onnxtool wrote it, and from what it was made.

    Every file that onnxtool writes bears a SHA-256 of its bytes and external data, and a history of the steps that made
    it. Exit 0 when the digest fits (and --source is in the history), 1 when not. The digest shows damage and edits; it
    is not a signature: that is what --sign and --public-key are for (extra "signing").
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.generation.bundle import is_bundle

        if is_bundle(model) and sign is None and public_key is None:
            from onnxtool.generation.verify import verify_bundle

            out.emit(verify_bundle(model, source=source))
            return
        from onnxtool.model.provenance.verify import verify

        out.emit(verify(model, source=source, sign=sign, public_key=public_key, signature=signature))

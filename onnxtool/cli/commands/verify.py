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
    replay: Annotated[
        bool, typer.Option("--replay", help="Run the recorded proof again, on --source or --factory and the file.")
    ] = False,
    factory: o.FactoryOption = None,
    factory_arg: o.FactoryArgOption = None,
    pythonpath: o.PythonPathOption = None,
    trust: o.TrustOption = False,
    sample: Annotated[
        Path | None,
        typer.Option("--sample", metavar="FILE.npz", help="The sample of the recorded proof.", show_default=False),
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

        if not replay:
            out.emit(verify(model, source=source, sign=sign, public_key=public_key, signature=signature))
            return
        from dataclasses import replace

        from onnxtool.cli.convert_options import convert_options
        from onnxtool.conversion.replay import replay as run_again
        from onnxtool.errors import UsageError

        if source is None and factory is None:
            raise UsageError("--replay needs what the model was made from: --source FILE, or --factory.")
        options = convert_options(
            factory=factory,
            factory_arg=factory_arg,
            pythonpath=pythonpath,
            trust=trust,
            sample=sample,
            verbose=verbose,
        )
        known = source if source is not None and source.is_file() else None
        report = verify(model, source=known, sign=sign, public_key=public_key, signature=signature)
        out.emit(replace(report, replay=run_again(model, source, options)))

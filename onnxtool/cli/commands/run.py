"""`onnxtool run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    model: o.ModelArgument,
    data: o.DataOption = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=FILE.npy", help="One input from one file. Repeatable.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT.npz", help="Write the outputs here.", show_default=False),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, help="Batch size of random inputs, where it is dynamic.", show_default=False),
    ] = None,
    seed: o.SeedOption = 0,
    provider: o.ProviderOption = "cpu",
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Run a model once on given or, without --data and --input, random inputs."""
    with Output(json, verbose, quiet) as out:
        from onnxtool.runtime.run import run
        from onnxtool.runtime.session import SessionOptions

        options = SessionOptions(provider, threads, custom_op_libraries=tuple(custom_op_library or ()))
        out.emit(
            run(
                model,
                data=data,
                inputs=_pairs(inputs or []),
                output=output,
                batch=batch,
                seed=seed,
                options=options,
            )
        )


def _pairs(texts: list[str]) -> dict[str, str]:
    from onnxtool.errors import UsageError

    pairs: dict[str, str] = {}
    for text in texts:
        # Input names may hold "=" less likely than file names do; the first one separates.
        name, separator, file = text.partition("=")
        if not (name and separator and file):
            raise UsageError(f"--input {text}: write NAME=FILE.npy.")
        if name in pairs:
            raise UsageError(f"--input names {name!r} twice.")
        pairs[name] = file
    return pairs

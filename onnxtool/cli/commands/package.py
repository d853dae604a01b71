"""`onnxtool package`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    model: o.ModelArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.", show_default=False)],
    kinds: Annotated[
        list[str],
        typer.Option(
            "--for",
            metavar="KIND",
            help="fastapi, kserve, triton, mlflow, azureml, web, ort or cpp. Repeatable: each is a folder in DIR.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the model in the package.", show_default=False)
    ] = None,
    data: o.DataOption = None,
    runtime_folder: Annotated[
        Path | None,
        typer.Option(
            "--runtime-folder",
            metavar="DIR",
            help="web: the npm package onnxruntime-web, or node_modules with it.",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[
        Path | None, typer.Option("--browser", help="web: Chromium or Chrome for the proof.", show_default=False)
    ] = None,
    fresh_venv: Annotated[
        bool,
        typer.Option("--fresh-venv", help="Prove servers in a fresh environment; pip installs their requirements."),
    ] = False,
    rtol: o.RtolOption = 1e-3,
    atol: o.AtolOption = 1e-5,
    seed: o.SeedOption = 0,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Write a folder that runs the model elsewhere: code to keep, pinned requirements, golden data, proof.

    Each package is started, fed the same inputs and compared with the file before it is written; one that gives other
    answers is not written, exit 1.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.packaging.package import package

        out.emit(
            package(
                model,
                output,
                kinds=kinds,
                name=name,
                data=data,
                rtol=rtol,
                atol=atol,
                seed=seed,
                runtime_folder=runtime_folder,
                browser=browser,
                fresh=fresh_venv,
            )
        )

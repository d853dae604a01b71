"""`onnxtool inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    model: o.ModelArgument,
    input_shape: o.InputShapeOption = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="List all nodes.")] = False,
    largest: Annotated[int, typer.Option("--largest", min=0, help="How many of the largest tensors to list.")] = 5,
    sbom: Annotated[
        Path | None,
        typer.Option(
            "--sbom", metavar="FILE.json", help="Write a bill of materials (CycloneDX 1.6).", show_default=False
        ),
    ] = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Show a model's anatomy: inputs, outputs, operators, parameters, compute."""
    with Output(json, verbose, quiet) as out:
        from onnxtool.generation.bundle import is_bundle

        if is_bundle(model):
            from onnxtool.generation.inspect import inspect_bundle

            out.emit(inspect_bundle(model))
            return
        from onnxtool.model.inspect import inspect
        from onnxtool.runtime.isolation import guarded

        with guarded("inferring shapes", model.stat().st_size if model.is_file() else 0):
            report = inspect(model, input_shapes=input_shape or (), nodes=nodes, largest=largest)
        if sbom is not None:
            _write_sbom(model, sbom)
        out.emit(report)


def _write_sbom(model: Path, path: Path) -> None:
    import json

    from onnxtool.model.io import check_output, write_atomic
    from onnxtool.model.provenance.sbom import sbom

    check_output(path)
    write_atomic(path, (json.dumps(sbom(model), indent=2, ensure_ascii=False) + "\n").encode())

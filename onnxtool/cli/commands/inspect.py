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
    placement: Annotated[
        bool, typer.Option("--placement", help="Run the model and show which provider runs which node, and why.")
    ] = False,
    data: o.DataOption = None,
    provider: o.ProviderOption = None,
    ep_library: o.EpLibraryOption = None,
    require_provider: o.RequireProviderOption = False,
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
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
        if placement:
            from onnxtool.cli.session import session_options
            from onnxtool.runtime.providers.place import place

            options = session_options(provider, threads, custom_op_library, ep_library)
            out.emit(place(model, data=data, options=options, required=require_provider))
            return
        if provider or require_provider or ep_library or data is not None or threads is not None or custom_op_library:
            from onnxtool.errors import UsageError

            raise UsageError("inspect runs nothing without --placement: give it with --provider, --data and --threads.")
        from onnxtool.model.inspect import inspect
        from onnxtool.runtime.worker.isolation import guarded

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

"""`onnxtool inspect`."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    model: o.ModelArgument,
    input_shape: o.InputShapeOption = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="List all nodes.")] = False,
    largest: Annotated[int, typer.Option("--largest", min=0, help="How many of the largest tensors to list.")] = 5,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Show a model's anatomy: inputs, outputs, operators, parameters, compute."""
    with Output(json, verbose, quiet) as out:
        from onnxtool.model.inspect import inspect
        from onnxtool.runtime.isolation import risky

        with risky("inferring shapes", model.stat().st_size if model.is_file() else 0):
            report = inspect(model, input_shapes=input_shape or (), nodes=nodes, largest=largest)
        out.emit(report)

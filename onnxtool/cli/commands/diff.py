"""`onnxtool diff`."""

from __future__ import annotations

from contextlib import suppress

import typer

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.diff import DiffCommand


def command(asked: DiffCommand, out: Output) -> None:
    """Show how two models differ in structure: operators, attributes, weights by hash, inputs, opsets, metadata.

    Exit 0 when there is no difference, 1 when there is. For git: git config diff.onnx.command "onnxtool diff --git"
    and a line "*.onnx diff=onnx" in .gitattributes.
    """
    from onnxtool.model.diff import diff

    files = asked.files
    if asked.git and len(files) >= 7:
        # path old-file old-hex old-mode new-file new-hex new-mode; a missing side is /dev/null
        with suppress(typer.Exit):  # git takes any other exit code than 0 for a failure of the driver
            # git hands over the model alone, without its external data.
            out.emit(diff(files[1], files[4], external=False))
        return
    if len(files) != 2:
        raise UsageError("diff takes two models: the one before and the one after.")
    out.emit(diff(*files))

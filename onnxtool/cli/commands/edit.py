"""`onnxtool edit`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.edit import EditCommand


def command(asked: EditCommand, out: Output) -> None:
    """Change a finished model: shapes, inputs and outputs, parts, pre- and post-processing, versions, storage.

    Operations apply in the order given. Each is proven by running the model before and after it; when a proof fails,
    nothing is written (exit 1), and what cannot be done to a model is refused with the node named (exit 4).
    """
    from onnxtool.editing.edit import edit, list_operations
    from onnxtool.words import session_options, taken_by

    if asked.list_operations:
        out.emit(list_operations())
        return
    if asked.model is None:
        raise UsageError("edit needs a MODEL (or --list-operations).")
    from onnxtool.cli.sources import opened
    from onnxtool.options.convert import ConvertOptions

    given = asked.reference
    how = {
        "reference": None if given is None else opened(given, asked.model, ConvertOptions()),
        "options": session_options(asked, "off"),
    }
    out.emit(edit(asked.model, asked.output, asked.operations, **taken_by(edit, asked) | how))

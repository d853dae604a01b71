"""`onnxtool optimize`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.errors import UsageError
from onnxtool.options.optimize import OptimizeCommand


def command(asked: OptimizeCommand, out: Output) -> None:
    """Make a model smaller and faster, and hold the result against it.

    The result is compared with the source on several sizes of every dynamic dim before it is written. A pass that
    would change the outputs is left out and named; with --strict that is exit 1.
    """
    from onnxtool.optimization.optimize import list_passes, optimize
    from onnxtool.words import taken_by

    if asked.list_passes:
        out.emit(list_passes())
        return
    if asked.model is None or asked.output is None:
        raise UsageError("optimize needs a MODEL and -o OUT.onnx (or --list-passes).")
    if asked.upgrade_opset is not None and asked.downgrade_opset is not None:
        raise UsageError("--upgrade-opset and --downgrade-opset exclude each other.")
    opset = asked.upgrade_opset or asked.downgrade_opset
    out.emit(optimize(asked.model, asked.output, **taken_by(optimize, asked) | {"opset": opset}))

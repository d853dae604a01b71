"""`onnxtool check`."""

from __future__ import annotations

from onnxtool.cli import options as o
from onnxtool.cli.output import Output


def command(
    model: o.ModelArgument,
    data: o.DataOption = None,
    seed: o.SeedOption = 0,
    provider: o.ProviderOption = "cpu",
    threads: o.ThreadsOption = None,
    custom_op_library: o.CustomOpOption = None,
    json: o.JsonOption = None,
    verbose: o.VerboseOption = 0,
    quiet: o.QuietOption = False,
) -> None:
    """Check an ONNX file: specification, shapes, and a run on the embedded runtime.

    Exit 0 when it is sound, 1 when there are errors, 3 when it cannot be read as an ONNX file.
    """
    with Output(json, verbose, quiet) as out:
        from onnxtool.runtime.session import SessionOptions
        from onnxtool.validate.check import check

        options = SessionOptions(provider, threads, custom_op_libraries=tuple(custom_op_library or ()))
        out.emit(check(model, data=data, seed=seed, options=options))

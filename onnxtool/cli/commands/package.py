"""`onnxtool package`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.options.package import PackageCommand, WebOptions


def command(asked: PackageCommand, out: Output) -> None:
    """Write a folder that runs the model elsewhere: code to keep, pinned requirements, golden data, proof.

    Each package is started, fed the same inputs and compared with the file before it is written; one that gives other
    answers is not written, exit 1.
    """
    from onnxtool.packaging.package import package
    from onnxtool.words import part_of, taken_by

    how = taken_by(package, asked) | {"web": part_of(WebOptions, asked)}
    out.emit(package(asked.model, asked.output, **how))

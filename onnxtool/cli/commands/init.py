"""`onnxtool init`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.options.init import InitCommand


def command(asked: InitCommand, out: Output) -> None:
    """Write a first onnxtool.toml, with comments, from what the sources are recognised as."""
    from onnxtool.workflow.init import init

    out.emit(init(asked.sources, asked.output, force=asked.force))

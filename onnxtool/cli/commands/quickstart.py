"""`onnxtool quickstart`."""

from __future__ import annotations

from onnxtool.cli.output import Output
from onnxtool.options.quickstart import QuickstartCommand


def command(asked: QuickstartCommand, out: Output) -> None:
    """Do the whole job on a bundled real model: convert, check, optimize, quantize, compare, measure.

    The model reads handwritten digits. It starts from the PyTorch original where PyTorch is installed, else from its
    ONNX file. Every step is shown as the command that repeats it. Exit 0 when the int8 file's accuracy is within one
    point of float, 1 when not.
    """
    from onnxtool.walkthrough import quickstart

    def say(command: str, outcome: str) -> None:
        if out.for_people:
            from onnxtool.cli.forms.terminal import print_step

            print_step(out.console(), command, outcome)

    out.emit(quickstart(asked.folder, say=say))

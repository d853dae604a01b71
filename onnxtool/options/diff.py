"""The options of `diff`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from onnxtool.options.option import input_option, option
from onnxtool.options.shared import MARKDOWN, Shown


@dataclass(frozen=True)
class DiffCommand(Shown):
    """What `diff` takes."""

    files: tuple[Path, ...] = option(MISSING, "The .onnx files before and after.", argument=True, metavar="A B")
    git: bool = input_option(False, "Take the seven arguments that git gives a diff driver; the exit code is 0.")
    markdown: Path | None = MARKDOWN()

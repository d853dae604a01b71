"""The options of `init`."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from onnxtool.options.option import option, output_option
from onnxtool.options.shared import Shown


@dataclass(frozen=True)
class InitCommand(Shown):
    """What `init` takes."""

    sources: tuple[Path, ...] = option(MISSING, "Model files and folders.", argument=True, metavar="SOURCE...")
    output: Path = output_option(Path("onnxtool.toml"), "The file to write.", "--output", "-o", metavar="FILE.toml")
    force: bool = option(False, "Replace a file that is there.")

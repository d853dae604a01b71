"""The options of `quickstart`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxtool.options.option import option
from onnxtool.options.shared import Shown


@dataclass(frozen=True)
class QuickstartCommand(Shown):
    """What `quickstart` takes."""

    folder: Path = option(
        Path("quickstart"), "Where every file of the job is left; made when missing.", argument=True, metavar="[DIR]"
    )

"""The options of `view`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnxtool.options.option import option
from onnxtool.options.shared import MODEL, Shown


@dataclass(frozen=True)
class ViewCommand(Shown):
    """What `view` takes."""

    model: Path = MODEL()
    port: int = option(0, "Of this machine; 0 takes one that is free.", low=0, high=65535)
    browser: bool = option(True, "Print the address, and open nothing.", "--no-browser")

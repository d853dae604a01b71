"""The path of a table with what the command line says of its numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class DataPath(os.PathLike[str]):
    """A path, and what stands before the decimals in the texts that it leads to."""

    path: str
    decimal: str

    def __fspath__(self) -> str:
        """The path."""
        return self.path

    def __str__(self) -> str:
        return self.path

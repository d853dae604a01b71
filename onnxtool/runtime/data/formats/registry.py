"""The formats of tables: the modules beside this one, and those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Protocol

import numpy as np

from onnxtool.installed_extensions import installed_extensions
from onnxtool.runtime.data.formats.table_file import TableFile, split_suffix
from onnxtool.runtime.data.table import DataTable

ENTRY_POINTS = "onnxtool.data_formats"


class DataFormat(Protocol):
    """A format of tables: a module or an object with these names. `json_lines.py` is a short one."""

    SUFFIXES: tuple[str, ...]

    def read(self, file: TableFile) -> DataTable:
        """Open a table; what cannot be read is an `InputError` that names the place.

        The first rows may be read at once, the others when the table is gone through.
        """

    def write(self, columns: Mapping[str, np.ndarray], suffix: str) -> bytes:
        """A file of columns of equal length: booleans, numbers, or objects that are texts."""


def find_format(path: Path) -> DataFormat | None:
    """The format that a file's name says ("x.csv.gz" is CSV); None where it is none of a table."""
    suffix = split_suffix(path)[0]
    built_in = _built_in().get(suffix)
    if built_in is not None or suffix in ("", ".npz", ".npy", ".py", ".onnx"):
        return built_in
    brought = (e for e in installed_extensions(ENTRY_POINTS) if f".{e.name}" == suffix)
    return next((e.load() for e in brought), None)


def suffixes() -> tuple[str, ...]:
    """Those of the formats that come with onnxtool."""
    return tuple(_built_in())


@cache
def _built_in() -> Mapping[str, DataFormat]:
    found: dict[str, DataFormat] = {}
    for module in iter_modules([str(Path(__file__).parent)]):
        form = import_module(f"{__package__}.{module.name}")
        found |= dict.fromkeys(getattr(form, "SUFFIXES", ()), form)
    return found

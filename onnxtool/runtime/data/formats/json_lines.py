"""JSON lines: an object of column names and values in each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.runtime.data.formats.table_file import TableFile
from onnxtool.runtime.data.table import DataTable, Rows

SUFFIXES = (".jsonl", ".ndjson")
_CHUNK = 4096  # rows


def read(file: TableFile) -> DataTable:
    """A table with the keys of the first object as columns; every line has to have them.

    Raises:
        InputError: no JSON, no object, or another line without one of the keys.
    """
    first = next(_objects(file), None)
    if first is None:
        raise InputError(f"{file.label}: the file is empty.")
    names = tuple(first[1])

    def rows() -> Iterator[Rows]:
        numbers: list[int] = []
        columns: list[list[Any]] = [[] for _ in names]
        for number, found in _objects(file):
            for name, column in zip(names, columns, strict=True):
                if name not in found:
                    raise InputError(
                        f"{file.label}, line {number}: there is no {name!r}; write null for a missing value."
                    )
                column.append(found[name])
            numbers.append(number)
            if len(numbers) == _CHUNK:
                yield Rows(columns, numbers)
                numbers, columns = [], [[] for _ in names]
        if numbers:
            yield Rows(columns, numbers)

    return DataTable(file.label, names, rows, unit="line")


def write(columns: Mapping[str, np.ndarray], suffix: str) -> bytes:  # noqa: ARG001  (of all formats)
    """An object in each line; NaN is null, infinity a text."""
    rows = zip(*(map(_plain, array) for array in columns.values()), strict=True)
    lines = (json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    return "".join(lines).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, np.floating):
        text = str(value)  # has the digits that its own type needs
        return {"nan": None, "inf": "Infinity", "-inf": "-Infinity"}[text] if text[-1] in "nf" else float(text)
    return value.item() if isinstance(value, np.generic) else value


def _objects(file: TableFile) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(file.lines(), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file.label}, line {number}: not valid JSON ({error}).") from error
        if not isinstance(found, dict):
            raise InputError(f"{file.label}, line {number}: JSON lines hold one object in each line.")
        yield number, found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1)
        raise ValueError(f"{twice!r} stands twice")
    return found

"""CSV files as calibration and evaluation data of models on tables."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec


def read_rows(path: Path, specs: Sequence[TensorSpec], label: str | None = None) -> Iterator[dict[str, np.ndarray]]:
    """Feeds of one row each.

    A model with one input of [rows, features] gets all columns but `label`, in their order. A model with one input
    for each column gets them by name.

    Raises:
        InputError: no such columns, another number of them, or a cell that is not a number where one is needed.
    """
    header = columns(path)
    by_name = len(specs) > 1 or specs[0].name in header
    missing = [s.name for s in specs if by_name and s.name not in header]
    if missing:
        raise InputError(f"{path}: there is no column {missing[0]!r}; it has {', '.join(header)}.")
    features = [i for i, name in enumerate(header) if name != label]
    for number, row in _rows(path):
        if len(row) != len(header):
            raise InputError(f"{path}, line {number}: {len(row)} cells, where the header has {len(header)}.")
        if by_name:
            yield {s.name: _cell(row[header.index(s.name)], s, path, number) for s in specs}
        else:
            values = [_number(row[i], path, number) for i in features]
            dtype = specs[0].dtype if isinstance(specs[0].dtype, np.dtype) else np.float32
            yield {specs[0].name: np.array([values], np.float64).astype(dtype)}


def columns(path: Path) -> list[str]:
    """The header of a CSV file; "0", "1", ... where its first line is a row already (see `lacks_header`).

    Raises:
        InputError: unreadable or empty.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV ({error}).") from error
    if not header:
        raise InputError(f"{path}: the file is empty.")
    names = [name.strip() for name in header]
    return [str(i) for i in range(len(names))] if _is_row(names) else names


def lacks_header(path: Path) -> bool:
    """Whether the first line of a CSV file holds numbers, other than the counting names that pandas writes (0,1,2).

    Raises:
        InputError: unreadable.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return _is_row([c.strip() for c in next(csv.reader(file), [])])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV ({error}).") from error


def _is_row(cells: Sequence[str]) -> bool:
    try:
        return bool([float(c) for c in cells if c]) and list(cells) != [str(i) for i in range(len(cells))]
    except ValueError:
        return False


def count_rows(path: Path) -> int:
    """Rows below the header."""
    return sum(1 for _ in _rows(path))


def read_column(path: Path, name: str) -> np.ndarray:
    """One column: integers or floats where all cells are numbers, else text.

    Raises:
        InputError: no such column.
    """
    header = columns(path)
    if name not in header:
        raise InputError(f"{path}: there is no column {name!r} for --labels; it has {', '.join(header)}.")
    cells = [row[header.index(name)] for _, row in _rows(path) if len(row) == len(header)]
    for dtype in (np.int64, np.float64):
        try:
            return np.array([dtype(c) for c in cells])
        except ValueError:
            continue
    return np.array(cells)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            first = next(reader, [])
            if _is_row([c.strip() for c in first]):
                yield reader.line_num, first
            for row in reader:
                if row:
                    yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV ({error}).") from error


def _cell(text: str, spec: TensorSpec, path: Path, line: int) -> np.ndarray:
    shape = (1,) * len(spec.shape or (1,))
    if spec.dtype == "string":
        return np.array([text], dtype=object).reshape(shape)
    dtype = spec.dtype if isinstance(spec.dtype, np.dtype) else np.dtype("float32")
    return np.array([_number(text, path, line)], np.float64).astype(dtype).reshape(shape)


def _number(text: str, path: Path, line: int) -> float:
    try:
        return float(text) if text.strip() else float("nan")  # a cell left empty is a missing value
    except ValueError as error:
        raise InputError(f"{path}, line {line}: {text!r} is not a number.") from error

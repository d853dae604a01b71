"""CSV and TSV: cells between commas, semicolons, tabs or bars, quoted where they hold one of these."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from onnxtool.errors import InputError
from onnxtool.runtime.data.formats.table_file import TableFile
from onnxtool.runtime.data.table import DataTable, Rows

SUFFIXES = (".csv", ".tsv")
_DELIMITERS = ",;\t|"
_CHUNK = 4096  # rows


def read(file: TableFile) -> DataTable:
    """A table whose cells are texts. The delimiter is that which is most often in the first line.

    A first line of numbers is a row, and the columns are called "0", "1", ...; pandas' own counting names are names.

    Raises:
        InputError: unreadable or empty.
    """
    first = next(file.lines(), "")
    delimiter = "\t" if file.suffix == ".tsv" else _delimiter(first, file.decimal)
    header = [name.strip() for name in next(_cells(file, delimiter), (0, []))[1]]
    if not any(header):
        raise InputError(f"{file.label}: the file is empty." if not first.strip() else f"{file.label}: no header.")
    headless = _is_row(header, file.decimal)
    names = [str(i) for i in range(len(header))] if headless else header
    notes = (f"{file.label}: its first line holds numbers, and was taken as a row",) if headless else ()

    def rows() -> Iterator[Rows]:
        numbers: list[int] = []
        found: list[list[str]] = []
        for index, (number, cells) in enumerate(_cells(file, delimiter)):
            if index == 0 and not headless:
                continue
            if len(cells) != len(names):
                told = "first line" if headless else "header"
                raise InputError(f"{file.label}, line {number}: {len(cells)} cells, where the {told} has {len(names)}.")
            numbers.append(number)
            found.append(cells)
            if len(found) == _CHUNK:
                yield Rows(list(zip(*found, strict=True)), numbers)
                numbers, found = [], []
        if found:
            yield Rows(list(zip(*found, strict=True)), numbers)

    return DataTable(file.label, tuple(names), rows, unit="line", is_text=True, decimal=file.decimal, notes=notes)


def write(columns: Mapping[str, np.ndarray], suffix: str) -> bytes:
    """A header and a line for each row; numbers with all the digits that give them back."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t" if suffix == ".tsv" else ",", lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(str, array) for array in columns.values()), strict=True))
    return text.getvalue().encode()


def _cells(file: TableFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The number of its last line, and the cells, of each row that is not blank."""
    reader = csv.reader(file.lines(), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{file.label}, line {reader.line_num}: cannot be read as CSV ({error}).") from error


def _delimiter(line: str, decimal: str) -> str:
    unquoted = "".join(line.split('"')[::2])
    return max((d for d in _DELIMITERS if d != decimal), key=unquoted.count)


def _is_row(cells: Sequence[str], decimal: str) -> bool:
    try:
        numbers = [float(c.replace(decimal, ".")) for c in cells if c]
    except ValueError:
        return False
    return bool(numbers) and list(cells) != [str(i) for i in range(len(cells))]

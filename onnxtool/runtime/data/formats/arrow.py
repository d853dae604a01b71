"""Parquet, and Arrow's own files (Feather), by pyarrow."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from onnxtool.errors import (
    InputError,
    OnnxToolError,
    ResourceError,
    UsageError,
    needs_extra,
    one_line,
)
from onnxtool.runtime.data.formats.table_file import EXTRA, RATIO_LIMIT, UNPACKED_LIMIT, TableFile
from onnxtool.runtime.data.table import DataTable, Rows
from onnxtool.runtime.worker.isolation import guarded, native_silence

SUFFIXES = (".parquet", ".feather", ".arrow")
_CHUNK = 1 << 16  # rows
_INDEX = re.compile(r"__index_level_\d+__")  # pandas' index, which is no column


def read(file: TableFile) -> DataTable:
    """A table in the types of the file.

    Raises:
        InputError: damaged, or another format.
        MissingExtraError: pyarrow is not installed.
    """
    _pyarrow(file.label)
    with _opened(file) as (names, _):
        pass
    chosen = [i for i, name in enumerate(names) if not _INDEX.fullmatch(name)]

    def rows() -> Iterator[Rows]:
        seen, size = 0, 0
        with _opened(file) as (_, batches):
            while True:
                with _reading(file):
                    batch = next(batches, None)
                    if batch is None:
                        return
                    size += batch.nbytes
                    if size > max(UNPACKED_LIMIT, RATIO_LIMIT * file.size):
                        raise ResourceError(
                            f"{file.label}: it unpacks to more than {RATIO_LIMIT} times its size; save it uncompressed "
                            "if that is right."
                        )
                    columns = [as_array(batch.column(i)) for i in chosen]
                yield Rows(columns, range(seen, seen + batch.num_rows))
                seen += batch.num_rows

    return DataTable(file.label, tuple(names[i] for i in chosen), rows)


def write(columns: Mapping[str, np.ndarray], suffix: str) -> bytes:
    """A table with the types of the arrays.

    Raises:
        MissingExtraError: pyarrow is not installed.
        UsageError: a type that it has not.
    """
    pyarrow = _pyarrow(f"-o *{suffix}")
    buffer = io.BytesIO()
    try:
        table = pyarrow.table(dict(columns))
        if suffix == ".parquet":
            from pyarrow.parquet import write_table

            write_table(table, buffer)
        else:
            with pyarrow.ipc.new_file(buffer, table.schema) as writer:
                writer.write_table(table)
    except pyarrow.ArrowException as error:
        raise UsageError(f"{suffix} cannot hold these outputs ({one_line(error)}); write .npz.") from error
    return buffer.getvalue()


def as_array(column: Any) -> np.ndarray:
    """Values of an Arrow array; missing numbers are NaN, other missing values None, lists and structs objects."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        values = np.empty(len(column), object)
        values[:] = column.to_pylist()
        return values
    found: np.ndarray = column.to_numpy(zero_copy_only=False)
    return found


@contextmanager
def _opened(file: TableFile) -> Iterator[tuple[list[str], Iterator[Any]]]:
    """The names of a file's columns, and its batches of rows."""
    import pyarrow

    with io.BytesIO(file.open().read()) if file.compression else file.content() as content:
        with _reading(file):
            if file.suffix == ".parquet":
                from pyarrow.parquet import ParquetFile

                opened = ParquetFile(content)
                schema, batches = opened.schema_arrow, opened.iter_batches(_CHUNK)
            else:
                is_file = content.read(6) == b"ARROW1"
                content.seek(0)
                reader = pyarrow.ipc.open_file(content) if is_file else pyarrow.ipc.open_stream(content)
                whole = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else iter(reader)
                schema, batches = reader.schema, whole
            names = [field.name for field in schema]
        yield names, batches


def _pyarrow(label: str) -> Any:
    with needs_extra(label, "pyarrow", EXTRA):
        import pyarrow
        import pyarrow.ipc
    return pyarrow


@contextmanager
def _reading(file: TableFile) -> Iterator[None]:
    """Native code at work on a file; what it raises on a damaged one, in our terms."""
    import pyarrow

    try:
        with guarded("reading the table", file.size), native_silence():
            yield
    except OnnxToolError:
        raise
    except MemoryError as error:  # pyarrow's own is one
        raise ResourceError(f"{file.label}: it does not fit in memory.") from error
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        form = file.suffix.removeprefix(".")
        raise InputError(f"{file.label}: is not a {form} file, or damaged ({one_line(error, 200)}).") from error

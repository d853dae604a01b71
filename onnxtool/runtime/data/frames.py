"""Tables of Python: data frames of any library, rows as dicts, columns by name. None of the libraries is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.errors import InputError, needs_extra, one_line
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.data.formats.table_file import EXTRA
from onnxtool.runtime.data.table import Cells, DataTable, Rows


def is_frame(data: object) -> bool:
    """Whether it is a data frame (pandas, Polars, Arrow and their like), or one column of it."""
    if isinstance(data, (str, bytes, Mapping, np.ndarray)):
        return False
    kind = type(data)
    marks = ("__dataframe__", "__arrow_c_stream__", "iloc", "to_frame", "collect_schema")
    return any(hasattr(kind, name) for name in marks)


def as_table(data: Any, specs: Sequence[TensorSpec] | None = None) -> DataTable | None:
    """A frame, a column of one, a list of rows (dicts of numbers and texts), or columns by name.

    Args:
        data: anything.
        specs: the model's inputs; without them named arrays count as arrays.

    Returns:
        None where it is no table.

    Raises:
        InputError: a row without one of the columns of the first.
        MissingExtraError: a frame that pyarrow alone can read.
    """
    if is_frame(data):
        if specs is not None and _is_labelled_row(data, specs):
            return _of_rows([data.to_dict()])
        return _table("given table", _columns(data))
    if isinstance(data, (list, tuple)) and data and all(_is_row(item) for item in data):
        return _of_rows(data)
    if isinstance(data, Mapping) and specs is not None and _has_columns(data, specs):
        if _is_row(data):
            return _of_rows([data])
        if all(_rank(v) == 1 or is_frame(v) for v in data.values()):
            return _table("given columns", [(str(name), _values(column)) for name, column in data.items()])
    return None


def frame_like(data: Any, columns: Mapping[str, np.ndarray]) -> Any:
    """A frame of the same library; of pandas with the same index. Of columns by name and of rows, one of pandas.

    None where that is not installed.
    """
    if not is_frame(data):
        try:
            from pandas import DataFrame
        except ModuleNotFoundError:
            return None
        data = DataFrame()
    plain = {name: array.tolist() if array.dtype.kind in "OU" else array for name, array in columns.items()}
    kind = type(data.to_frame()) if hasattr(data, "to_frame") and not hasattr(type(data), "columns") else type(data)
    if hasattr(kind, "from_pydict"):  # Arrow
        return kind.from_pydict(plain)
    if hasattr(data, "index") and hasattr(data, "iloc"):
        rows = len(next(iter(columns.values()), ()))
        return kind(plain, index=data.index) if len(data.index) == rows else kind(plain)
    return type(data.collect())(plain) if hasattr(data, "collect") else kind(plain)


def _is_labelled_row(data: Any, specs: Sequence[TensorSpec]) -> bool:
    """One row of a pandas frame, as `frame.iloc[0]` gives it."""
    if hasattr(type(data), "columns") or not (hasattr(data, "index") and hasattr(data, "to_dict")):
        return False
    wanted = {name for s in specs for name in (s.columns or (s.name,))}
    return wanted <= {str(label) for label in data.index}


def _columns(data: Any) -> list[tuple[str, Cells]]:
    if hasattr(data, "collect") and not hasattr(data, "get_columns"):  # Polars, lazy
        data = data.collect()
    if hasattr(data, "column_names") and hasattr(data, "to_pydict"):  # Arrow
        from onnxtool.runtime.data.formats.arrow import as_array

        return [(str(n), as_array(c)) for n, c in zip(data.column_names, data.columns, strict=True)]
    if hasattr(data, "get_columns"):  # Polars
        return [(column.name, _values(column)) for column in data.get_columns()]
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas; a name may stand twice
        return [(str(name), _values(data.iloc[:, i])) for i, name in enumerate(data.columns)]
    if hasattr(data, "to_frame") and not hasattr(data, "columns"):
        return [("" if data.name is None else str(data.name), _values(data))]
    with needs_extra(f"a {type(data).__name__}", "pyarrow", EXTRA):
        import pyarrow
    try:
        return _columns(pyarrow.table(data))
    except (TypeError, ValueError, pyarrow.ArrowException) as error:
        raise InputError(f"a {type(data).__name__} cannot be read as a table ({one_line(error, 200)}).") from error


def _values(column: Any) -> Cells:
    """The cells of a column, in a type of NumPy's; objects where it has none. Of a list each has a type of its own."""
    if isinstance(column, (list, tuple)):
        return column
    array = np.asarray(column)
    # Polars makes two dims of lists of one length, and of structs, whose numbers are no features.
    return array if array.ndim == 1 or not hasattr(column, "to_list") else list(column.to_list())


def _table(label: str, columns: Sequence[tuple[str, Cells]]) -> DataTable:
    counts = {name: len(cells) for name, cells in columns}
    if len(set(counts.values())) > 1:
        first, *others = counts
        odd = next(name for name in others if counts[name] != counts[first])
        raise InputError(f"{label}: column {odd!r} has {counts[odd]} rows, where {first!r} has {counts[first]}.")
    count = next(iter(counts.values()), 0)

    def rows() -> Iterator[Rows]:
        if count:
            yield Rows([cells for _, cells in columns], range(count))

    return DataTable(label, tuple(name for name, _ in columns), rows)


def _of_rows(rows: Sequence[Mapping[Any, Any]]) -> DataTable:
    names = list(rows[0])
    for index, row in enumerate(rows):
        lacking = [name for name in names if name not in row]
        if lacking:
            raise InputError(f"given rows, row {index}: there is no {lacking[0]!r}; give None for a missing value.")
    return _table("given rows", [(str(name), [row[name] for row in rows]) for name in names])


def _is_row(item: object) -> bool:
    """A dict of numbers and texts; of arrays it is inputs of a model."""
    return (
        isinstance(item, Mapping)
        and bool(item)
        and not any(_rank(v) or isinstance(v, np.ndarray) for v in item.values())
    )


def _rank(value: Any) -> int:
    """How many dims an array has; of lists of unequal lengths only the first is one."""
    try:
        return np.ndim(value)
    except ValueError:
        return 1


def _has_columns(data: Mapping[Any, Any], specs: Sequence[TensorSpec]) -> bool:
    """Whether names are those of columns that the model knows, and not arrays of the ranks that it takes (or whole
    samples along one more).
    """
    if not {str(name) for name in data} & {name for s in specs for name in (s.name, *s.columns)}:
        return False
    ranks = {s.name: len(s.shape) for s in specs if s.shape is not None}
    more = [_rank(array) - ranks[name] for name, array in data.items() if name in ranks]
    return not more or any(m not in (0, 1) for m in more)

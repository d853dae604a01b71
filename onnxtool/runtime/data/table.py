"""Tables as inputs: columns by name, in the types that a model takes."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec, dtype_name, row_width

Cells = Sequence[Any] | np.ndarray
# What stands for a missing number in files (of text only nothing at all does: "NA" is Namibia, too).
_MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "<na>"))
_NULLS = ("NAType", "NaTType")  # pandas' own
_SHOWN = 12  # names in a message


@dataclass(frozen=True)
class Rows:
    """Some rows of a table.

    Attributes:
        columns: the cells of each column, equally many.
        numbers: of the rows, for messages.
    """

    columns: Sequence[Cells]
    numbers: Sequence[int]


@dataclass(frozen=True)
class DataTable:
    """A table, before it is known what a model takes of it.

    Attributes:
        label: where it comes from, for messages.
        names: of its columns, in order.
        read: starts a pass over its rows.
        unit: what the numbers of rows count: "line" or "row".
        is_text: cells are texts, of numbers too.
        decimal: what stands before the decimals of a number in a text.
        notes: what was done with it that the user may not expect.
    """

    label: str
    names: tuple[str, ...]
    read: Callable[[], Iterator[Rows]]
    unit: str = "row"
    is_text: bool = False
    decimal: str = "."
    notes: tuple[str, ...] = ()

    def arrays(self, specs: Sequence[TensorSpec], leave_out: str | None = None) -> dict[str, np.ndarray]:
        """The inputs of a model, each of [rows, *its other dims].

        An input with one number or text for each row is the column of its name. One with several is made of the columns
        that it is known to have (`TensorSpec.columns`), of name[0], name[1], ..., of a column of lists, or, where it is
        the only one, of all columns in their order.

        Args:
            specs: what the model takes.
            leave_out: a column that is no feature.

        Raises:
            InputError: no rows, no such column, another number of them, or a cell that does not fit; names the place.
        """
        found: dict[str, list[np.ndarray]] = {spec.name: [] for spec in specs}
        chosen: dict[str, list[int]] = {}
        table = self.named_for(specs, leave_out)
        for rows in self.read():
            chosen = chosen or {s.name: table._choose(s, len(specs) == 1, leave_out, rows) for s in specs}
            for spec in specs:
                columns = [self._typed(rows, index, spec) for index in chosen[spec.name]]
                found[spec.name].append(self._joined(columns, spec))
        if not chosen:
            raise InputError(f"{self.label}: there are no rows in it.")
        return {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in found.items()}

    def named_for(self, specs: Sequence[TensorSpec], leave_out: str | None = None) -> DataTable:
        """The same with the names of a model's inputs for columns without names, by the numbers that inputs are named
        by, or where there are as many.
        """
        others, wanted = [name for name in self.names if name != leave_out], [s.name for s in specs]
        if not self._is_nameless() or any(row_width(s) != 1 for s in specs):
            return self
        counted = counted_columns(len(others))
        names = counted if set(wanted) <= set(counted) else wanted
        if len(others) != len(names):
            return self
        named = dict(zip(others, names, strict=True))
        return replace(self, names=tuple(named.get(name, name) for name in self.names))

    def _is_nameless(self) -> bool:
        """Whether columns are only counted, by pandas or by us."""
        return self.names == tuple(map(str, range(len(self.names))))

    def column(self, name: str) -> np.ndarray:
        """One column [rows]: integers or floats where all cells are numbers, else text.

        Raises:
            InputError: no such column.
        """
        if name not in self.names:
            raise InputError(f"{self.label}: there is no column {name!r}; it has {_listed(self.names)}.")
        index = self.names.index(name)
        for kind in (np.dtype(np.int64), np.dtype(np.float64)):
            spec = TensorSpec(name, kind, (None,))
            try:
                return np.concatenate([self._typed(rows, index, spec) for rows in self.read()])
            except InputError:
                continue
        return np.array([str(cell) for rows in self.read() for cell in rows.columns[index]])

    def dtypes(self) -> dict[str, np.dtype]:
        """The types of columns that are arrays, by name; objects and texts have none."""
        first = next(self.read(), None)
        columns = zip(self.names, first.columns, strict=True) if first is not None else ()
        return {
            name: cells.dtype for name, cells in columns if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiub"
        }

    def first(self, count: int) -> DataTable:
        """Its first rows, without a pass over the others."""

        def read() -> Iterator[Rows]:
            for rows in islice(self.read(), 1):
                yield Rows([cells[:count] for cells in rows.columns], rows.numbers[:count])

        return replace(self, read=read)

    def left_out(self, specs: Sequence[TensorSpec], leave_out: str | None = None) -> tuple[str, ...]:
        """What to say of columns that the model does not take; where names choose."""
        taken = {name for s in specs for name in (s.columns or (s.name,))}
        if not taken & set(self.names):
            return ()
        parts = {n.partition("[")[0] for n in taken}
        others = [n for n in self.names if n not in taken and n != leave_out and n.partition("[")[0] not in parts]
        if not others:
            return ()
        word = "column" if len(others) == 1 else "columns"
        return (f"{self.label}: {word} {_listed(others)} left out, which the model does not take",)

    def _choose(self, spec: TensorSpec, alone: bool, leave_out: str | None, rows: Rows) -> list[int]:
        """The columns that make an input."""
        wide = row_width(spec) != 1
        known = set(spec.columns) & set(self.names) or spec.name not in self.names
        if spec.columns and known and not (self._is_nameless() and alone):
            return [self._index(name, spec) for name in spec.columns]
        if spec.name in self.names and not (
            wide and alone and not _holds_lists(rows.columns[self._index(spec.name, spec)])
        ):
            return [self._index(spec.name, spec)]
        part = re.compile(re.escape(spec.name) + r"\[.+\]", re.DOTALL)
        parts = [name for name in self.names if part.fullmatch(name)]
        if wide and parts:
            return [self._index(name, spec) for name in parts]
        others = [i for i, name in enumerate(self.names) if name != leave_out]
        if not alone or (not wide and len(others) != 1):
            return [self._index(spec.name, spec)]
        if row_width(spec) not in (len(others), None):
            names = [self.names[i] for i in others]
            raise InputError(
                f"{self.label}: it has {len(others)} columns ({_listed(names)}); the model takes {row_width(spec)}: "
                f"{spec.info()}."
            )
        return others

    def _index(self, name: str, spec: TensorSpec) -> int:
        """Raises InputError where there is not exactly one column of this name."""
        count = self.names.count(name)
        if count == 1:
            return self.names.index(name)
        if count:
            raise InputError(f"{self.label}: the column {name!r} is there {count} times; the model takes one.")
        like = difflib.get_close_matches(name, self.names, 1)
        guess = f" (is it {like[0]!r}?)" if like else ""
        raise InputError(
            f"{self.label}: there is no column {name!r}{guess}; it has {_listed(self.names)}, and the model takes "
            f"{spec.info()}."
        )

    def _joined(self, columns: Sequence[np.ndarray], spec: TensorSpec) -> np.ndarray:
        """Columns of [rows] (or one of [rows, ...]) in the shape of an input."""
        count = len(columns[0])
        whole = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        inner = (spec.shape or (None,))[1:]
        fixed = [d for d in inner if isinstance(d, int)]
        if len(fixed) == len(inner) and whole.size == count * math.prod(fixed):
            return whole.reshape(count, *fixed)
        return whole.reshape(count, -1) if whole.ndim == 1 and len(inner) == 1 else whole

    def _typed(self, rows: Rows, index: int, spec: TensorSpec) -> np.ndarray:
        cells = rows.columns[index]

        def refuse(position: int, reason: str) -> InputError:
            place = f"{self.label}, {self.unit} {rows.numbers[position]}, column {self.names[index]!r}"
            return InputError(f"{place}: {reason}; the model takes {dtype_name(spec.dtype)}.")

        if _holds_lists(cells):
            return self._stacked(cells, spec, refuse)
        return _convert(cells, spec.dtype, refuse, self.decimal if self.is_text else "")

    def _stacked(self, cells: Cells, spec: TensorSpec, refuse: Refusal) -> np.ndarray:
        """Lists, one in each cell, as [rows, ...]."""
        parts: list[np.ndarray] = []
        for position, cell in enumerate(cells):
            try:
                part = np.asarray(cell.tolist() if isinstance(cell, np.ndarray) else cell)
            except ValueError:  # lists of unequal lengths
                part = np.asarray(None)
            if part.dtype == object or not part.ndim or (parts and part.shape != parts[0].shape):
                raise refuse(position, f"{_shown(cell)} is no list like the others")
            flat = _convert(part.reshape(-1), spec.dtype, partial(_refuse_at, refuse, position), "")
            parts.append(flat.reshape(part.shape))
        return np.stack(parts)


Refusal = Callable[[int, str], InputError]


def counted_columns(count: int) -> list[str]:
    """Names of inputs for columns that have none."""
    return [f"column_{i}" for i in range(count)]


def _refuse_at(refuse: Refusal, position: int, _element: int, reason: str) -> InputError:
    return refuse(position, reason)


def _convert(cells: Cells, dtype: np.dtype | str, refuse: Refusal, decimal: str) -> np.ndarray:
    """Cells [rows] in a model's type.

    Args:
        cells: of a typed array, of Python's values, or texts.
        dtype: numpy's, or "string".
        refuse: makes the error for one of the cells.
        decimal: of numbers that are written as texts; "" where a text is no number.

    Raises:
        InputError: a cell that does not fit.
    """
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "mM":
        raise refuse(0, f"{cells[0]} is a date; give it as the number that the model was trained on")
    if isinstance(dtype, str):
        if dtype != "string":
            raise refuse(0, "a table cannot hold such an input")
        return _texts(cells, refuse, is_text=bool(decimal))
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        return _narrow(cells, dtype, refuse)
    if decimal == "." and dtype.kind not in "iub" and not any("_" in cell for cell in cells):
        with suppress(ValueError):  # the usual case, in a tenth of the time
            numbers = np.array([float(cell) for cell in cells], np.float64)
            if not np.isinf(numbers).any():
                return _narrow(numbers, dtype, refuse)
    values = []
    for position, cell in enumerate(cells):
        try:
            number = _number(cell, decimal)
            values.append(number if number is None or dtype.kind in "iub" else float(number))
        except OverflowError:
            raise refuse(position, f"{_shown(cell)} does not fit") from None
        except ValueError:
            hint = " (for a decimal comma: --decimal ,)" if decimal == "." and _COMMA.fullmatch(cell) else ""
            raise refuse(position, f"{_shown(cell)} is not a number{hint}") from None
    if dtype.kind not in "iub":
        return _narrow(np.array([np.nan if v is None else v for v in values], np.float64), dtype, refuse)
    whole = np.empty(len(values), object)
    for position, value in enumerate(values):
        if value is None:
            raise refuse(position, "it is empty, and only floats can be missing")
        if value != value // 1:
            raise refuse(position, f"{value} is not a whole number")
        whole[position] = int(value)
    return _narrow(whole, dtype, refuse)


_COMMA = re.compile(r"\s*[-+]?[\d.]*,\d+\s*")


def _number(cell: Any, decimal: str) -> int | float | None:
    """The number that a cell holds; None where it is missing.

    Raises:
        ValueError: it holds none.
        OverflowError: one beyond all floats.
    """
    if isinstance(cell, (bool, np.bool_)):
        return int(cell)
    if isinstance(cell, (int, float, np.integer, np.floating)):
        number = cell.item() if isinstance(cell, np.generic) else cell
        return None if number != number else number
    if isinstance(cell, Decimal):
        return None if cell.is_nan() else float(cell)
    if cell is None or type(cell).__name__ in _NULLS:
        return None
    if not isinstance(cell, str):
        raise ValueError
    if not decimal:  # a text in typed data: only what JSON has no number for
        if cell in ("NaN", "Infinity", "-Infinity"):
            return float(cell)
        raise ValueError
    word = cell.strip().lower()
    if word in _MISSING:
        return None
    if word in ("true", "false"):
        return int(word == "true")
    if "_" in word or (decimal != "." and "." in word):
        raise ValueError
    word = word.replace(decimal, ".")
    try:
        return int(word)
    except ValueError:
        number = float(word)
    if math.isinf(number) and any(letter.isdigit() for letter in word):
        raise OverflowError
    return number


def _narrow(array: np.ndarray, dtype: np.dtype, refuse: Refusal) -> np.ndarray:
    """Numbers in another type; none becomes infinite, and integers and booleans stay the same numbers."""
    if dtype.kind not in "iub":
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        beyond = np.isinf(cast) & np.isfinite(array)
        if beyond.any():
            position = int(np.argmax(beyond))
            raise refuse(position, f"{array[position]} does not fit")
        return cast
    if array.dtype == dtype:
        return array
    if dtype.kind == "b":
        fits = (array == 0) | (array == 1)
    elif array.dtype.kind == "b":
        return array.astype(dtype)
    else:
        limits = np.iinfo(dtype)
        if array.dtype.kind == "f":  # the largest integer of 64 bits is no float, the next one is
            fits = (array == np.floor(array)) & (array >= float(limits.min)) & (array < float(limits.max) + 1)
        else:
            wide = array.astype(object)
            fits = ((wide >= limits.min) & (wide <= limits.max)).astype(bool)
    if not fits.all():
        position = int(np.argmin(fits))
        value = array[position]
        missing = isinstance(value, np.floating) and np.isnan(value)
        raise refuse(position, "it is empty, and only floats can be missing" if missing else f"{value} does not fit")
    return array.astype(dtype)


def _texts(cells: Cells, refuse: Refusal, *, is_text: bool) -> np.ndarray:
    """Texts as objects; a missing one is the empty text."""
    found = np.empty(len(cells), object)
    found[:] = cells
    if is_text:
        return found
    for position, cell in enumerate(cells):
        if isinstance(cell, str):
            found[position] = str(cell)
        elif cell is None or type(cell).__name__ in _NULLS or (isinstance(cell, (float, np.floating)) and cell != cell):
            found[position] = ""
        else:
            raise refuse(position, f"{_shown(cell)} is not a text")
    return found


def _holds_lists(cells: Cells) -> bool:
    if isinstance(cells, np.ndarray) and cells.dtype != object:
        return False
    return any(isinstance(cell, (list, tuple, np.ndarray)) for cell in cells[:1])


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name or "(no name)" for name in names[:_SHOWN])
    return f"{shown}, ... ({len(names)} in all)" if len(names) > _SHOWN else shown


def _shown(cell: Any) -> str:
    if isinstance(cell, dict):
        return "an object (nested)"
    text = repr(cell.item() if isinstance(cell, np.generic) else cell)
    return text if len(text) <= 40 else text[:40] + "..."

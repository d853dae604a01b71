"""Functions of the user's on NumPy arrays or frames -> nodes, by calling them with a matrix that writes what is done.

Source: NumPy, NEP 13 (`__array_ufunc__`) and NEP 18 (`__array_function__`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.small_numbers import floor_mod
from onnxtool.errors import UnsupportedError, one_line

# Those that are one operator of one input; all have a kernel for doubles.
UNARY: dict[Any, str] = {
    np.abs: "Abs", np.exp: "Exp", np.log: "Log", np.negative: "Neg", np.sqrt: "Sqrt", np.sign: "Sign",
    np.floor: "Floor", np.ceil: "Ceil", np.reciprocal: "Reciprocal", np.tanh: "Tanh", np.rint: "Round",
}  # fmt: skip
_BINARY: dict[Any, str] = {
    np.add: "Add", np.subtract: "Sub", np.multiply: "Mul", np.divide: "Div", np.power: "Pow", np.maximum: "Max",
    np.minimum: "Min",
}  # fmt: skip
_COMPARED: dict[Any, str] = {
    np.less: "Less", np.less_equal: "LessOrEqual", np.greater: "Greater", np.greater_equal: "GreaterOrEqual",
    np.equal: "Equal",
}  # fmt: skip
_LOGIC: dict[Any, str] = {
    np.logical_and: "And", np.logical_or: "Or", np.bitwise_and: "And", np.bitwise_or: "Or", np.logical_not: "Not",
    np.invert: "Not", np.isnan: "IsNaN",
}  # fmt: skip
_POWERS: dict[float, np.ufunc] = {2.0: np.square, 0.5: np.sqrt, -1.0: np.reciprocal}  # as NumPy has them for arrays
Formula = Callable[[NodeWriter, Any, str], str | None]


class TracedMatrix(NDArrayOperatorsMixin):
    """Rows of doubles or truth values: a matrix, or one column of it as [rows].

    What it cannot do is a TypeError, or an error of the function's own.

    Attributes:
        value: the name in the graph.
        truths: of truth values.
        width: how many columns a matrix has; 0 of a column.
    """

    def __init__(
        self,
        write: NodeWriter,
        formula: Formula,
        value: str,
        width: int,
        names: Sequence[str] = (),
        *,
        truths: bool = False,
    ) -> None:
        self._write, self._formula, self._names = write, formula, tuple(names)
        self.value, self.width, self.truths = value, width, truths

    def _made(
        self,
        value: str | None,
        *others: Any,
        truths: bool = False,
        names: Sequence[str] | None = None,
        width: int | None = None,
    ) -> TracedMatrix:
        """Of this one's width and names and those of other operands, unless they are given."""
        if value is None:
            raise TypeError("has no ONNX form here")
        operands = [self, *(i for i in others if isinstance(i, TracedMatrix))]
        named = {i._names for i in operands if i._names}
        if len(named) > 1:
            raise TypeError("frames of other columns, which pandas puts in one order, have no ONNX form here")
        names = next(iter(named), ()) if names is None else names
        constants = [(0, *np.shape(i))[-1] for i in others if not isinstance(i, TracedMatrix)]
        width = max(*(i.width for i in operands), *constants, 0) if width is None else width
        return TracedMatrix(self._write, self._formula, value, width, names, truths=truths)

    def _named(self, operand: Any) -> str:
        """The name of an operand, a constant's too."""
        if isinstance(operand, TracedMatrix):
            return self._write.cast(operand.value, DOUBLE) if operand.truths else operand.value
        return self._write.constant(np.asarray(operand, np.float64))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("it is not known while the file is written")

    def __bool__(self) -> bool:
        raise TypeError("a decision by the data has no ONNX form (np.where has)")

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """What NumPy's own functions make of it."""
        if method != "__call__" or options:
            return NotImplemented
        if function is np.power and isinstance(inputs[1], (int, float)) and inputs[1] in _POWERS:
            function, inputs = _POWERS[inputs[1]], inputs[:1]
        self._write.note(function.__name__)
        if function in _LOGIC:
            both = [i.value if isinstance(i, TracedMatrix) else self._write.constant(np.asarray(i)) for i in inputs]
            return self._made(self._write.add(_LOGIC[function], *both), *inputs, truths=True)
        given = [self._named(operand) for operand in inputs]
        if function in _COMPARED:
            return self._made(self._write.add(_COMPARED[function], *given), *inputs, truths=True)
        if function in _BINARY:
            return self._made(self._write.add(_BINARY[function], *given), *inputs)
        if function is np.remainder:
            return self._made(floor_mod(self._write.add, *given), *inputs)
        return self._made(self._formula(self._write, function, *given)) if len(given) == 1 else NotImplemented

    def __array_function__(self, function: Any, _: Any, given: Any, options: Mapping[str, Any]) -> Any:
        """What other functions of NumPy make of it."""
        known: dict[Any, Callable[..., TracedMatrix]] = {
            np.where: self._where, np.clip: _clipped, np.nan_to_num: _as_numbers, np.column_stack: self._side_by_side,
            np.hstack: self._side_by_side, np.concatenate: self._joined,
        }  # fmt: skip
        return known[function](*given, **options) if function in known else NotImplemented

    def _where(self, condition: Any, on: Any, off: Any) -> TracedMatrix:
        found = self._write.add("Where", condition.value, self._named(on), self._named(off))
        return self._made(found, condition, on, off)

    def _side_by_side(self, parts: Sequence[Any], names: Sequence[str] = ()) -> TracedMatrix:
        """Matrices and columns as one matrix."""
        values = [self._named(part) for part in parts]
        if not all(isinstance(part, TracedMatrix) for part in parts):
            raise TypeError("side by side, constants have no ONNX form here")
        pairs = zip(parts, values, strict=True)
        matrices = [v if p.width else self._write.add("Unsqueeze", v, np.array([1])) for p, v in pairs]
        return self._made(
            self._write.add("Concat", *matrices, axis=1), names=names, width=sum(p.width or 1 for p in parts)
        )

    def _joined(self, parts: Sequence[Any], axis: int = 0) -> TracedMatrix:
        if axis not in (1, -1) or not all(getattr(part, "width", 0) for part in parts):
            raise TypeError("rows one below another have no ONNX form here")
        return self._side_by_side(parts)

    def assign(self, **columns: Any) -> TracedMatrix:
        """As a frame has it."""
        found: dict[str, Any] = {name: self[name] for name in self._names}
        for name, column in columns.items():
            found[name] = column(self) if callable(column) else column
        return self._side_by_side(list(found.values()), list(found))

    def __setitem__(self, name: str, column: Any) -> None:
        changed = self.assign(**{name: column})
        self.value, self._names, self.width = changed.value, changed._names, changed.width

    def __getattr__(self, name: str) -> TracedMatrix:
        if name in self.__dict__.get("_names", ()):
            return self[name]
        raise AttributeError(f"{name!r} has no ONNX form here")

    def isna(self) -> TracedMatrix:
        """As a frame has it."""
        return cast("TracedMatrix", np.isnan(self))

    def fillna(self, value: float) -> TracedMatrix:
        """As a frame has it, of one number for all columns."""
        return self._where(np.isnan(self), float(value), self)

    def copy(self) -> TracedMatrix:
        """As a frame has it: what is written into it stays there."""
        return self._made(self.value, truths=self.truths)

    def clip(self, lower: Any = None, upper: Any = None) -> TracedMatrix:
        """As pandas has it."""
        return _clipped(self, lower, upper)

    def astype(self, dtype: Any) -> TracedMatrix:
        """Doubles as they are, and truth values as doubles."""
        if np.dtype(dtype) != np.float64 and not (self.truths and np.dtype(dtype).kind in "iu"):
            raise TypeError(f"a cast to {np.dtype(dtype)} has no ONNX form here")
        return self._made(self._named(self))

    def to_numpy(self) -> TracedMatrix:
        """As a frame has it."""
        return self._made(self.value, truths=self.truths, names=())

    values = property(to_numpy)

    def __getitem__(self, key: Any) -> TracedMatrix:
        """Columns by place behind all rows, or by name."""
        rows, places = key if isinstance(key, tuple) and len(key) == 2 else (slice(None), key)
        if rows != slice(None) or (key is places and not self._names):
            raise TypeError("columns alone can be chosen")
        if key is places:
            places = [self._names.index(n) for n in places] if isinstance(places, list) else self._names.index(places)
        chosen = np.arange(self.width)[places]
        names = [self._names[i] for i in chosen] if self._names and chosen.ndim else ()
        found = self._write.add("Gather", self.value, chosen, axis=1)
        return self._made(found, truths=self.truths, names=names, width=chosen.size if chosen.ndim else 0)


class _Notes:
    """In the place of a NodeWriter: notes the functions that are called, and writes nothing."""

    def __init__(self, step: Any) -> None:
        self.step = step
        self.seen: set[str] = set()
        self.note = self.seen.add

    def add(self, *_: Any, **__: Any) -> str:
        """The name of no value."""
        return ""

    cast = constant = add


def functions_of(step: Any) -> set[str] | None:
    """The names of NumPy's functions that a FunctionTransformer's calls; None where it has no ONNX form here."""
    notes = _Notes(step)
    try:
        traced(cast("NodeWriter", notes), step.func, "", lambda *_: "", **(step.kw_args or {}))
    except UnsupportedError:
        return None
    return notes.seen


def _clipped(matrix: TracedMatrix, a_min: Any = None, a_max: Any = None, **ends: Any) -> TracedMatrix:
    low, high = ends.pop("min", a_min), ends.pop("max", a_max)
    if ends:
        raise TypeError("clip with other options has no ONNX form here")
    found = matrix if low is None else np.maximum(matrix, low)
    return found if high is None else np.minimum(found, high)


def _as_numbers(
    matrix: TracedMatrix, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    del copy
    limits = np.finfo(np.float64)
    high, low = (limits.max if posinf is None else posinf), (limits.min if neginf is None else neginf)
    found = np.where(np.isnan(matrix), nan, matrix)
    return np.where(matrix == np.inf, high, np.where(matrix == -np.inf, low, found))


def traced(write: NodeWriter, function: Callable[..., Any], value: str, formula: Formula, **options: Any) -> str:
    """What a function makes of doubles.

    Args:
        write: of the step that has the function; where that was fitted on names, columns are chosen by these too.
        function: of one argument, beside options.
        value: [rows, columns].
        formula: writes functions of NumPy of one input.
        options: of the function.

    Raises:
        UnsupportedError: it does something that has no ONNX form here.
    """
    names = [str(name) for name in getattr(write.step, "feature_names_in_", ())]
    try:
        width = int(getattr(write.step, "n_features_in_", 1))
        found = function(TracedMatrix(write, formula, value, width, names), **options)
        if not isinstance(found, TracedMatrix):
            raise TypeError(f"it gives a {type(found).__name__}")
    except Exception as error:  # of any code
        name, kind = getattr(function, "__name__", repr(function)), type(write.step).__name__
        raise UnsupportedError(
            f"{kind}: its function {name!r} has no ONNX form here ({one_line(error, 150).removesuffix('.')}). "
            "Arithmetic, comparisons, columns (also side by side: hstack, assign), fillna, numpy's where, clip, "
            "nan_to_num, minimum, maximum, log, log1p, log2, log10, exp, expm1, sqrt, cbrt, square, abs, sign, floor, "
            "ceil, rint, tanh, sin, cos, arctan, arcsinh, radians and degrees have."
        ) from error
    return write.cast(found.value, DOUBLE) if found.truths else found.value

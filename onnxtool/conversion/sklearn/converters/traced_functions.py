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
    np.floor: "Floor", np.ceil: "Ceil", np.reciprocal: "Reciprocal", np.tanh: "Tanh", np.sin: "Sin", np.cos: "Cos",
    np.rint: "Round",
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
    """

    def __init__(
        self, write: NodeWriter, formula: Formula, value: str, names: Sequence[str] = (), *, truths: bool = False
    ) -> None:
        self._write, self._formula, self._names = write, formula, tuple(names)
        self.value, self.truths = value, truths

    def _made(self, value: str | None, *, truths: bool = False) -> TracedMatrix:
        if value is None:
            raise TypeError("has no ONNX form here")
        return TracedMatrix(self._write, self._formula, value, truths=truths)

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
            return self._made(self._write.add(_LOGIC[function], *both), truths=True)
        given = [self._named(operand) for operand in inputs]
        if function in _COMPARED:
            return self._made(self._write.add(_COMPARED[function], *given), truths=True)
        if function in _BINARY:
            return self._made(self._write.add(_BINARY[function], *given))
        if function is np.remainder:
            return self._made(floor_mod(self._write.add, *given))
        return self._made(self._formula(self._write, function, *given)) if len(given) == 1 else NotImplemented

    def __array_function__(self, function: Any, _: Any, given: Any, options: Mapping[str, Any]) -> Any:
        """What other functions of NumPy make of it."""
        known: dict[Any, Callable[..., TracedMatrix]] = {
            np.where: self._where, np.clip: _clipped, np.nan_to_num: _as_numbers,
        }  # fmt: skip
        return known[function](*given, **options) if function in known else NotImplemented

    def _where(self, condition: Any, on: Any, off: Any) -> TracedMatrix:
        return self._made(self._write.add("Where", condition.value, self._named(on), self._named(off)))

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
        return self

    values = property(to_numpy)

    def __getitem__(self, key: Any) -> TracedMatrix:
        """Columns by place behind all rows, or by name."""
        rows, places = key if isinstance(key, tuple) and len(key) == 2 else (slice(None), key)
        width = int(self._write.step.n_features_in_)
        if rows != slice(None) or (key is places and not self._names):
            raise TypeError("columns alone can be chosen")
        if key is places:
            places = [self._names.index(n) for n in places] if isinstance(places, list) else self._names.index(places)
        return self._made(self._write.add("Gather", self.value, np.arange(width)[places], axis=1))


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
        found = function(TracedMatrix(write, formula, value, names), **options)
        if not isinstance(found, TracedMatrix):
            raise TypeError(f"it gives a {type(found).__name__}")
    except Exception as error:  # of any code
        name, kind = getattr(function, "__name__", repr(function)), type(write.step).__name__
        raise UnsupportedError(
            f"{kind}: its function {name!r} has no ONNX form here ({one_line(error, 150)}). Arithmetic, comparisons, "
            "columns and numpy's where, clip, nan_to_num, minimum, maximum, log, log1p, log2, log10, exp, expm1, sqrt, "
            "cbrt, square, abs, sign, floor, ceil, rint, tanh, sin, cos, arctan, arcsinh, radians and degrees have."
        ) from error
    return write.cast(found.value, DOUBLE) if found.truths else found.value

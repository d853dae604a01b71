"""What the columns of a graph's tensors are in its source: functions of single columns of its inputs, or not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.patches import replaced
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.traced_functions import functions_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMULAS = ("PowerTransformer", "QuantileTransformer")
SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
# Steps that a file computes with the very numbers of their source, though not of each column by itself.
_SAME = (
    *("OneHotEncoder", "OrdinalEncoder", "KBinsDiscretizer", "Binarizer", "PolynomialFeatures", "Normalizer"),
    *("MissingIndicator", "FunctionTransformer", "SimpleImputer", "SplineTransformer", *SCALERS),
    *("CountVectorizer", "TfidfTransformer", "TfidfVectorizer"),
)
# Functions that rise everywhere, and those that are computed by the very operations that NumPy has.
_RISING = (np.exp, np.expm1, np.exp2, np.cbrt, np.arctan, np.arcsinh, np.tanh, np.radians, np.degrees)
_SAME_FUNCTIONS = {
    *("absolute", "negative", "sign", "floor", "ceil", "rint", "square", "sqrt", "reciprocal", "add", "subtract"),
    *("multiply", "divide", "maximum", "minimum", "clip", "less", "less_equal", "greater", "greater_equal", "equal"),
    *("logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "invert", "isnan", "isinf", "signbit"),
    *("remainder", "sin", "cos"),
}
# Of these, those that it computes with other numbers than a source in float32.
_SAME_IN_DOUBLES = ("FunctionTransformer", "Normalizer")
_FORMULA_ERROR = 32.0  # of formulas whose results are about one
_OTHER_ERROR = 2.0**12  # of other operations than the source's
_LARGEST_SINGLE = float(np.finfo(np.float32).max)
_SINGLE_ERROR = 2.0**30  # of a source that computes in float32: a few of its roundings


@dataclass(frozen=True)
class TracedOperation:
    """What skl2onnx made nodes of.

    Attributes:
        step: the fitted estimator; None of an operation of skl2onnx's own.
        kind: its name there: "SklearnConcat".
        inputs: names of tensors.
        places: the columns that it takes, of one that takes columns.
        width: how many columns it gives; 0 where that is not known.
    """

    step: Estimator | None
    kind: str
    inputs: tuple[str, ...]
    places: tuple[int, ...]
    width: int


# What is known of each column of a tensor [rows, columns]; one record a column.
_COLUMN = np.dtype([
    # Where its number comes from unchanged or by a rising function, or where it is first computed otherwise.
    ("tensor", object),
    ("place", np.int64),
    ("raw", bool),  # by a rising function of a graph input's column
    # How far the function's last digits may fall where it should rise, or the file's numbers be from the source's;
    # of its value and besides, in units of the spacing at one.
    ("relative", np.float64),
    ("absolute", np.float64),
    # A sum over columns in another order than the source's, which is as far off as the largest of these sums is large.
    ("summed", bool),
])  # fmt: skip


def _fresh(tensor: str, width: int, *, raw: bool, relative: float = 0.0, summed: bool = False) -> NDArray[np.void]:
    found = np.zeros(width, _COLUMN)
    found["tensor"], found["place"] = tensor, np.arange(width)
    found["raw"], found["relative"], found["summed"] = raw, relative, summed
    return found


def _is_exact(columns: NDArray[np.void]) -> bool:
    """Whether all are what the source computes, to the last digit, and rise."""
    return not any(columns[field].any() for field in ("relative", "absolute", "summed"))


class SourceColumns:
    """Tensors of a graph as functions of its inputs, computed by the source's own steps.

    Attributes:
        widths: how many columns each graph input has.
        singles: graph inputs that the source is given in float32, and computes in that.
    """

    def __init__(self, singles: Collection[str] = ()) -> None:
        self.widths: dict[str, int] = {}
        self.singles = frozenset(singles)
        self._operations: dict[str, TracedOperation] = {}
        self._known: dict[str, NDArray[np.void] | None] = {}
        self._doubles: set[str] = set()
        self._tables: dict[tuple[str, ...], str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, what skl2onnx converts becomes known, before it is converted."""
        topology = import_module("skl2onnx.common._topology").Topology
        plain = topology.call_converter

        def call_converter(topology: Any, operator: Any, *more: Any, **options: Any) -> Any:
            inputs = topology.scopes[0].input_variables
            self.widths.update((v.full_name, _width(v)) for v in inputs if _width(v))
            self._doubles.update(v.full_name for v in inputs if type(v.type).__name__ == "DoubleTensorType")
            self._operations[operator.outputs[0].full_name] = TracedOperation(
                operator.raw_operator,
                operator.type,
                tuple(i.full_name for i in operator.inputs),
                tuple(getattr(operator, "column_indices", ()) or ()),
                _width(operator.outputs[0]),
            )
            return plain(topology, operator, *more, **options)

        before = watched_columns.set(self)
        try:
            with replaced(topology, "call_converter", call_converter):
                yield
        finally:
            watched_columns.reset(before)

    def __contains__(self, name: str) -> bool:
        return name in self.widths or name in self._operations

    def table(self, parts: tuple[str, ...], container: Any, add_node: Callable[..., Any]) -> str:
        """One matrix of doubles of tensors, side by side: its name."""
        if parts not in self._tables:
            names = [part if part in self._doubles else f"{part}_compared" for part in parts]
            for part, name in zip(parts, names, strict=True):
                if part != name and (part,) not in self._tables:
                    add_node(container, "Cast", [part], [name], op_version=13, to=TensorProto.DOUBLE)
                    self._tables[part,] = name
            joined = f"compared_{len(self._tables)}"
            if len(names) > 1:
                add_node(container, "Concat", names, [joined], op_version=13, axis=1)
            self._tables[parts] = joined if len(names) > 1 else names[0]
        return self._tables[parts]

    def width(self, name: str) -> int:
        """How many columns a tensor has; 0 where that is not known."""
        columns = self.of(name)
        return 0 if columns is None else len(columns)

    def of(self, name: str) -> NDArray[np.void] | None:
        """None where not even the number of columns is known."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> NDArray[np.void] | None:
        if name in self.widths:
            return _fresh(name, self.widths[name], raw=True)
        made = self._operations[name]
        given = [self.of(i) for i in made.inputs if i in self]
        known = [g for g in given if g is not None]
        before = np.concatenate(known) if known and len(known) == len(given) else None
        if before is not None and len(given) == len(made.inputs):
            if made.kind == "SklearnConcat":
                return before
            if made.kind == "SklearnArrayFeatureExtractor":
                return before[list(made.places)]
            places = None if made.step is None else _places(made.step)
            further = made.width - len(places) if places is not None and _indicates(made.step) else 0
            if places is not None and further >= 0 and self._is_known(name, len(places) + further):
                changed = self._changed(name, made.step, before, places)
                told = _fresh(name, len(places) + further, raw=False)[len(places) :]
                return np.concatenate([changed, told])
        if not made.width:
            return None
        other = getattr(made.step, "sublinear_tf", False) or rounds_otherwise(made.step)
        kind = type(made.step).__name__
        if kind in _SAME and not other and (before is None or _is_exact(before)):
            return _fresh(name, made.width, raw=False, relative=self._error(0.0) if kind in _SAME_IN_DOUBLES else 0.0)
        summed = before is not None and bool(before["summed"].any())
        summed |= hasattr(made.step, "components_") or hasattr(made.step, "scalings_")
        return _fresh(name, made.width, raw=False, relative=self._error(_OTHER_ERROR), summed=summed)

    def is_single(self, name: str) -> bool:
        """Whether the source has a tensor in float32."""
        if name in self.widths:
            return name in self.singles
        made = self._operations.get(name)
        if made is None or not all(self.is_single(i) for i in made.inputs):
            return False
        if made.step is None:
            return True
        try:
            rows = np.zeros((1, made.step.n_features_in_), np.float32)
            return bool(_transformed(made.step, rows).dtype == np.float32)
        except Exception:  # it may forbid such rows
            return False

    def _error(self, units: float) -> float:
        """How far the file's numbers, computed in float64, may be from the source's, in units of float64's spacing."""
        return max(units, _SINGLE_ERROR) if self.singles else units

    def _is_known(self, name: str, width: int) -> bool:
        """Whether the source computes a tensor of this many columns of rows of zeros."""
        try:
            rows = {n: np.zeros((1, w)) for n, w in self.widths.items()}
            return bool(self.values(name, rows).shape[1] == width)
        except Exception:  # it may forbid such rows
            return False

    def _changed(self, name: str, step: Any, before: NDArray[np.void], places: NDArray[np.int64]) -> NDArray[np.void]:
        found = before[places]
        relative, absolute = found["relative"], found["absolute"]
        kind = type(step).__name__
        if kind in SCALERS:
            zero, one = np.asarray(_transformed(step, np.array([[0.0], [1.0]]) @ np.ones((1, len(places)))))
            noisy = relative + absolute > 0
            absolute = np.where(noisy, absolute * np.abs(one - zero) + (relative + 2) * np.abs(zero), 0)
            relative = np.where(noisy, relative + 4, 0)
        elif rounds_otherwise(step):
            relative = absolute = np.full(len(places), self._error(_FORMULA_ERROR))
            scaler = getattr(step, "_scaler", None) if kind == "PowerTransformer" and step.standardize else None
            if scaler is not None:
                absolute = absolute * (1 + np.abs(scaler.mean_)) / scaler.scale_
        made = ~found["raw"]
        found["tensor"][made], found["place"][made] = name, np.flatnonzero(made)
        found["relative"], found["absolute"] = relative, absolute
        return found

    def values(self, name: str, inputs: Mapping[str, NDArray[np.float64]]) -> NDArray[Any]:
        """What the source makes of rows, floats [rows, columns]; zeros of what is not a function of single columns."""
        if name in self.singles:
            return np.clip(inputs[name], -_LARGEST_SINGLE, _LARGEST_SINGLE).astype(np.float32)
        if name in self.widths:
            return inputs[name]
        made = self._operations[name]
        if made.kind in ("SklearnConcat", "SklearnArrayFeatureExtractor") or _places(made.step) is not None:
            given = np.hstack([self.values(i, inputs) for i in made.inputs])
            if made.kind == "SklearnConcat":
                return given
            return given[:, list(made.places)] if made.step is None else _transformed(made.step, given)
        return np.zeros((len(next(iter(inputs.values()))), made.width))


def rounds_otherwise(step: Any) -> bool:
    """Whether a file computes a step by another formula than its source does, so that last digits differ."""
    kind, function = type(step).__name__, getattr(step, "func", None)
    if kind != "FunctionTransformer" or function is None or getattr(function, "__module__", "").startswith("onnxtool."):
        return kind in FORMULAS
    used = functions_of(step)
    return used is None or not used <= _SAME_FUNCTIONS


# Of the graph that skl2onnx is making, where it is watched.
watched_columns: ContextVar[SourceColumns | None] = ContextVar("watched_columns", default=None)


def reads_exact_numbers(write: NodeWriter) -> bool:
    """Whether what is read has the very numbers of the source, to the last digit."""
    source = watched_columns.get()
    if source is None:
        return False
    found = [source.of(i.full_name) if i.full_name in source else None for i in write.inputs]
    return all(columns is not None and _is_exact(columns) for columns in found)


def computes_in_float32(write: NodeWriter) -> bool:
    """Whether the source gives what is written in float32."""
    source = watched_columns.get()
    return source is not None and source.is_single(write.outputs[0].full_name)


def _width(variable: Any) -> int:
    """How many columns a variable of skl2onnx's has; 0 where that is not known."""
    shape = list(getattr(variable.type, "shape", None) or ())
    return shape[1] if len(shape) == 2 and isinstance(shape[1], int) else 0


def _transformed(step: Any, rows: NDArray[Any]) -> NDArray[Any]:
    from sklearn import config_context

    with config_context(assume_finite=True), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = np.asarray(step.transform(rows))
        return found if found.dtype == np.float32 else found.astype(np.float64)


def _indicates(step: Any) -> bool:
    return type(step).__name__ == "SimpleImputer" and bool(step.add_indicator)


def _places(step: Any) -> NDArray[np.int64] | None:
    """Of each column that a step gives, which one it is a rising function of; None of other steps.

    Columns of an imputer that tell where gaps were come after these (`_indicates`).
    """
    kind = type(step).__name__
    if not type(step).__module__.startswith("sklearn."):
        return None
    if kind in SCALERS:
        scale = getattr(step, "scale_", None)
        rising = scale is None or bool((np.asarray(scale) > 0).all() and np.isfinite(scale).all())
        return np.arange(step.n_features_in_) if rising else None
    if kind == "SimpleImputer":
        gap = step.missing_values
        if np.asarray(step.statistics_).dtype.kind != "f" or not isinstance(gap, float) or gap == gap:
            return None
        return np.flatnonzero(~np.isnan(step.statistics_))
    if kind == "KBinsDiscretizer":
        return np.arange(step.n_features_in_) if step.encode == "ordinal" else None
    if kind in (*FORMULAS, "Binarizer") or (kind == "FunctionTransformer" and step.func in (None, *_RISING)):
        return np.arange(step.n_features_in_)
    return np.flatnonzero(step.get_support()) if hasattr(step, "get_support") else None

"""Trees that compare the source's own columns: steps before them that change each column by itself are left out.

Such a step's function of a column rises. What a tree decides behind it, it decides in front of it by another threshold:
the largest number of the column that the source's own code takes to the threshold's side, found by bisection over all
doubles. Rounding is in that function, so that the trees decide as the source does for every number. Where the function
is a formula whose last digits may fall as well as rise (logarithms, quantiles), and where a step mixes columns, so that
the file adds in another order than the source, a number at the threshold itself goes where the source takes it: the
threshold is moved by the rounding error to the side that holds it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.patches import replaced
from onnxtool.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
_INCLUSIVE, _STRICT = ("BRANCH_LEQ", "BRANCH_GT"), ("BRANCH_LT", "BRANCH_GTE")
_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
_FORMULAS = ("PowerTransformer", "QuantileTransformer")
# Steps that a file computes with the very numbers of their source, though not of each column by itself.
_SAME = (
    *("OneHotEncoder", "OrdinalEncoder", "KBinsDiscretizer", "Binarizer", "PolynomialFeatures", "Normalizer"),
    *("MissingIndicator", "FunctionTransformer", "SimpleImputer", *_SCALERS),
)
_EPSILON = float(np.finfo(np.float64).eps)
_FORMULA_ERROR = 32.0  # of formulas whose results are about one
_OTHER_ERROR = 2.0**12  # of other operations than the source's
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Operation:
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


@dataclass(frozen=True)
class Columns:
    """What is known of a tensor [rows, columns].

    Attributes:
        tensors, places: of each column: where its number comes from unchanged or by a rising function, or where it is
            first computed otherwise.
        raw: bool[columns]: by a rising function of a graph input's column.
        relative, absolute: float[columns]: how far the last digits of that function may fall where it should rise, or
            the file's numbers be from the source's; of its value and besides, in units of the spacing at one.
        summed: bool[columns]: sums over columns in another order than the source's, which are as far off as the largest
            of them is large.
    """

    tensors: tuple[str, ...]
    places: NDArray[np.int64]
    raw: NDArray[np.bool_]
    relative: NDArray[np.float64]
    absolute: NDArray[np.float64]
    summed: NDArray[np.bool_]

    @property
    def is_exact(self) -> bool:
        """Whether all are what the source computes, to the last digit, and rise."""
        return not (self.relative.any() or self.absolute.any() or self.summed.any())

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> Columns:
        """Some of the columns."""
        chosen = np.asarray(places, np.int64)
        tensors = tuple(self.tensors[i] for i in chosen)
        return Columns(
            tensors, *(f[chosen] for f in (self.places, self.raw, self.relative, self.absolute, self.summed))
        )


def _fresh(tensor: str, width: int, *, raw: bool, relative: float = 0.0, summed: bool = False) -> Columns:
    far, nothing = np.full(width, relative), np.zeros(width)
    return Columns((tensor,) * width, np.arange(width), np.full(width, raw), far, nothing, np.full(width, summed))


def _joined(parts: Sequence[Columns]) -> Columns:
    tensors = tuple(name for part in parts for name in part.tensors)
    each = ((p.places, p.raw, p.relative, p.absolute, p.summed) for p in parts)
    fields = [np.concatenate(f) for f in zip(*each, strict=True)]
    return Columns(tensors, *fields)


class SourceColumns:
    """Tensors of a graph as functions of its inputs, computed by the source's own steps.

    Attributes:
        widths: how many columns each graph input has.
    """

    def __init__(self) -> None:
        self.widths: dict[str, int] = {}
        self._operations: dict[str, Operation] = {}
        self._known: dict[str, Columns | None] = {}
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
            self._operations[operator.outputs[0].full_name] = Operation(
                operator.raw_operator,
                operator.type,
                tuple(i.full_name for i in operator.inputs),
                tuple(getattr(operator, "column_indices", ()) or ()),
                _width(operator.outputs[0]),
            )
            return plain(topology, operator, *more, **options)

        with replaced(topology, "call_converter", call_converter):
            yield

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
        return 0 if columns is None else len(columns.tensors)

    def of(self, name: str) -> Columns | None:
        """None where not even the number of columns is known."""
        if name not in self._known:
            self._known[name] = self._found(name)
        return self._known[name]

    def _found(self, name: str) -> Columns | None:
        if name in self.widths:
            return _fresh(name, self.widths[name], raw=True)
        made = self._operations[name]
        given = [self.of(i) for i in made.inputs if i in self]
        before = _joined([g for g in given if g is not None]) if given and None not in given else None
        if before is not None and len(given) == len(made.inputs):
            if made.kind == "SklearnConcat":
                return before
            if made.kind == "SklearnArrayFeatureExtractor":
                return before.take(made.places)
            places = None if made.step is None else _places(made.step)
            if places is not None and self._is_known(name, len(places)):
                return self._changed(name, made.step, before, places)
        if not made.width:
            return None
        kind = type(made.step).__name__
        if kind in _SAME and (before is None or before.is_exact):
            return _fresh(name, made.width, raw=False)
        summed = before is not None and bool(before.summed.any())
        summed |= hasattr(made.step, "components_") or hasattr(made.step, "scalings_")
        return _fresh(name, made.width, raw=False, relative=_OTHER_ERROR, summed=summed)

    def _is_known(self, name: str, width: int) -> bool:
        """Whether the source computes a tensor of this many columns of rows of zeros."""
        try:
            rows = {n: np.zeros((1, w)) for n, w in self.widths.items()}
            return bool(self.values(name, rows).shape[1] == width)
        except Exception:  # it may forbid such rows
            return False

    def _changed(self, name: str, step: Any, before: Columns, places: NDArray[np.int64]) -> Columns:
        taken = before.take(places)
        relative, absolute = taken.relative, taken.absolute
        kind = type(step).__name__
        if kind in _SCALERS:
            zero, one = np.asarray(_transformed(step, np.array([[0.0], [1.0]]) @ np.ones((1, len(places)))))
            noisy = relative + absolute > 0
            absolute = np.where(noisy, absolute * np.abs(one - zero) + (relative + 2) * np.abs(zero), 0)
            relative = np.where(noisy, relative + 4, 0)
        elif kind in _FORMULAS:
            relative = absolute = np.full(len(places), _FORMULA_ERROR)
            scaler = getattr(step, "_scaler", None) if kind == "PowerTransformer" and step.standardize else None
            if scaler is not None:
                absolute = absolute * (1 + np.abs(scaler.mean_)) / scaler.scale_
        tensors = tuple(t if raw else name for t, raw in zip(taken.tensors, taken.raw, strict=True))
        numbers = np.where(taken.raw, taken.places, np.arange(len(places)))
        return Columns(tensors, numbers, taken.raw, relative, absolute, taken.summed)

    def values(self, name: str, inputs: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """What the source makes of rows, float64 [rows, columns]; zeros of what is not a function of single columns."""
        if name in self.widths:
            return inputs[name]
        made = self._operations[name]
        if made.kind in ("SklearnConcat", "SklearnArrayFeatureExtractor") or _places(made.step) is not None:
            given = np.hstack([self.values(i, inputs) for i in made.inputs])
            if made.kind == "SklearnConcat":
                return given
            return given[:, list(made.places)] if made.step is None else _transformed(made.step, given)
        return np.zeros((len(next(iter(inputs.values()))), made.width))


def _width(variable: Any) -> int:
    """How many columns a variable of skl2onnx's has; 0 where that is not known."""
    shape = list(getattr(variable.type, "shape", None) or ())
    return shape[1] if len(shape) == 2 and isinstance(shape[1], int) else 0


def _transformed(step: Any, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    from sklearn import config_context

    with config_context(assume_finite=True), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return np.asarray(step.transform(rows), np.float64)


def _places(step: Any) -> NDArray[np.int64] | None:
    """Of each column that a step gives, which one it is a rising function of; None of other steps."""
    kind = type(step).__name__
    if not type(step).__module__.startswith("sklearn."):
        return None
    if kind in _SCALERS:
        scale = getattr(step, "scale_", None)
        rising = scale is None or bool((np.asarray(scale) > 0).all() and np.isfinite(scale).all())
        return np.arange(step.n_features_in_) if rising else None
    if kind == "SimpleImputer":
        gap = step.missing_values
        if np.asarray(step.statistics_).dtype.kind != "f" or not isinstance(gap, float) or gap == gap:
            return None
        return None if step.add_indicator else np.flatnonzero(~np.isnan(step.statistics_))
    if kind == "KBinsDiscretizer":
        return np.arange(step.n_features_in_) if step.encode == "ordinal" else None
    if kind in (*_FORMULAS, "Binarizer"):
        return np.arange(step.n_features_in_)
    return np.flatnonzero(step.get_support()) if hasattr(step, "get_support") else None


def compared_in_float32(threshold: float, mode: str) -> float:
    """The number by which doubles fall to the sides to which they fall by a threshold once rounded to float32."""
    if not np.isfinite(threshold) or mode not in (*_INCLUSIVE, *_STRICT):
        return float(threshold)
    inclusive = mode in _INCLUSIVE
    with np.errstate(over="ignore"):
        number = np.float32(threshold)
        if (
            mode == "BRANCH_LEQ" and float(number) > threshold
        ):  # scikit-learn's are doubles, of which all others know none
            number = np.nextafter(number, np.float32(-np.inf))
        beyond = np.nextafter(number, np.float32(np.inf if inclusive else -np.inf))
        middle = (_as_double(number) + _as_double(beyond)) / 2
        stays = np.float32(middle) == number
    return middle if stays else float(np.nextafter(middle, -np.inf if inclusive else np.inf))


def _as_double(number: np.float32) -> float:
    """What lies beyond float32 is rounded as if its numbers went on."""
    return float(number) if np.isfinite(number) else float(np.copysign(2.0**128, number))


@dataclass
class _Thresholds:
    """The nodes of an ensemble that compare: places in its attributes, columns that they read, modes and numbers."""

    places: NDArray[np.int64]
    columns: NDArray[np.int64]
    modes: list[str]
    numbers: NDArray[np.float64]

    @property
    def strict(self) -> NDArray[np.bool_]:
        """Whether a number at the threshold is on the side of those above it."""
        return np.array([m in _STRICT for m in self.modes])


def compare_raw_columns(
    container: Any, add_node: Callable[..., Any], attributes: dict[str, Any], name: str, source: SourceColumns
) -> str:
    """Let an ensemble that skl2onnx is about to add read the graph's inputs where it can.

    Args:
        container: of skl2onnx.
        add_node: its way to add a node.
        attributes: of an ensemble that compares doubles; changed in place.
        name: what it is to read.
        source: the operations that the graph is made of.

    Returns:
        A matrix of doubles for it to read instead.
    """
    read = _read_columns(name, container, source)
    found = None if read is None else _thresholds(attributes, read[1])
    parts: tuple[str, ...] = (name,)
    if read is not None and found is not None:
        columns = source.of(read[0])
        assert columns is not None
        missing = _pull_back(found, read[0], columns, source)
        chosen = columns.take(found.columns)
        parts = tuple(dict.fromkeys(chosen.tensors))
        starts = dict(zip(parts, np.cumsum([0, *(source.width(part) for part in parts)]), strict=False))
        features = np.array([starts[tensor] for tensor in chosen.tensors]) + chosen.places
        _write(attributes, found, features, missing)
    return source.table(parts, container, add_node)


def _read_columns(name: str, container: Any, source: SourceColumns) -> tuple[str, NDArray[np.int64]] | None:
    """The tensor that a value is columns of, and which; None where it is computed inside an operation."""
    makers = {output: node for node in container.nodes for output in node.output}
    constants = {t.name: t for t in container.initializers}
    chosen = None
    while name not in source:
        maker = makers.get(name)
        if maker is None or maker.op_type not in ("Cast", "Identity", "ArrayFeatureExtractor"):
            return None
        if maker.op_type == "ArrayFeatureExtractor":
            if maker.input[1] not in constants:
                return None
            places = numpy_helper.to_array(constants[maker.input[1]]).reshape(-1)
            chosen = places if chosen is None else places[chosen]
        name = maker.input[0]
    width = source.width(name)
    if not width:
        return None
    return name, np.arange(width) if chosen is None else chosen.astype(np.int64)


def _thresholds(attributes: Mapping[str, Any], chosen: NDArray[np.int64]) -> _Thresholds | None:
    """Of an ensemble; None where it compares otherwise."""
    modes = [m if isinstance(m, str) else m.decode() for m in attributes["nodes_modes"]]
    places = np.flatnonzero([m != "LEAF" for m in modes])
    if not len(places) or set(modes) - {*_INCLUSIVE, *_STRICT, "LEAF"}:
        return None
    numbers = numpy_helper.to_array(attributes["nodes_values_as_tensor"])[places]
    columns = chosen[np.asarray(attributes["nodes_featureids"])[places]]
    return _Thresholds(places, columns, [modes[i] for i in places], numbers)


def _write(
    attributes: dict[str, Any], found: _Thresholds, features: NDArray[np.int64], missing: NDArray[np.int64]
) -> None:
    """Put thresholds, features and ways of missing values (-1: as they went) into an ensemble."""
    numbers = numpy_helper.to_array(attributes["nodes_values_as_tensor"]).copy()
    numbers[found.places] = found.numbers
    attributes["nodes_values_as_tensor"] = helper.make_tensor(
        "nodes_values", TensorProto.DOUBLE, [len(numbers)], numbers
    )
    ids, tracks = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    ids[found.places] = features
    tracks[:] = attributes.get("nodes_missing_value_tracks_true") or 0
    tracks[found.places] = np.where(missing < 0, tracks[found.places], missing)
    attributes["nodes_featureids"] = ids.tolist()
    attributes["nodes_missing_value_tracks_true"] = tracks.tolist()


def _pull_back(found: _Thresholds, name: str, columns: Columns, source: SourceColumns) -> NDArray[np.int64]:
    """Put thresholds of the inputs' columns in the place of those behind the steps.

    Returns:
        For each whether a missing value goes the true way; -1 where it goes as it did.
    """
    chosen = columns.take(found.columns)
    size = np.zeros(len(columns.tensors))
    np.maximum.at(size, found.columns, np.where(np.isfinite(found.numbers), np.abs(found.numbers), 0))
    size[~columns.summed] = 0
    margin = chosen.relative * np.maximum(np.abs(found.numbers), size[found.columns]) + chosen.absolute
    moves = (margin > 0) & np.isfinite(found.numbers)
    found.numbers = np.where(
        moves, found.numbers + np.where(found.strict, -1.0, 1.0) * _EPSILON * margin, found.numbers
    )
    missing = np.full(len(found.places), -1)
    inverse = _Inverse(name, columns, source)
    if not inverse.is_identity and chosen.raw.any():
        raw = chosen.raw
        numbers, goes = inverse.of(found.columns[raw], found.numbers[raw], found.strict[raw])
        below = np.array([m in ("BRANCH_LEQ", "BRANCH_LT") for m in found.modes])[raw]
        found.numbers[raw], missing[raw] = numbers, np.where((goes < 0) | below, goes, 1 - goes)
    return missing


class _Inverse:
    """The source's function of the columns, backwards."""

    def __init__(self, name: str, columns: Columns, source: SourceColumns) -> None:
        self._name, self._columns, self._source = name, columns, source

    @property
    def is_identity(self) -> bool:
        """The tensor is a graph input itself."""
        return self._name in self._source.widths

    def of(
        self, columns: NDArray[np.int64], numbers: NDArray[np.float64], strict: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Thresholds of the inputs' columns, and the ways that missing values go (-1: as they did).

        Raises:
            UnsupportedError: the function falls.
        """
        # x < t is x <= the number before t.
        limits = np.where(strict, np.nextafter(numbers, -np.inf), numbers)
        wanted, back = np.unique(np.stack([columns.astype(np.float64), limits]), axis=1, return_inverse=True)
        own, most = wanted[0].astype(np.int64), wanted[1]
        ends = np.full(len(own), _LARGEST)
        below, middle, above = (self._values(own, sign * ends) for sign in (-1, 0, 1))
        if not ((below <= middle) & (middle <= above)).all():
            raise UnsupportedError(f"{self._name}: a step before trees falls where it should rise, which is not known.")
        low = np.where(middle <= most, 0, -_order(ends))
        high = np.where(middle <= most, _order(ends), 0)
        while (high - low > 1).any():
            tried = low + (high - low) // 2
            passed = self._values(own, _number(tried)) <= most
            low, high = np.where(passed, tried, low), np.where(passed, high, tried)
        found = np.where(above <= most, np.inf, np.where(below > most, -np.inf, _number(low)))[back.reshape(-1)]
        gap = self._values(columns, np.full(len(columns), np.nan))
        goes = np.where(np.isnan(gap), -1, gap <= limits)
        return np.where(strict & np.isfinite(found), np.nextafter(found, np.inf), found), goes

    def _values(self, columns: NDArray[np.int64], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each of some columns is where the input's column has a number."""
        order = np.argsort(columns, kind="stable")
        rows = np.empty(len(columns), np.int64)
        rows[order] = np.arange(len(columns)) - np.searchsorted(columns[order], columns[order])
        inputs = {n: np.zeros((int(rows.max()) + 1, w)) for n, w in self._source.widths.items()}
        for name, table in inputs.items():
            mine = np.array([self._columns.tensors[c] == name for c in columns])
            table[rows[mine], self._columns.places[columns[mine]]] = numbers[mine]
        return self._source.values(self._name, inputs)[rows, columns]


def _order(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of doubles, neighbours next to each other."""
    bits = numbers.view(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(np.int64).min) - bits, bits)


def _number(order: NDArray[np.int64]) -> NDArray[np.float64]:
    """The doubles of `_order`."""
    return np.where(order < 0, np.int64(np.iinfo(np.int64).min) - order, order).view(np.float64)

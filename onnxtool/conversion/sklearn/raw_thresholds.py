"""Comparisons of the source's own columns: steps before them that change each column by itself are left out.

Such a step's function of a column rises. What a tree (or a step that bins) decides behind it, it decides in front of it
by another threshold: the largest number of the column that the source's own code takes to the threshold's side, found
by bisection over all doubles. Rounding is in that function, so that the trees decide as the source does for every
number. Where a formula's last digits fall as well as rise next to the threshold (logarithms, quantiles), and where a
step mixes columns, so that the file adds in another order than the source, a number at the threshold itself goes where
the source takes it: the threshold is moved by the rounding error to the side that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from onnxtool.conversion.sklearn.source_columns import SourceColumns
from onnxtool.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
_INCLUSIVE, _STRICT = ("BRANCH_LEQ", "BRANCH_GT"), ("BRANCH_LT", "BRANCH_GTE")
_EPSILON = float(np.finfo(np.float64).eps)
_SPECK = 1e-30
_TRIED = 32  # numbers around a threshold, of each way to choose them
_LARGEST = float(np.finfo(np.float64).max)
_ZERO = np.float64(np.float32(-1e-35))
_ENDLESS = 1e300


def compared_in_float32(threshold: float, mode: str) -> float:
    """The number by which doubles fall to the sides to which they fall by a threshold once rounded to float32."""
    if not np.isfinite(threshold) or mode not in (*_INCLUSIVE, *_STRICT):
        return float(threshold)
    inclusive = mode in _INCLUSIVE
    with np.errstate(over="ignore"):
        number = np.float32(threshold)
        if mode == "BRANCH_LEQ" and float(number) > threshold:  # of scikit-learn: others' thresholds are floats
            number = np.nextafter(number, np.float32(-np.inf))
        beyond = np.nextafter(number, np.float32(np.inf if inclusive else -np.inf))
        middle = (_as_double(number) + _as_double(beyond)) / 2
        stays = np.float32(middle) == number
    return middle if stays else float(np.nextafter(middle, -np.inf if inclusive else np.inf))


def _as_double(number: np.float32) -> float:
    """What lies beyond float32 is rounded as if its numbers went on."""
    return float(number) if np.isfinite(number) else float(np.copysign(1.0, number)) * 2.0**128


def rounded_down(threshold: float) -> float:
    """The largest float32 that is not above a threshold.

    For every x in float32, x <= threshold is x <= the float32 that this gives. A threshold rounded to the nearest
    float32 may lie above it, and then takes in numbers that it should not.
    """
    with np.errstate(over="ignore"):
        nearest = np.float32(threshold)
    if np.isnan(nearest) or float(nearest) <= float(threshold):  # as doubles: numpy would compare in float32
        return float(nearest)
    return float(np.nextafter(nearest, np.float32(-np.inf)))


def of_lightgbm(threshold: float) -> float:
    """LightGBM 4 takes numbers of up to 1e-35 for zero (kZeroThreshold) before it compares them with its thresholds, of
    which -1e-35 is one wherever a feature holds zeros. It parts missing values from all others, infinity among them, by
    an infinite threshold, for which its JSON form has a large number.
    """
    if threshold >= _ENDLESS:
        return float("inf")
    return float(np.nextafter(_ZERO, -np.inf)) if threshold == _ZERO else float(threshold)


@dataclass
class Thresholds:
    """What columns of a matrix are compared with.

    Attributes:
        columns: of each threshold the column.
        modes: as nodes of trees have them: "BRANCH_LEQ".
        numbers: float64.
        goes: whether a missing value passes (1, 0); -1 where the comparison says it.
    """

    columns: NDArray[np.int64]
    modes: Sequence[str]
    numbers: NDArray[np.float64]
    goes: NDArray[np.int64]

    @classmethod
    def of(cls, columns: NDArray[np.int64], modes: Sequence[str], numbers: NDArray[np.float64]) -> Thresholds:
        """Of a matrix as it stands."""
        return cls(columns, modes, numbers, np.full(len(columns), -1))

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
    modes = [m if isinstance(m, str) else m.decode() for m in attributes["nodes_modes"]]
    places = np.flatnonzero([m != "LEAF" for m in modes])
    if not len(places) or set(modes) - {*_INCLUSIVE, *_STRICT, "LEAF"}:
        return source.table((name,), container, add_node)
    numbers = numpy_helper.to_array(attributes["nodes_values_as_tensor"])
    columns = np.asarray(attributes["nodes_featureids"])[places]
    matrix, found = raw_thresholds(
        container, add_node, name, Thresholds.of(columns, [modes[i] for i in places], numbers[places]), source
    )
    _write(attributes, places, numbers, found)
    return matrix


def raw_thresholds(
    container: Any, add_node: Callable[..., Any], name: str, given: Thresholds, source: SourceColumns
) -> tuple[str, Thresholds]:
    """What to compare in the place of a matrix: the graph's inputs where it can be.

    Args:
        container, add_node, source: as of `compare_raw_columns`.
        name: the matrix.
        given: of its columns.

    Returns:
        A matrix of doubles, and the thresholds of its columns.
    """
    read = _read_columns(name, container, source)
    if read is None:
        return source.table((name,), container, add_node), given
    columns = source.of(read[0])
    assert columns is not None
    found = _pull_back(replace(given, columns=read[1][given.columns]), read[0], columns, source)
    chosen = columns[found.columns]
    parts = tuple(dict.fromkeys(chosen["tensor"]))
    starts = dict(zip(parts, np.cumsum([0, *(source.width(part) for part in parts)]), strict=False))
    features = np.array([starts[tensor] for tensor in chosen["tensor"]]) + chosen["place"]
    return source.table(parts, container, add_node), replace(found, columns=features)


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


def _write(
    attributes: dict[str, Any], places: NDArray[np.int64], before: NDArray[np.float64], found: Thresholds
) -> None:
    """Put thresholds, features and ways of missing values into an ensemble, at some of its nodes."""
    numbers = before.copy()
    numbers[places] = found.numbers
    attributes["nodes_values_as_tensor"] = helper.make_tensor(
        "nodes_values", TensorProto.DOUBLE, [len(numbers)], numbers
    )
    ids, tracks = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    ids[places] = found.columns
    tracks[:] = attributes.get("nodes_missing_value_tracks_true") or 0
    tracks[places] = np.where(found.goes < 0, tracks[places], found.goes)
    attributes["nodes_featureids"] = ids.tolist()
    attributes["nodes_missing_value_tracks_true"] = tracks.tolist()


def _pull_back(found: Thresholds, name: str, columns: NDArray[np.void], source: SourceColumns) -> Thresholds:
    """Thresholds of the inputs' columns in the place of those behind the steps; `columns` stay those of the tensor."""
    chosen = columns[found.columns]
    size = np.zeros(len(columns))
    np.maximum.at(size, found.columns, np.where(np.isfinite(found.numbers), np.abs(found.numbers), 0))
    size[~columns["summed"]] = 0
    margin = chosen["relative"] * np.maximum(np.abs(found.numbers), size[found.columns]) + chosen["absolute"]
    # LightGBM parts zero from all other numbers, of which a function of a column has some next to it.
    raw = chosen["raw"]
    zero = raw & (np.abs(found.numbers) < _SPECK)
    moves = (margin > 0) & np.isfinite(found.numbers) & ~zero
    shift = np.where(moves, np.where(found.strict, -1.0, 1.0) * _EPSILON * margin, 0.0)
    numbers = found.numbers + shift
    missing = np.full(len(numbers), -1)
    inverse = _Inverse(name, columns, source)
    if not inverse.is_identity and raw.any():
        numbers[raw], goes = inverse.of(found.columns[raw], found.numbers[raw], shift[raw], found.strict[raw])
        below = np.array([m in ("BRANCH_LEQ", "BRANCH_LT") for m in found.modes])[raw]
        missing[raw] = np.where((goes < 0) | below, goes, 1 - goes)
    return replace(found, numbers=numbers, goes=missing)


class _Inverse:
    """The source's function of the columns, backwards."""

    def __init__(self, name: str, columns: NDArray[np.void], source: SourceColumns) -> None:
        self._name, self._columns, self._source = name, columns, source
        # Several columns may be functions of one column of an input: each number has a row of its own there.
        known: dict[tuple[str, int], int] = {}
        pairs = columns[["tensor", "place"]].tolist()
        self._given = np.array([known.setdefault(pair, len(known)) for pair in pairs])

    @property
    def is_identity(self) -> bool:
        """The tensor is a graph input itself."""
        return self._name in self._source.widths

    def of(
        self,
        columns: NDArray[np.int64],
        numbers: NDArray[np.float64],
        shift: NDArray[np.float64],
        strict: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Thresholds of the inputs' columns, and the ways that missing values go (-1: as they did).

        Args:
            columns, numbers, strict: the thresholds behind the function.
            shift: by how much the function's last digits may fall there, towards the side that holds the threshold.

        Raises:
            UnsupportedError: the function falls.
        """
        # x < t is x <= the number before t.
        limits = np.where(strict, np.nextafter(numbers, -np.inf), numbers)
        wanted, back = np.unique(np.stack([columns.astype(np.float64), limits, shift]), axis=1, return_inverse=True)
        own, most, far = wanted[0].astype(np.int64), wanted[1], wanted[2]
        found = self._last(own, most)
        noisy = (far != 0) & np.isfinite(found)
        if noisy.any():
            found[noisy] = self._settled(own[noisy], most[noisy], far[noisy], found[noisy])
        found = found[back.reshape(-1)]
        gap = self._values(columns, np.full(len(columns), np.nan))
        goes = np.where(np.isnan(gap), -1, gap <= limits)
        return np.where(strict & np.isfinite(found), np.nextafter(found, np.inf), found), goes

    def _last(self, own: NDArray[np.int64], most: NDArray[np.float64]) -> NDArray[np.float64]:
        """The largest number of each column that the function takes to a limit at most; infinite for all and none."""
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
        return np.where(above <= most, np.inf, np.where(below > most, -np.inf, _number(low)))

    def _settled(
        self, own: NDArray[np.int64], most: NDArray[np.float64], far: NDArray[np.float64], found: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The numbers found, where the function rises between all numbers tried around them; others moved."""
        moved, other = self._last(own, most + far), self._last(own, most - far)
        start, stop = (np.clip(x, -_LARGEST, _LARGEST) for x in (np.fmin(moved, other), np.fmax(moved, other)))
        shares = np.linspace(0.0, 1.0, _TRIED)[:, None]
        near = _number(_order(found) + np.arange(-_TRIED // 4, _TRIED // 4)[:, None])
        # In steps of equal size, and of equally many numbers.
        even = start * (1 - shares) + stop * shares
        spread = (_order(start) * (1 - shares) + _order(stop) * shares).astype(np.int64)
        tried = np.concatenate([near, even, _number(spread)])
        values = self._values(np.tile(own, len(tried)), tried.reshape(-1)).reshape(tried.shape)
        rises = ((values <= most) == (tried <= found)).all(axis=0)
        return np.where(rises, found, moved)

    def _values(self, columns: NDArray[np.int64], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each of some columns is where the input's column has a number."""
        tensors, places = self._columns["tensor"][columns], self._columns["place"][columns]
        given = self._given[columns]
        order = np.argsort(given, kind="stable")
        rows = np.empty(len(given), np.int64)
        rows[order] = np.arange(len(given)) - np.searchsorted(given[order], given[order])
        inputs = {n: np.zeros((int(rows.max()) + 1, w)) for n, w in self._source.widths.items()}
        for name, table in inputs.items():
            mine = tensors == name
            table[rows[mine], places[mine]] = numbers[mine]
        return self._source.values(self._name, inputs)[rows, columns]


def _order(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of doubles, neighbours next to each other."""
    bits = numbers.view(np.int64)
    return np.where(bits < 0, np.int64(np.iinfo(np.int64).min) - bits, bits)


def _number(order: NDArray[np.int64]) -> NDArray[np.float64]:
    """The doubles of `_order`."""
    return np.where(order < 0, np.int64(np.iinfo(np.int64).min) - order, order).view(np.float64)

"""Imputers of numbers: MissingIndicator, SimpleImputer, KNNImputer without a loop, and IterativeImputer.

Source: scikit-learn, `sklearn.impute`, and for KNNImputer `sklearn.metrics.pairwise.nan_euclidean_distances`: distances
over the features that both rows have, scaled to all of them; the mean of the nearest rows that have the feature, or the
feature's own mean where no row shares anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.distances import inverse_distances
from onnxtool.conversion.sklearn.converters.members import predicted
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type, transformer
from onnxtool.errors import UnsupportedError

_FAR = 1e300  # of rows that share no feature


def _gaps(write: NodeWriter, value: str, gap: Any) -> str:
    """Where numbers are missing."""
    return write.add("IsNaN", value) if np.isnan(gap) else write.add("Equal", value, float(gap))


def _indicated(write: NodeWriter, indicator: Estimator, value: str) -> str:
    """[rows, indicated features]: 1 where something is missing, in doubles.

    Args:
        write: adds nodes.
        indicator: a fitted MissingIndicator.
        value: [rows, features], doubles.
    """
    gap = indicator.missing_values
    if not isinstance(gap, (int, float, np.number)):
        raise UnsupportedError("MissingIndicator: what is missing in texts has no ONNX form here, only in numbers.")
    chosen = write.add("Gather", value, np.asarray(indicator.features_, np.int64), axis=1)
    return write.cast(_gaps(write, chosen, gap), DOUBLE)


def _kept(imputer: Estimator) -> list[int]:
    """The columns that are given: one that was empty at the fit is dropped, unless it is to be kept."""
    statistics = np.asarray(imputer.statistics_)
    number = statistics.dtype.kind == "f" and not imputer.keep_empty_features
    return [c for c in range(len(statistics)) if not (number and np.isnan(statistics[c]))]


def _width(kept: Callable[[Any], list[int]]) -> Callable[[Any], int]:
    return lambda imputer: len(kept(imputer)) + (len(imputer.indicator_.features_) if imputer.add_indicator else 0)


def _give(write: NodeWriter, columns: list[str], value: str) -> None:
    """What was filled, and columns that tell where the gaps of a value were."""
    imputer = write.step
    write.give(
        write.columns([*columns, _indicated(write, imputer.indicator_, value)] if imputer.add_indicator else columns)
    )


def _imputed_shapes(operator: Any, known: Callable[[Any], None]) -> None:
    """Of its inputs' type, which skl2onnx guesses before the steps ahead have theirs."""
    operator.outputs[0].type = type(operator.inputs[0].type)([None, None])
    known(operator)


def _convert_imputer(write: NodeWriter, original: Callable[[], None]) -> None:
    """Numbers in the place of gaps, and columns that tell where the gaps were, in doubles."""
    imputer = write.step
    numbers = np.asarray(imputer.statistics_).dtype.kind in "fiu"
    if not (numbers and write.takes_numbers and isinstance(imputer.missing_values, (int, float))):
        original()
        return
    value, kept = write.joined(), _kept(imputer)
    missing = _gaps(write, value, imputer.missing_values)
    result = write.add("Where", missing, np.asarray(imputer.statistics_, np.float64).reshape(1, -1), value)
    if len(kept) < len(imputer.statistics_):
        result = write.add("Gather", result, np.array(kept), axis=1)
    _give(write, [result], value)


def _columns(imputer: Estimator) -> list[int]:
    """The columns that it gives: one that was empty when it was fitted is dropped, unless it is to be kept."""
    valid = np.asarray(imputer._valid_mask)
    return [c for c in range(len(valid)) if valid[c] or imputer.keep_empty_features]


def _convert_nearest(write: NodeWriter) -> None:
    imputer = write.step
    if imputer.metric != "nan_euclidean" or imputer.weights not in ("uniform", "distance"):
        raise UnsupportedError("KNNImputer: a metric or weights of its own have no ONNX form.")
    x = write.cast(write.inputs[0].full_name, DOUBLE)
    known = np.asarray(imputer._fit_X, dtype=np.float64)
    there = ~np.asarray(imputer._mask_fit_X)
    missing = _gaps(write, x, imputer.missing_values)
    distances = _distances(write, x, missing, np.where(there, known, 0.0), there)
    columns = []
    for column in _columns(imputer):
        place = np.array([column])
        if not there[:, column].any():
            columns.append(write.add("Mul", write.add("Gather", distances, place, axis=1), 0.0))
            continue
        gaps = write.add("NonZero", write.add("Gather", missing, np.array(column), axis=1))
        rows = write.add("Squeeze", gaps, np.array([0]))  # of the others no neighbours are sought
        mean = _mean(write, imputer, write.add("Gather", distances, rows, axis=0), known[:, column], there[:, column])
        own = write.add("Gather", x, place, axis=1)
        columns.append(write.add("ScatterND", own, write.add("Unsqueeze", rows, np.array([1])), mean))
    _give(write, columns, x)


def _distances(write: NodeWriter, x: str, missing: str, known: np.ndarray, there: np.ndarray) -> str:
    """[rows, fitted rows]: squared distances over shared features, scaled to all; `_FAR` where none is shared.

    Args:
        write: adds nodes.
        x: rows, in double.
        missing: what is missing of them.
        known: fitted rows, zero where something is missing.
        there: what is not missing of them.
    """
    own = write.add("Where", missing, 0.0, 1.0)
    filled = write.add("Where", missing, 0.0, x)
    squares = write.add("MatMul", write.add("Mul", filled, filled), there.T.astype(np.float64))
    products = write.add("MatMul", filled, -2.0 * known.T)
    theirs = write.add("MatMul", own, (known**2).T)
    shared = write.add("MatMul", own, there.T.astype(np.float64))
    total = write.add("Max", write.add("Add", write.add("Add", squares, products), theirs), 0.0)
    scaled = write.add("Mul", write.add("Div", total, write.add("Max", shared, 1.0)), float(known.shape[1]))
    return write.add("Where", write.add("Less", shared, 1.0), _FAR, scaled)


def _mean(write: NodeWriter, imputer: Estimator, distances: str, values: np.ndarray, there: np.ndarray) -> str:
    """[rows, 1]: what stands for a missing value of one feature."""
    donors = np.flatnonzero(there)
    near = write.add("Gather", distances, donors, axis=1)
    nearest, places = write.smallest(near, min(imputer.n_neighbors, len(donors)))
    given = write.add("Gather", values[donors], places, axis=0)
    weights = write.add("Where", write.add("Less", nearest, _FAR / 2), 1.0, 0.0)
    axis = np.array([1])
    if imputer.weights == "distance":
        weights = write.add("Mul", weights, inverse_distances(write, write.add("Sqrt", nearest)))
    total = write.add("ReduceSum", weights, axis, keepdims=1)
    summed = write.add("ReduceSum", write.add("Mul", weights, given), axis, keepdims=1)
    nobody = write.add("Equal", total, 0.0)
    mean = write.add("Div", summed, write.add("Where", nobody, 1.0, total))
    return write.add("Where", nobody, float(values[donors].mean()), mean)


def _kept_by_rounds(imputer: Estimator) -> list[int]:
    return _kept(imputer.initial_imputer_)


def _convert_rounds(write: NodeWriter) -> None:
    """Each feature's gaps are predicted by the others', round by round, from what a SimpleImputer filled in."""
    imputer, x = write.step, write.joined()
    first = imputer.initial_imputer_
    if imputer.sample_posterior:
        raise UnsupportedError("IterativeImputer: sample_posterior=True draws at random, which has no ONNX form.")
    statistics = np.nan_to_num(np.asarray(first.statistics_, np.float64))
    missing = _gaps(write, x, imputer.missing_values)
    filled = write.add("Where", missing, statistics[None], x)
    kept = _kept_by_rounds(imputer)
    if len(kept) < len(statistics):
        missing, filled = (write.add("Gather", value, np.array(kept), axis=1) for value in (missing, filled))
    # Of a feature that was empty at the fit and is kept, scikit-learn gives the first filling.
    missing = write.add("And", missing, ~np.asarray(imputer._is_empty_feature)[kept][None])
    begun, lowest, highest = filled, *np.broadcast_arrays(imputer._min_value, imputer._max_value)
    for feature, others, estimator in imputer.imputation_sequence_:
        seen = write.variable("seen", number_type(write.inputs[0].type)([None, len(others)]))
        write.give(write.add("Gather", filled, np.asarray(others, np.int64), axis=1), seen)
        seen.init_status(is_fed=True)
        guess = predicted(write, estimator, [seen])
        guess = write.add("Min", write.add("Max", guess, float(lowest[feature])), float(highest[feature]))
        own = write.add("And", missing, (np.arange(len(kept)) == feature)[None])
        filled = write.add("Where", own, guess, filled)
    # Where nothing at all is known, in no row, scikit-learn stops before the first round.
    known = write.add("ReduceSum", write.add("Where", missing, 0.0, 1.0), keepdims=1)
    _give(write, [write.add("Where", write.add("Equal", known, 0.0), begun, filled)], x)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 has no converter for MissingIndicator, leaves it out of imputers, keeps columns that they drop, and "
    "writes a loop of branches for neighbours that the runtime refuses at many sizes",
    transformer(
        "sklearn.impute:MissingIndicator",
        lambda write: write.give(_indicated(write, write.step, write.joined())),
        lambda step: len(step.features_),
    ),
    extension("sklearn.impute:SimpleImputer", _convert_imputer, _width(_kept), _imputed_shapes),
    transformer("sklearn.impute:KNNImputer", _convert_nearest, _width(_columns)),
    transformer("sklearn.impute._iterative:IterativeImputer", _convert_rounds, _width(_kept_by_rounds)),
)

"""KNNImputer, without a loop.

Source: scikit-learn, `sklearn.impute.KNNImputer` and `sklearn.metrics.pairwise.nan_euclidean_distances`: distances over
the features that both rows have, scaled to all of them; the mean of the nearest rows that have the feature, or the
feature's own mean where no row shares anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.conversion.sklearn.patches.missing_indicator import indicated
from onnxtool.errors import UnsupportedError

_FAR = 1e300  # of rows that share no feature


def _width(imputer: Estimator) -> int:
    return len(_columns(imputer)) + (len(imputer.indicator_.features_) if imputer.add_indicator else 0)


def _columns(imputer: Estimator) -> list[int]:
    """The columns that it gives: one that was empty when it was fitted is dropped, unless it is to be kept."""
    valid = np.asarray(imputer._valid_mask)
    return [c for c in range(len(valid)) if valid[c] or imputer.keep_empty_features]


def _convert(write: NodeWriter) -> None:
    imputer = write.step
    if imputer.metric != "nan_euclidean" or imputer.weights not in ("uniform", "distance"):
        raise UnsupportedError("KNNImputer: a metric or weights of its own have no ONNX form.")
    x = write.cast(write.inputs[0].full_name, DOUBLE)
    known = np.asarray(imputer._fit_X, dtype=np.float64)
    there = ~np.asarray(imputer._mask_fit_X)
    gap = imputer.missing_values
    missing = write.add("IsNaN", x) if _is_nan(gap) else write.add("Equal", x, float(gap))
    distances = _distances(write, x, missing, np.where(there, known, 0.0), there)
    columns = []
    for column in _columns(imputer):
        place = np.array([column])
        if not there[:, column].any():
            columns.append(write.add("Mul", write.add("Gather", distances, place, axis=1), 0.0))
            continue
        mean = _mean(write, imputer, distances, known[:, column], there[:, column])
        gaps, own = (write.add("Gather", v, place, axis=1) for v in (missing, x))
        columns.append(write.add("Where", gaps, mean, own))
    if imputer.add_indicator:
        columns.append(indicated(write, imputer.indicator_, x))
    write.give(write.columns(columns))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and bool(np.isnan(value))


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
        weights = _by_distance(write, nearest, weights)
    total = write.add("ReduceSum", weights, axis, keepdims=1)
    summed = write.add("ReduceSum", write.add("Mul", weights, given), axis, keepdims=1)
    nobody = write.add("Equal", total, 0.0)
    mean = write.add("Div", summed, write.add("Where", nobody, 1.0, total))
    return write.add("Where", nobody, float(values[donors].mean()), mean)


def _by_distance(write: NodeWriter, nearest: str, counted: str) -> str:
    """One over the distance; where a row is met exactly, only those that meet it count."""
    is_met = write.add("Equal", nearest, 0.0)
    exact = write.add("Where", is_met, 1.0, 0.0)
    met = write.add("Less", 0.0, write.add("ReduceSum", exact, np.array([1]), keepdims=1))
    some = write.add("Where", is_met, 1.0, nearest)
    inverse = write.add("Mul", counted, write.add("Div", 1.0, write.add("Sqrt", some)))
    return write.add("Where", met, exact, inverse)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 writes a loop of branches that the runtime refuses at many sizes",
    transformer("sklearn.impute:KNNImputer", _convert, _width),
)

"""KNNImputer -> ONNX. skl2onnx 1.20 writes a loop of branches that the runtime refuses at many sizes.

Source: scikit-learn, `sklearn.impute.KNNImputer` and `sklearn.metrics.pairwise.nan_euclidean_distances`: distances over
the features that both rows have, scaled to all of them; the mean of the nearest rows that have the feature, or the
feature's own mean where no row shares anything.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.missing_indicator import indicated
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, FLOAT, NodeWriter
from onnxtool.errors import UnsupportedError

_FAR = 1e300  # of rows that share no feature


@cache
def register() -> None:
    """Let skl2onnx convert it by this converter."""
    from skl2onnx import update_registered_converter
    from sklearn.impute import KNNImputer

    update_registered_converter(KNNImputer, "OnnxtoolKNNImputer", _shapes, _convert, overwrite=True)


def _shapes(operator: Any) -> None:
    given = operator.inputs[0].type
    imputer = operator.raw_operator
    width = len(_columns(imputer)) + (len(imputer.indicator_.features_) if imputer.add_indicator else 0)
    operator.outputs[0].type = type(given)([given.shape[0], width])


def _columns(imputer: Any) -> list[int]:
    """The columns that it gives: one that was empty when it was fitted is dropped, unless it is to be kept."""
    valid = np.asarray(imputer._valid_mask)
    return [c for c in range(len(valid)) if valid[c] or imputer.keep_empty_features]


def _convert(scope: Any, operator: Any, container: Any) -> None:
    from skl2onnx.common.data_types import DoubleTensorType

    imputer = operator.raw_operator
    if imputer.metric != "nan_euclidean" or imputer.weights not in ("uniform", "distance"):
        raise UnsupportedError("KNNImputer: a metric or weights of its own have no ONNX form.")
    write = NodeWriter(scope, container, "nearest")
    x = write.cast(operator.inputs[0].full_name, DOUBLE)
    known = np.asarray(imputer._fit_X, dtype=np.float64)
    there = ~np.asarray(imputer._mask_fit_X)
    gap = imputer.missing_values
    missing = write.add("IsNaN", x) if _is_nan(gap) else write.add("Equal", x, write.constant(np.array([float(gap)])))
    distances = _distances(write, x, missing, np.where(there, known, 0.0), there)
    columns = []
    for column in _columns(imputer):
        place = write.constant(np.array([column]))
        if not there[:, column].any():
            columns.append(write.add("Mul", write.add("Gather", distances, place, axis=1), write.constant(np.zeros(1))))
            continue
        mean = _mean(write, imputer, distances, known[:, column], there[:, column])
        gaps, own = (write.add("Gather", v, place, axis=1) for v in (missing, x))
        columns.append(write.add("Where", gaps, mean, own))
    if imputer.add_indicator:
        columns.append(indicated(write, imputer.indicator_, x))
    kind = DOUBLE if isinstance(operator.outputs[0].type, DoubleTensorType) else FLOAT
    write.cast(write.add("Concat", *columns, axis=1), kind, operator.outputs[0].full_name)


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
    zero, one = write.constant(np.zeros(1)), write.constant(np.ones(1))
    own = write.add("Where", missing, zero, one)
    filled = write.add("Where", missing, zero, x)
    squares = write.add("MatMul", write.add("Mul", filled, filled), write.constant(there.T.astype(np.float64)))
    products = write.add("MatMul", filled, write.constant(-2.0 * known.T))
    theirs = write.add("MatMul", own, write.constant((known**2).T))
    shared = write.add("MatMul", own, write.constant(there.T.astype(np.float64)))
    total = write.add("Max", write.add("Add", write.add("Add", squares, products), theirs), zero)
    features = write.constant(np.array([float(known.shape[1])]))
    scaled = write.add("Mul", write.add("Div", total, write.add("Max", shared, one)), features)
    return write.add("Where", write.add("Less", shared, one), write.constant(np.array([_FAR])), scaled)


def _mean(write: NodeWriter, imputer: Any, distances: str, values: np.ndarray, there: np.ndarray) -> str:
    """[rows, 1]: what stands for a missing value of one feature."""
    donors = np.flatnonzero(there)
    count = write.constant(np.array([min(imputer.n_neighbors, len(donors))]))
    near = write.add("Gather", distances, write.constant(donors), axis=1)
    nearest, places = write.smallest(near, count)
    given = write.add("Gather", write.constant(values[donors]), places, axis=0)
    zero, one, far = (write.constant(np.array([v])) for v in (0.0, 1.0, _FAR / 2))
    weights = write.add("Where", write.add("Less", nearest, far), one, zero)
    axis = write.constant(np.array([1]))
    if imputer.weights == "distance":
        weights = _by_distance(write, nearest, weights, axis)
    total = write.add("ReduceSum", weights, axis, keepdims=1)
    summed = write.add("ReduceSum", write.add("Mul", weights, given), axis, keepdims=1)
    nobody = write.add("Equal", total, zero)
    mean = write.add("Div", summed, write.add("Where", nobody, one, total))
    return write.add("Where", nobody, write.constant(np.array([float(values[donors].mean())])), mean)


def _by_distance(write: NodeWriter, nearest: str, counted: str, axis: str) -> str:
    """One over the distance; where a row is met exactly, only those that meet it count."""
    zero, one = write.constant(np.zeros(1)), write.constant(np.ones(1))
    exact = write.add("Where", write.add("Equal", nearest, zero), one, zero)
    met = write.add("Less", zero, write.add("ReduceSum", exact, axis, keepdims=1))
    some = write.add("Where", write.add("Equal", nearest, zero), one, nearest)
    inverse = write.add("Mul", counted, write.add("Div", one, write.add("Sqrt", some)))
    return write.add("Where", met, exact, inverse)

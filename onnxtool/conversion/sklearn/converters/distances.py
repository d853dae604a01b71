"""Distances of rows from fitted rows, in doubles and by differences, so that equal rows are at a distance of zero."""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.sklearn.converters.loop_body import LoopBody
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, NodeWriter
from onnxtool.errors import UnsupportedError

METRICS = ("euclidean", "sqeuclidean", "manhattan", "cityblock", "l1", "l2", "chebyshev", "minkowski", "cosine")


def distances(write: NodeWriter, x: str, fitted: np.ndarray, metric: str, power: float = 2.0) -> str:
    """[rows, fitted rows], in doubles.

    Args:
        write: adds nodes.
        x: [rows, features], doubles.
        fitted: [fitted rows, features].
        metric: as scikit-learn names it.
        power: of "minkowski".

    Raises:
        UnsupportedError: another metric.
    """
    if metric not in METRICS:
        raise UnsupportedError(f"the distance {metric!r} has no ONNX form here; these have: {', '.join(METRICS)}.")
    if metric == "cosine":
        return _cosine(write, x, fitted)
    if metric == "minkowski" and power in (1.0, 2.0):
        metric = "manhattan" if power == 1.0 else "euclidean"
    rows = write.add("Slice", write.add("Shape", x), np.array([0]), np.array([1]))
    shape = write.add("Concat", rows, np.array([len(fitted)]), axis=0)
    nothing = write.add("Expand", np.zeros((1, 1)), shape)
    columns = write.add("Transpose", x, perm=[1, 0])
    body = _body(metric, power)
    total = write.add("Scan", nothing, columns, fitted.T.astype(np.float64), body=body, num_scan_inputs=2)
    if metric in ("euclidean", "l2"):
        return write.add("Sqrt", total)
    if metric == "minkowski":
        return write.add("Pow", total, 1 / power)
    return total


def distances_by_products(write: NodeWriter, x: str, fitted: np.ndarray) -> tuple[str, str]:
    """Squared distances [rows, fitted rows] as scikit-learn computes them where it has no search tree, |y|^2 - 2xy and
    |x|^2; and the first part alone, which ranks the fitted rows. One product of matrices, where `distances` takes a
    step for each feature; but equal rows are not quite at a distance of zero.

    Args:
        write, x, fitted: as of `distances`.
    """
    ranks = write.add("Add", write.add("MatMul", x, -2 * np.ascontiguousarray(fitted.T)), (fitted**2).sum(1))
    length = write.add("ReduceSum", write.add("Mul", x, x), np.array([1]), keepdims=1)
    squares = write.add("Add", length, ranks)
    return write.add("Max", squares, 0.0), ranks  # rounding may leave less than nothing


def inverse_distances(write: NodeWriter, near: str) -> str:
    """[rows, neighbours]: one over the distance; where a row is met exactly, 1 for those that meet it, else 0."""
    met = write.add("Equal", near, 0.0)
    exact = write.add("Where", met, 1.0, 0.0)
    some = write.add("Less", 0.0, write.add("ReduceSum", exact, np.array([1]), keepdims=1))
    inverse = write.add("Div", 1.0, write.add("Where", met, 1.0, near))
    return write.add("Where", some, exact, inverse)


def _body(metric: str, power: float) -> object:
    """What one feature adds to all distances."""
    body = LoopBody("feature")
    own, theirs = body.add("Unsqueeze", "own", np.array([1])), body.add("Unsqueeze", "theirs", np.array([0]))
    difference = body.add("Sub", own, theirs)
    if metric in ("euclidean", "sqeuclidean", "l2"):
        part = body.add("Mul", difference, difference)
    else:
        part = body.add("Abs", difference)
    if metric == "minkowski":
        part = body.add("Pow", part, power)
    after = body.add("Max" if metric == "chebyshev" else "Add", "before", part)
    return body.graph({"before": (DOUBLE, 2), "own": (DOUBLE, 1), "theirs": (DOUBLE, 1)}, {after: (DOUBLE, 2)})


def _cosine(write: NodeWriter, x: str, fitted: np.ndarray) -> str:
    """1 - the cosine; a row of zeros has none, and is at a distance of one from all."""
    lengths = np.linalg.norm(fitted, axis=1, keepdims=True)
    theirs = fitted / np.where(lengths == 0, 1.0, lengths)
    length = write.add("Sqrt", write.add("ReduceSum", write.add("Mul", x, x), np.array([1]), keepdims=1))
    own = write.add("Div", x, write.add("Where", write.add("Equal", length, 0.0), 1.0, length))
    return write.add("Max", write.add("Sub", 1.0, write.add("MatMul", own, theirs.T)), 0.0)

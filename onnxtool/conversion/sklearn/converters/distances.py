"""Distances of rows from fitted rows, in doubles and by differences, so that equal rows are at a distance of zero."""

from __future__ import annotations

import numpy as np

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


def _body(metric: str, power: float) -> object:
    """What one feature adds to all distances."""
    from onnx import helper, numpy_helper

    node = helper.make_node
    nodes = [
        node("Unsqueeze", ["own", "last"], ["own_column"]),
        node("Unsqueeze", ["theirs", "first"], ["their_row"]),
        node("Sub", ["own_column", "their_row"], ["difference"]),
    ]
    if metric in ("euclidean", "sqeuclidean", "l2"):
        nodes.append(node("Mul", ["difference", "difference"], ["part"]))
    else:
        nodes.append(node("Abs", ["difference"], ["size"]))
        powered = metric == "minkowski"
        nodes.append(node("Pow", ["size", "power"], ["part"]) if powered else node("Identity", ["size"], ["part"]))
    nodes.append(node("Max" if metric == "chebyshev" else "Add", ["before", "part"], ["after"]))
    constants = [
        numpy_helper.from_array(np.array([1]), "last"),
        numpy_helper.from_array(np.array([0]), "first"),
        numpy_helper.from_array(np.array(power), "power"),
    ]
    values = {"before": [None, None], "own": [None], "theirs": [None], "after": [None, None]}
    infos = {name: helper.make_tensor_value_info(name, DOUBLE, shape) for name, shape in values.items()}
    inputs = [infos[name] for name in ("before", "own", "theirs")]
    return helper.make_graph(nodes, "one_feature", inputs, [infos["after"]], constants)


def _cosine(write: NodeWriter, x: str, fitted: np.ndarray) -> str:
    """1 - the cosine; a row of zeros has none, and is at a distance of one from all."""
    lengths = np.linalg.norm(fitted, axis=1, keepdims=True)
    theirs = fitted / np.where(lengths == 0, 1.0, lengths)
    length = write.add("Sqrt", write.add("ReduceSum", write.add("Mul", x, x), np.array([1]), keepdims=1))
    own = write.add("Div", x, write.add("Where", write.add("Equal", length, 0.0), 1.0, length))
    return write.add("Max", write.add("Sub", 1.0, write.add("MatMul", own, theirs.T)), 0.0)

"""Support vector machines, in doubles: products of large numbers that cancel out lose in float32 what decides.

Source: libsvm's svm.cpp, as scikit-learn has it: `svm_predict_values`, `svm_predict_probability` and
`multiclass_probability`, the second method of Wu, Lin and Weng 2004, "Probability estimates for multi-class
classification by pairwise coupling"; scikit-learn, `sklearn.utils.multiclass._ovr_decision_function`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
from scipy.sparse import issparse

from onnxtool.conversion.sklearn.converters.kernels import kernel_of
from onnxtool.conversion.sklearn.converters.loop_body import LoopBody
from onnxtool.conversion.sklearn.converters.members import logistic_of, scores_of_pairs, sides_of_pairs
from onnxtool.conversion.sklearn.converters.node_writer import BOOL, DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension

_LEAST = 1e-7  # chance of a class of a pair


def _decisions(write: NodeWriter, weights: np.ndarray) -> str:
    """[rows, decisions]: sums of kernels by weights [support vectors, decisions], with the intercepts."""
    model = write.step
    kernel = kernel_of(
        write, write.joined(), _dense(model.support_vectors_), model.kernel,
        gamma=float(model._gamma), first=float(model.coef0), degree=float(model.degree),
    )  # fmt: skip
    return write.add("Add", write.add("MatMul", kernel, weights), np.asarray(model._intercept_, np.float64)[None])


def _dense(matrix: object) -> np.ndarray:
    return np.asarray(matrix.toarray() if issparse(matrix) else matrix, np.float64)  # type: ignore[attr-defined]


def _convert_regressor(write: NodeWriter, _original: Callable[[], None]) -> None:
    write.give(_decisions(write, _dense(write.step._dual_coef_).T))


def _convert_outliers(write: NodeWriter, _original: Callable[[], None]) -> None:
    score = _decisions(write, _dense(write.step._dual_coef_).T)
    write.give(score, write.outputs[1])
    write.give_labels(write.cast(write.add("Reshape", _above(write, score), np.array([-1])), INT64), [-1, 1])


def _above(write: NodeWriter, value: str) -> str:
    return write.cast(write.add("Greater", value, 0.0), DOUBLE)


def _convert_classifier(write: NodeWriter, _original: Callable[[], None]) -> None:
    model = write.step
    count = len(model.classes_)
    decisions = _decisions(
        write, _weights_of_pairs(_dense(model._dual_coef_), np.repeat(range(count), model.n_support_))
    )
    first, second = sides_of_pairs(count)
    if count == 2:
        scores = write.columns([decisions, write.add("Neg", decisions)])
    elif model.decision_function_shape == "ovo":
        scores = decisions
    else:
        below = write.cast(write.add("Less", decisions, 0.0), DOUBLE)
        scores = scores_of_pairs(write, below, write.add("Neg", decisions), count)
    if model.break_ties and count > 2:
        votes = scores
    else:
        won = _above(write, decisions)
        lost = write.add("MatMul", write.add("Sub", 1.0, won), second)
        votes = write.add("Add", write.add("MatMul", won, first), lost)
    write.give_labels(write.add("ArgMax", votes, axis=1, keepdims=0), model.classes_)
    write.give(scores if write.gives_scores else _chances(write, decisions), write.outputs[1])


def _weights_of_pairs(coefficients: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """[support vectors, pairs], of [classes - 1, support vectors]: a pair has the vectors of its two classes alone."""
    columns = [
        np.where(classes == i, coefficients[j - 1], np.where(classes == j, coefficients[i], 0.0))
        for i, j in combinations(range(len(coefficients) + 1), 2)
    ]
    return np.column_stack(columns)


def _chances(write: NodeWriter, decisions: str) -> str:
    """[rows, classes]: what agrees best with the chances of all pairs, by libsvm's own steps."""
    model = write.step
    count = len(model.classes_)
    first, second = sides_of_pairs(count)
    slope, start = np.asarray(model.probA_, np.float64), np.asarray(model.probB_, np.float64)
    exponent = write.add("Add", write.add("Mul", decisions, slope[None]), start[None])
    pairs = logistic_of(write, write.add("Neg", exponent))
    pairs = write.add("Min", write.add("Max", pairs, _LEAST), 1 - _LEAST)
    # r [rows, classes, classes]: the chance of a class against another, as its pair has it.
    for_first = np.einsum("pi,pj->pij", first, second).reshape(len(first), -1)
    for_second = np.einsum("pi,pj->pij", second, first).reshape(len(first), -1)
    others = write.add("MatMul", write.add("Sub", 1.0, pairs), for_second)
    shape = np.array([-1, count, count])
    r = write.add("Reshape", write.add("Add", write.add("MatMul", pairs, for_first), others), shape)
    turned = write.add("Transpose", r, perm=[0, 2, 1])
    squares = write.add("ReduceSum", write.add("Mul", turned, turned), np.array([2]), keepdims=1)
    diagonal = write.add("Mul", squares, np.eye(count)[None])
    q = write.add("Sub", diagonal, write.add("Mul", turned, r))
    even = write.add("Expand", np.full((1, count), 1 / count), write.add("Shape", write.add("MatMul", pairs, first)))
    body = _round(count)
    return write.add_several(2, "Loop", np.array(max(100, count)), np.array(True), even, q, body=body)[0]


def _round(count: int) -> object:
    """A round over all classes, for the rows that are not settled."""
    body, tall, axis = LoopBody("round"), np.array([2]), np.array([1])
    multiplied = body.add("Squeeze", body.add("MatMul", "q", body.add("Unsqueeze", "chances", tall)), tall)
    total = body.add("ReduceSum", body.add("Mul", "chances", multiplied), axis, keepdims=1)
    off = body.add("GreaterOrEqual", body.add("Abs", body.add("Sub", multiplied, total)), 0.005 / count)
    open_ = body.add("Less", 0.0, body.add("ReduceSum", body.add("Cast", off, to=DOUBLE), axis, keepdims=1))
    rows = body.add("Transpose", "q", perm=[1, 0, 2])
    given = (multiplied, total, "chances", rows, np.eye(count))
    *_, better = body.add("Scan", *given, outputs=3, body=_class(), num_scan_inputs=2)
    after = body.add("Where", open_, better, "chances")
    goes_on = body.add("Less", 0.0, body.add("ReduceSum", body.add("Cast", open_, to=DOUBLE), keepdims=0))
    inputs = {"iteration": (INT64, 0), "goes_on": (BOOL, 0), "chances": (DOUBLE, 2), "q": (DOUBLE, 3)}
    return body.graph(inputs, {goes_on: (BOOL, 0), after: (DOUBLE, 2), body.add("Identity", "q"): (DOUBLE, 3)})


def _class() -> object:
    """Within a round, what changes by one class, whose place is marked by a one among zeros."""
    body = LoopBody("class")
    marked = (body.add("Mul", value, "mark") for value in ("multiplied", "row"))
    own, width = (body.add("ReduceSum", value, np.array([1]), keepdims=1) for value in marked)
    change = body.add("Div", body.add("Sub", "total", own), width)
    grown = body.add("Add", change, 1.0)
    twice = body.add("Add", body.add("Mul", change, width), body.add("Mul", own, 2.0))
    total = body.add("Add", "total", body.add("Mul", change, twice))
    total = body.add("Div", body.add("Div", total, grown), grown)
    multiplied = body.add("Div", body.add("Add", "multiplied", body.add("Mul", change, "row")), grown)
    chances = body.add("Div", body.add("Add", "inner", body.add("Mul", change, "mark")), grown)
    inputs = {"multiplied": 2, "total": 2, "inner": 2, "row": 2, "mark": 1}
    outputs = dict.fromkeys((multiplied, total, chances), (DOUBLE, 2))
    return body.graph({name: (DOUBLE, rank) for name, rank in inputs.items()}, outputs)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 has operators of float32 for them",
    extension("sklearn.svm:SVC", _convert_classifier),
    extension("sklearn.svm:NuSVC", _convert_classifier),
    extension("sklearn.svm:SVR", _convert_regressor),
    extension("sklearn.svm:NuSVR", _convert_regressor),
    extension("sklearn.svm:OneClassSVM", _convert_outliers),
)

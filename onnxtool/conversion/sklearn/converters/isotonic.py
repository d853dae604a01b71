"""Isotonic regression and calibration by it -> ONNX. skl2onnx 1.20 has the nearest step for what lies between two.

Source: scikit-learn, `sklearn.isotonic` and `sklearn.calibration`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.members import score_columns
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, FLOAT, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import Converter, extend, register_transformer
from onnxtool.errors import UnsupportedError


@cache
def register() -> None:
    """Let skl2onnx convert them by these converters."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.isotonic import IsotonicRegression

    register_transformer(IsotonicRegression, _convert_regression, lambda _: 1)
    extend(CalibratedClassifierCV, _convert_calibrated)


def _convert_regression(scope: Any, operator: Any, container: Any) -> None:
    write = NodeWriter(scope, container, "isotonic")
    write.give(interpolated(write, operator.raw_operator, write.joined(operator.inputs)), operator.outputs[0])


def interpolated(write: NodeWriter, model: Any, value: str) -> str:
    """What an isotonic regression makes of doubles [rows, 1]: a line between each two steps."""
    steps = np.asarray(model.X_thresholds_)
    x, y = steps.astype(np.float64), np.asarray(model.y_thresholds_, np.float64)
    if steps.dtype == np.float32:  # then it computes in that
        value = write.cast(write.cast(value, FLOAT), DOUBLE)
    low, high = write.constant(x[:1]), write.constant(x[-1:])
    within = write.add("Min", write.add("Max", value, low), high)
    result = on_lines(write, within, x, y)
    if model.out_of_bounds == "clip":
        return result
    inside = write.add("Equal", within, value)
    return write.add("Where", inside, result, write.constant(np.full(1, np.nan)))


def on_lines(write: NodeWriter, value: str, x: np.ndarray, y: np.ndarray) -> str:
    """`numpy.interp` of doubles [rows, 1]: lines between points, and the outer points' level beyond them.

    Args:
        write: adds nodes.
        value: where.
        x: of the points, in order; of equal ones the last counts.
        y: of the points.
    """
    passed = write.cast(write.add("GreaterOrEqual", value, write.constant(x.reshape(1, -1))), DOUBLE)
    place = write.cast(write.add("ReduceSum", passed, write.constant(np.array([1])), keepdims=1), INT64)
    widths = np.diff(x)
    slopes = np.diff(y) / np.where(widths == 0, 1.0, widths)
    tables = (np.concatenate([x[:1], x]), np.concatenate([y[:1], y]), np.concatenate([[0.0], slopes, [0.0]]))
    starts, levels, rises = (write.add("Gather", write.constant(table), place, axis=0) for table in tables)
    return write.add("Add", levels, write.add("Mul", rises, write.add("Sub", value, starts)))


def _convert_calibrated(original: Converter, scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    if model.method != "isotonic":
        original(scope, operator, container)
        return
    write = NodeWriter(scope, container, "calibrated")
    total = ""
    for member in model.calibrated_classifiers_:
        chances = _member(scope, operator, container, write, member)
        total = write.add("Add", total, chances) if total else chances
    mean = write.add("Div", total, write.constant(np.array([float(len(model.calibrated_classifiers_))])))
    write.give_most_likely(mean, model.classes_, operator.outputs)


def _member(scope: Any, operator: Any, container: Any, write: NodeWriter, member: Any) -> str:
    """[rows, classes]: the chances by one calibrated classifier, in doubles."""
    classes = len(member.classes)
    if len(member.estimator.classes_) != classes:
        raise UnsupportedError("CalibratedClassifierCV: a fold without one of the classes has no ONNX form here.")
    scores = score_columns(scope, operator, container, member.estimator, ("decision_function", "predict_proba"))
    parts = []
    for number, calibrator in enumerate(member.calibrators):
        # With two classes there is one calibrator, for the second.
        column = write.constant(np.array([number + (classes == 2)]))
        parts.append(interpolated(write, calibrator, write.add("Gather", scores, column, axis=1)))
    one = write.constant(np.ones(1))
    if classes == 2:
        return write.add("Concat", write.add("Sub", one, parts[0]), parts[0], axis=1)
    each = write.add("Concat", *parts, axis=1)
    total = write.add("ReduceSum", each, write.constant(np.array([1])), keepdims=1)
    nothing = write.add("Equal", total, write.constant(np.zeros(1)))
    shares = write.add("Div", each, write.add("Where", nothing, one, total))
    return write.add("Where", nothing, write.constant(np.full(1, 1 / classes)), shares)

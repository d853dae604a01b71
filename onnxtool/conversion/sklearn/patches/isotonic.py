"""Isotonic regression, and calibrated classifiers.

Source: scikit-learn, `sklearn.isotonic` and `sklearn.calibration`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.members import logistic_of, score_columns
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, transformer
from onnxtool.errors import UnsupportedError

_FEW_POINTS = 64


def _convert_regression(write: NodeWriter) -> None:
    write.give(interpolated(write, write.step, write.joined()))


def interpolated(write: NodeWriter, model: Estimator, value: str) -> str:
    """What an isotonic regression makes of doubles [rows, 1]: a line between each two steps."""
    steps = np.asarray(model.X_thresholds_)
    x, y = steps.astype(np.float64), np.asarray(model.y_thresholds_, np.float64)
    if steps.dtype == np.float32:  # then it computes in that
        value = write.in_float32(value)
    within = write.add("Min", write.add("Max", value, x[:1]), x[-1:])
    result = on_lines(write, within, x[None], y[None])
    if model.out_of_bounds == "clip":
        return result
    inside = write.add("Equal", within, value)
    return write.add("Where", inside, result, np.full(1, np.nan))


def on_lines(write: NodeWriter, value: str, x: np.ndarray, y: np.ndarray, reached: str = "") -> str:
    """`numpy.interp` of doubles: lines between points, and the outer points' level beyond them.

    Args:
        write: adds nodes.
        value: where, [rows, columns].
        x: of the points of each column, [columns, points], in order; of equal ones the last counts.
        y: of the points, [columns, points].
        reached: which points `value` has reached, bool [rows, columns, points]; "" where its own digits tell.
    """
    place = _count(write, reached) if reached else points_reached(write, value, x)
    widths, first = np.diff(x), np.zeros((len(x), 1))
    slopes = np.diff(y) / np.where(widths == 0, 1.0, widths)
    tables = ((x[:, :1], x), (y[:, :1], y), (first, slopes, first))
    index = write.add("Add", place, np.arange(len(x)) * (x.shape[1] + 1))
    starts, levels, rises = (write.add("Gather", np.hstack(table).reshape(-1), index, axis=0) for table in tables)
    return write.add("Add", levels, write.add("Mul", rises, write.add("Sub", value, starts)))


def points_reached(write: NodeWriter, value: str, x: np.ndarray) -> str:
    """How many points of its column each number has reached, int64 [rows, columns].

    Args:
        write: adds nodes.
        value: [rows, columns].
        x: the points, [columns, points], in order; of many those of one block are compared alone.
    """
    columns, points = x.shape
    value = write.add("Unsqueeze", value, np.array([2]))
    if points <= _FEW_POINTS:
        return _count(write, write.add("GreaterOrEqual", value, x))
    size = math.ceil(math.sqrt(points))
    count = math.ceil(points / size)
    blocks = np.full((columns, count * size), np.nan)  # which nothing reaches
    blocks[:, :points] = x
    begun = _count(write, write.add("GreaterOrEqual", value, blocks[:, ::size]))
    block = write.add("Max", write.add("Sub", begun, np.array([1])), np.array([0]))
    index = write.add("Add", block, np.arange(columns) * count)
    own = write.add("Gather", blocks.reshape(-1, size), index, axis=0)
    inside = _count(write, write.add("GreaterOrEqual", value, own))
    return write.add("Add", write.add("Mul", block, np.array([size])), inside)


def _count(write: NodeWriter, truths: str) -> str:
    """How many are true, int64: [rows, columns, n] -> [rows, columns]."""
    return write.add("ReduceSum", write.cast(truths, INT64), np.array([2]), keepdims=0)


def _convert_calibrated(write: NodeWriter, _original: Callable[[], None]) -> None:
    model = write.step
    total = ""
    for member in model.calibrated_classifiers_:
        chances = _member(write, member)
        total = write.add("Add", total, chances) if total else chances
    mean = write.add("Div", total, np.array([float(len(model.calibrated_classifiers_))]))
    write.give_most_likely(mean, model.classes_)


def _member(write: NodeWriter, member: Any) -> str:
    """[rows, classes]: the chances by one calibrated classifier, in doubles."""
    classes = len(member.classes)
    if len(member.estimator.classes_) != classes:
        raise UnsupportedError("CalibratedClassifierCV: a fold without one of the classes has no ONNX form here.")
    scores = score_columns(write, member.estimator, ("decision_function", "predict_proba"))
    if member.method == "temperature":
        return _tempered(write, member, scores)
    parts = []
    for number, calibrator in enumerate(member.calibrators):
        # With two classes there is one calibrator, for the second.
        column = np.array([number + (classes == 2)])
        parts.append(_calibrated(write, calibrator, write.add("Gather", scores, column, axis=1)))
    if classes == 2:
        return write.add("Concat", write.add("Sub", 1.0, parts[0]), parts[0], axis=1)
    each = write.add("Concat", *parts, axis=1)
    total = write.add("ReduceSum", each, np.array([1]), keepdims=1)
    nothing = write.add("Equal", total, 0.0)
    shares = write.add("Div", each, write.add("Where", nothing, 1.0, total))
    return write.add("Where", nothing, np.full(1, 1 / classes), shares)


def _tempered(write: NodeWriter, member: Any, scores: str) -> str:
    """The softmax of scores times a number: of logarithms of chances, or of two classes the second's both ways."""
    if not hasattr(member.estimator, "decision_function"):
        logits = write.add("Log", write.add("Add", scores, 1e-12))
    elif len(member.classes) == 2:
        second = write.add("Gather", scores, np.array([1]), axis=1)
        logits = write.add("Concat", write.add("Neg", second), second, axis=1)
    else:
        logits = scores
    (calibrator,) = member.calibrators
    return write.add("Softmax", write.add("Mul", logits, float(calibrator.beta_)), axis=1)


def _calibrated(write: NodeWriter, calibrator: Any, scores: str) -> str:
    if not hasattr(calibrator, "a_"):
        return interpolated(write, calibrator, scores)
    slope, start = float(calibrator.a_), float(calibrator.b_)
    return logistic_of(write, write.add("Neg", write.add("Add", write.add("Mul", scores, slope), start)))


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 has the nearest step for what lies between two, and no scores of pipelines",
    transformer("sklearn.isotonic:IsotonicRegression", _convert_regression, lambda _: 1),
    extension("sklearn.calibration:CalibratedClassifierCV", _convert_calibrated),
)

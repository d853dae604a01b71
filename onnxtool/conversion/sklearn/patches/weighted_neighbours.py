"""Neighbours that count by their distance.

Source: scikit-learn, `sklearn.neighbors`: a neighbour counts one over its distance; where a row is met exactly, only
those that meet it count.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.distances import distances
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension
from onnxtool.errors import UnsupportedError


def _convert_classifier(write: NodeWriter, original: Callable[[], None]) -> None:
    model = write.step
    if model.weights != "distance":
        original()
        return
    if isinstance(model.classes_, list):
        raise UnsupportedError("KNeighborsClassifier: weights='distance' with several targets has no ONNX form here.")
    classes = np.eye(len(model.classes_))[np.asarray(model._y).reshape(-1)]
    chances = _mean(write, classes)
    write.give_most_likely(chances, model.classes_)


def _convert_regressor(write: NodeWriter, original: Callable[[], None]) -> None:
    model = write.step
    if model.weights != "distance":
        original()
        return
    targets = np.asarray(model._y, np.float64).reshape(len(model._y), -1)
    write.give(_mean(write, targets))


def _mean(write: NodeWriter, targets: np.ndarray) -> str:
    """[rows, targets]: the mean of the nearest rows' targets [fitted rows, targets], by their weights."""
    from scipy.sparse import issparse

    model = write.step
    if issparse(model._fit_X) or (model.effective_metric_params_ or {}).get("w") is not None:
        raise UnsupportedError(f"{type(model).__name__}: sparse rows and weighted features have no ONNX form here.")
    power = float((model.effective_metric_params_ or {}).get("p", 2))
    away = distances(write, write.joined(), np.asarray(model._fit_X, np.float64), str(model.effective_metric_), power)
    near, places = write.smallest(away, model.n_neighbors)
    axis, last = np.array([1]), np.array([2])
    met = write.add("Equal", near, 0.0)
    exact = write.add("Where", met, 1.0, 0.0)
    some = write.add("Less", 0.0, write.add("ReduceSum", exact, axis, keepdims=1))
    inverse = write.add("Div", 1.0, write.add("Where", met, 1.0, near))
    weights = write.add("Unsqueeze", write.add("Where", some, exact, inverse), last)
    given = write.add("Gather", targets, places, axis=0)
    summed = write.add("ReduceSum", write.add("Mul", weights, given), axis, keepdims=0)
    return write.add("Div", summed, write.add("ReduceSum", weights, axis, keepdims=0))


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 divides by zero where a row meets a fitted one",
    extension("sklearn.neighbors:KNeighborsClassifier", _convert_classifier),
    extension("sklearn.neighbors:KNeighborsRegressor", _convert_regressor),
)

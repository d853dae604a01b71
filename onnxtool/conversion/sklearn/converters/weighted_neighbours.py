"""Neighbours that count by their distance -> ONNX: skl2onnx 1.20 divides by zero where a row meets a fitted one.

Source: scikit-learn, `sklearn.neighbors`: a neighbour counts one over its distance; where a row is met exactly, only
those that meet it count.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.distances import distances
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import Converter, extend
from onnxtool.errors import UnsupportedError


@cache
def register() -> None:
    """Let skl2onnx convert them by these converters."""
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

    extend(KNeighborsClassifier, _convert_classifier)
    extend(KNeighborsRegressor, _convert_regressor)


def _convert_classifier(original: Converter, scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    if model.weights != "distance":
        original(scope, operator, container)
        return
    if isinstance(model.classes_, list):
        raise UnsupportedError("KNeighborsClassifier: weights='distance' with several targets has no ONNX form here.")
    write = NodeWriter(scope, container, "neighbours")
    classes = np.eye(len(model.classes_))[np.asarray(model._y).reshape(-1)]
    chances = _mean(write, model, write.joined(operator.inputs), classes)
    write.give_most_likely(chances, model.classes_, operator.outputs)


def _convert_regressor(original: Converter, scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    if model.weights != "distance":
        original(scope, operator, container)
        return
    write = NodeWriter(scope, container, "neighbours")
    targets = np.asarray(model._y, np.float64).reshape(len(model._y), -1)
    write.give(_mean(write, model, write.joined(operator.inputs), targets), operator.outputs[0])


def _mean(write: NodeWriter, model: Any, x: str, targets: np.ndarray) -> str:
    """[rows, targets]: the mean of the nearest rows' targets [fitted rows, targets], by their weights."""
    from scipy.sparse import issparse

    if issparse(model._fit_X) or (model.effective_metric_params_ or {}).get("w") is not None:
        raise UnsupportedError(f"{type(model).__name__}: sparse rows and weighted features have no ONNX form here.")
    power = float((model.effective_metric_params_ or {}).get("p", 2))
    away = distances(write, x, np.asarray(model._fit_X, np.float64), str(model.effective_metric_), power)
    near, places = write.smallest(away, write.constant(np.array([model.n_neighbors])))
    zero, one = write.constant(np.zeros(1)), write.constant(np.ones(1))
    axis, last = write.constant(np.array([1])), write.constant(np.array([2]))
    met = write.add("Equal", near, zero)
    exact = write.add("Where", met, one, zero)
    some = write.add("Less", zero, write.add("ReduceSum", exact, axis, keepdims=1))
    inverse = write.add("Div", one, write.add("Where", met, one, near))
    weights = write.add("Unsqueeze", write.add("Where", some, exact, inverse), last)
    given = write.add("Gather", write.constant(targets), places, axis=0)
    summed = write.add("ReduceSum", write.add("Mul", weights, given), axis, keepdims=0)
    return write.add("Div", summed, write.add("ReduceSum", weights, axis, keepdims=0))

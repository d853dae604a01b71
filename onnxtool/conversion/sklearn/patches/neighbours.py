"""Neighbours, by the distances of scikit-learn itself, in doubles: sums of squared differences, column by column, or
products of whole rows where it has no search tree.

skl2onnx sums in another order, so that distances that are equal in the source differ in the last digit, and other rows
are the nearest. Of fitted rows at exactly one distance scikit-learn takes those that its search meets first, and the
file those that were fitted first.

Source: scikit-learn, `sklearn.neighbors`: by weights="distance" a neighbour counts one over its distance; where a row
is met exactly, only those that meet it count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.distances import distances, distances_by_products, inverse_distances
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import (
    classifier,
    converter_patch,
    extension,
    labels_and_scores,
    transformer,
)
from onnxtool.errors import UnsupportedError

_SQUARED = ("euclidean", "l2")  # scikit-learn ranks these before it takes the root


def _convert_classifier(write: NodeWriter, _original: Callable[[], None]) -> None:
    model = write.step
    several = isinstance(model.classes_, list)
    classes = model.classes_ if several else [model.classes_]
    places = np.asarray(model._y).reshape(len(model._y), -1)
    chances = _mean(write, np.hstack([np.eye(len(own))[places[:, i]] for i, own in enumerate(classes)]))
    if not several:
        write.give_most_likely(chances, model.classes_)
        return
    parts = write.split(chances, [len(own) for own in classes])
    likeliest = (write.add("ArgMax", part, axis=1, keepdims=1) for part in parts)
    labels = [write.labels(place, own) for place, own in zip(likeliest, classes, strict=True)]
    write.add("Concat", *labels, axis=1, name=write.outputs[0].full_name)
    each = [write.add("Unsqueeze", part, np.array([0])) for part in parts]
    write.give(write.add("Concat", *each, axis=0), write.outputs[1])


def _convert_regressor(write: NodeWriter, _original: Callable[[], None]) -> None:
    targets = np.asarray(write.step._y, np.float64).reshape(len(write.step._y), -1)
    write.give(_mean(write, targets))


def _metric(model: Any) -> tuple[str, float]:
    """The metric and, of "minkowski", its power."""
    name, power = str(model.effective_metric_), float((model.effective_metric_params_ or {}).get("p", 2))
    return ("euclidean" if name == "minkowski" and power == 2 else name), power


def _ranked(write: NodeWriter) -> tuple[str, str]:
    """Distances [rows, fitted rows], squared for those of `_SQUARED`; and the metric."""
    from scipy.sparse import issparse

    model = write.step
    if getattr(model, "weights", "uniform") not in ("uniform", "distance"):
        raise UnsupportedError(f"{type(model).__name__}: weights of one's own have no ONNX form here.")
    if (model.effective_metric_params_ or {}).get("w") is not None:
        raise UnsupportedError(f"{type(model).__name__}: weighted features have no ONNX form here.")
    fitted = np.asarray(model._fit_X.toarray() if issparse(model._fit_X) else model._fit_X, np.float64)
    metric, power = _metric(model)
    if metric in _SQUARED and model._fit_method == "brute":
        return distances_by_products(write, write.joined(), fitted)[0], metric
    ranked = distances(write, write.joined(), fitted, "sqeuclidean" if metric in _SQUARED else metric, power)
    return ranked, metric


def _mean(write: NodeWriter, targets: np.ndarray) -> str:
    """[rows, targets]: the mean of the nearest rows' targets [fitted rows, targets], by their weights."""
    model = write.step
    ranked, metric = _ranked(write)
    near, places = write.smallest(ranked, model.n_neighbors)
    given = write.add("Gather", targets, places, axis=0)
    axis, last = np.array([1]), np.array([2])
    if model.weights == "uniform":
        total = write.add("ReduceSum", given, axis, keepdims=0)
        return write.add("Div", total, float(model.n_neighbors))
    weights = write.add("Unsqueeze", _weights(write, near, metric), last)
    summed = write.add("ReduceSum", write.add("Mul", weights, given), axis, keepdims=0)
    return write.add("Div", summed, write.add("ReduceSum", weights, axis, keepdims=0))


def _weights(write: NodeWriter, near: str, metric: str) -> str:
    return inverse_distances(write, write.add("Sqrt", near) if metric in _SQUARED else near)


def _sum_within(write: NodeWriter, targets: np.ndarray) -> tuple[str, str]:
    """Sums of weighted targets [fitted rows, targets], and of the weights, of the fitted rows within the radius."""
    model = write.step
    ranked, metric = _ranked(write)
    within = write.add("LessOrEqual", ranked, float(model.radius) ** (2 if metric in _SQUARED else 1))
    counted = 1.0 if model.weights == "uniform" else _weights(write, ranked, metric)
    weights = write.add("Where", within, counted, 0.0)
    return write.add("MatMul", weights, targets), write.add("ReduceSum", weights, np.array([1]), keepdims=1)


def _convert_within_classifier(write: NodeWriter) -> None:
    """A row without a neighbour gets the label that was chosen for it; where none was, the file refuses it too."""
    model = write.step
    if isinstance(model.classes_, list):
        raise UnsupportedError("RadiusNeighborsClassifier: several targets have no ONNX form here.")
    classes, others = np.asarray(model.classes_), model.outlier_label_
    summed, weights = _sum_within(write, np.eye(len(classes))[np.asarray(model._y).reshape(-1)])
    alone = write.add("Equal", weights, 0.0)
    chances = write.add("Div", summed, write.add("Where", alone, 1.0, weights))
    place = len(classes)  # of which there is no label
    if others is not None:
        own = np.asarray(others).reshape(-1)
        given = (classes == own[0]).astype(np.float64)
        chances = write.add("Where", alone, given[None], chances)
        classes = np.append(classes, own)
    likeliest = write.add("ArgMax", chances, axis=1, keepdims=0)
    alone = write.add("Squeeze", alone, np.array([1]))
    write.give_labels(write.add("Where", alone, np.array([place]), likeliest), classes)
    write.give(chances, write.outputs[1])


def _convert_within_regressor(write: NodeWriter) -> None:
    model = write.step
    targets = np.asarray(model._y).reshape(len(model._y), -1)
    with np.errstate(invalid="ignore"):
        nothing = np.full_like(targets[:1], np.nan).astype(np.float64)  # in integers the least of them, as scikit-learn
    summed, weights = _sum_within(write, targets.astype(np.float64))
    mean = write.add("Div", summed, weights)
    write.give(write.add("Where", write.add("Equal", weights, 0.0), nothing, mean))


def _targets(model: Any) -> int:
    return int(np.size(model._y) // len(model._y))


def _convert_outliers(write: NodeWriter, _original: Callable[[], None]) -> None:
    """By how much denser it is around a row's neighbours than around the row."""
    model, axis = write.step, np.array([1])
    ranked, metric = _ranked(write)
    near, places = write.smallest(ranked, model.n_neighbors_)
    near = write.add("Sqrt", near) if metric in _SQUARED else near
    farthest = np.ascontiguousarray(model._distances_fit_X_[:, model.n_neighbors_ - 1], np.float64)
    theirs = write.add("Gather", farthest, places, axis=0)
    reach = write.add("ReduceSum", write.add("Max", near, theirs), axis, keepdims=1)
    apart = write.add("Div", reach, float(model.n_neighbors_))
    density = write.add("Div", 1.0, write.add("Add", apart, 1e-10))
    ratios = write.add("Div", write.add("Gather", np.asarray(model._lrd, np.float64), places, axis=0), density)
    mean = write.add("Div", write.add("ReduceSum", ratios, axis, keepdims=1), float(model.n_neighbors_))
    scores = write.add("Sub", -float(model.offset_), mean)
    write.give_inliers(scores)


def _convert_centres(write: NodeWriter) -> None:
    centres = np.asarray(write.step.cluster_centers_, np.float64)
    squares, ranks = distances_by_products(write, write.joined(), centres)
    write.give_labels(write.add("ArgMin", ranks, axis=1, keepdims=0), range(len(centres)))
    write.give(write.add("Sqrt", squares), write.outputs[1])


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 sums distances in another order, divides by zero where a row meets a fitted one, and takes so many "
    "nearest rows for those within a radius; outliers take it a step for each fitted row; of clusters, the distance "
    "from a centre may be NaN",
    extension("sklearn.neighbors:KNeighborsClassifier", _convert_classifier),
    extension("sklearn.neighbors:KNeighborsRegressor", _convert_regressor),
    classifier("sklearn.neighbors:RadiusNeighborsClassifier", _convert_within_classifier),
    transformer("sklearn.neighbors:RadiusNeighborsRegressor", _convert_within_regressor, _targets),
    extension("sklearn.neighbors:LocalOutlierFactor", _convert_outliers),
    *(
        labels_and_scores(f"sklearn.cluster:{name}", _convert_centres, lambda model: len(model.cluster_centers_))
        for name in ("KMeans", "MiniBatchKMeans")
    ),
)

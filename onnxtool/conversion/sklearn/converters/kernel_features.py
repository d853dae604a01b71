"""Features that stand for a kernel (Nystroem, RBFSampler) and the nearest centroid -> ONNX, which skl2onnx 1.20 lacks.

Source: scikit-learn, `sklearn.kernel_approximation`, `sklearn.metrics.pairwise`, `sklearn.neighbors.NearestCentroid`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.distances import distances
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import register_classifier, register_transformer
from onnxtool.errors import UnsupportedError


@cache
def register() -> None:
    """Let skl2onnx convert them by these converters."""
    from sklearn.kernel_approximation import Nystroem, RBFSampler
    from sklearn.neighbors import NearestCentroid

    register_transformer(Nystroem, _convert_nystroem, lambda step: len(step.normalization_))
    register_transformer(RBFSampler, _convert_sampler, lambda step: len(step.random_offset_))
    register_classifier(NearestCentroid, _convert_centroid)


def _convert_sampler(scope: Any, operator: Any, container: Any) -> None:
    step = operator.raw_operator
    write = NodeWriter(scope, container, "sampled")
    projected = write.add("MatMul", write.joined(operator.inputs), write.constant(np.float64(step.random_weights_)))
    shifted = write.add("Add", projected, write.constant(np.float64(step.random_offset_)))
    factor = write.constant(np.array([np.sqrt(2.0 / step.n_components)]))
    write.give(write.add("Mul", write.add_of("", 7, "Cos", shifted), factor), operator.outputs[0])


def _convert_nystroem(scope: Any, operator: Any, container: Any) -> None:
    step = operator.raw_operator
    write = NodeWriter(scope, container, "nystroem")
    kernel = _kernel(write, step, write.joined(operator.inputs))
    write.give(write.add("MatMul", kernel, write.constant(np.float64(step.normalization_.T))), operator.outputs[0])


def _kernel(write: NodeWriter, step: Any, x: str) -> str:
    """[rows, components]."""
    fitted = np.asarray(step.components_, np.float64)
    gamma = 1.0 / fitted.shape[1] if step.gamma is None else float(step.gamma)
    if step.kernel == "rbf":
        exponent = write.add("Mul", distances(write, x, fitted, "sqeuclidean"), write.constant(np.array([-gamma])))
        return write.add("Exp", exponent)
    if step.kernel == "laplacian":
        exponent = write.add("Mul", distances(write, x, fitted, "manhattan"), write.constant(np.array([-gamma])))
        return write.add("Exp", exponent)
    if step.kernel == "cosine":
        return write.add("Sub", write.constant(np.ones(1)), distances(write, x, fitted, "cosine"))
    products = write.add("MatMul", x, write.constant(fitted.T))
    if step.kernel == "linear":
        return products
    if step.kernel not in ("poly", "polynomial", "sigmoid"):
        raise UnsupportedError(f"Nystroem: its kernel {step.kernel!r} has no ONNX form here.")
    first = 1.0 if step.coef0 is None else float(step.coef0)
    scaled = write.add("Mul", products, write.constant(np.array([gamma])))
    scaled = write.add("Add", scaled, write.constant(np.array([first])))
    if step.kernel == "sigmoid":
        return write.add("Tanh", scaled)
    return write.add("Pow", scaled, write.constant(np.array([3.0 if step.degree is None else float(step.degree)])))


def _convert_centroid(scope: Any, operator: Any, container: Any) -> None:
    model = operator.raw_operator
    write = NodeWriter(scope, container, "centroid")
    x = write.joined(operator.inputs)
    centroids = np.asarray(model.centroids_, np.float64)
    scale = np.where(model.within_class_std_dev_ != 0, model.within_class_std_dev_, 1.0)
    scaled = write.add("Div", x, write.constant(scale))
    squared = distances(
        write, scaled, centroids / scale, "sqeuclidean" if model.metric == "euclidean" else model.metric
    )
    if model.metric != "euclidean":
        squared = write.add("Mul", squared, squared)
    priors = write.constant(2.0 * np.log(model.class_prior_))
    scores = write.add("Sub", priors, squared)
    if np.isclose(model.class_prior_, 1 / len(model.classes_)).all():  # then predict() does without the deviations
        places = write.add("ArgMin", distances(write, x, centroids, model.metric), axis=1, keepdims=0)
    else:
        places = write.add("ArgMax", scores, axis=1, keepdims=0)
    write.give_labels(places, model.classes_, operator.outputs[0])
    write.give(write.add("Softmax", scores, axis=1), operator.outputs[1])

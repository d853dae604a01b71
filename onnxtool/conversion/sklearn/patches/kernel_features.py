"""Features that stand for a kernel (Nystroem, RBFSampler), and the nearest centroid.

Source: scikit-learn, `sklearn.kernel_approximation`, `sklearn.metrics.pairwise`, `sklearn.neighbors.NearestCentroid`.
"""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.distances import distances
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import classifier, converter_patch, transformer
from onnxtool.errors import UnsupportedError


def _convert_sampler(write: NodeWriter) -> None:
    step = write.step
    projected = write.add("MatMul", write.joined(), np.float64(step.random_weights_))
    shifted = write.add("Add", projected, np.float64(step.random_offset_))
    factor = float(np.sqrt(2.0 / step.n_components))
    write.give(write.add("Mul", write.add_of("", 7, "Cos", shifted), factor))


def _convert_nystroem(write: NodeWriter) -> None:
    step = write.step
    kernel = _kernel(write, step, write.joined())
    write.give(write.add("MatMul", kernel, np.float64(step.normalization_.T)))


def _kernel(write: NodeWriter, step: Estimator, x: str) -> str:
    """[rows, components]."""
    fitted = np.asarray(step.components_, np.float64)
    gamma = 1.0 / fitted.shape[1] if step.gamma is None else float(step.gamma)
    if step.kernel == "rbf":
        exponent = write.add("Mul", distances(write, x, fitted, "sqeuclidean"), -gamma)
        return write.add("Exp", exponent)
    if step.kernel == "laplacian":
        exponent = write.add("Mul", distances(write, x, fitted, "manhattan"), -gamma)
        return write.add("Exp", exponent)
    if step.kernel == "cosine":
        return write.add("Sub", 1.0, distances(write, x, fitted, "cosine"))
    products = write.add("MatMul", x, fitted.T)
    if step.kernel == "linear":
        return products
    if step.kernel not in ("poly", "polynomial", "sigmoid"):
        raise UnsupportedError(f"Nystroem: its kernel {step.kernel!r} has no ONNX form here.")
    first = 1.0 if step.coef0 is None else float(step.coef0)
    scaled = write.add("Mul", products, gamma)
    scaled = write.add("Add", scaled, first)
    if step.kernel == "sigmoid":
        return write.add("Tanh", scaled)
    return write.add("Pow", scaled, 3.0 if step.degree is None else float(step.degree))


def _convert_centroid(write: NodeWriter) -> None:
    model = write.step
    x = write.joined()
    centroids = np.asarray(model.centroids_, np.float64)
    scale = np.where(model.within_class_std_dev_ != 0, model.within_class_std_dev_, 1.0)
    scaled = write.add("Div", x, scale)
    squared = distances(
        write, scaled, centroids / scale, "sqeuclidean" if model.metric == "euclidean" else model.metric
    )
    if model.metric != "euclidean":
        squared = write.add("Mul", squared, squared)
    scores = write.add("Sub", 2.0 * np.log(model.class_prior_), squared)
    if np.isclose(model.class_prior_, 1 / len(model.classes_)).all():  # then predict() does without the deviations
        places = write.add("ArgMin", distances(write, x, centroids, model.metric), axis=1, keepdims=0)
    else:
        places = write.add("ArgMax", scores, axis=1, keepdims=0)
    write.give_labels(places, model.classes_)
    write.give(write.add("Softmax", scores, axis=1), write.outputs[1])


PATCH = converter_patch(
    "",
    "skl2onnx 1.20 has no converters for them",
    transformer("sklearn.kernel_approximation:Nystroem", _convert_nystroem, lambda step: len(step.normalization_)),
    transformer("sklearn.kernel_approximation:RBFSampler", _convert_sampler, lambda step: len(step.random_offset_)),
    classifier("sklearn.neighbors:NearestCentroid", _convert_centroid),
)

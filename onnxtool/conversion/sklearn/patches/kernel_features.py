"""Features that stand for a kernel (Nystroem, RBFSampler), ridge regression by kernels, and centres of classes
and clusters.

Source: scikit-learn, `sklearn.kernel_approximation`, `sklearn.kernel_ridge`, `sklearn.neighbors.NearestCentroid`.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse

from onnxtool.conversion.sklearn.converters.distances import distances
from onnxtool.conversion.sklearn.converters.kernels import kernel_of
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import classifier, converter_patch, transformer


def _convert_sampler(write: NodeWriter) -> None:
    step = write.step
    projected = write.add("MatMul", write.joined(), np.float64(step.random_weights_))
    shifted = write.add("Add", projected, np.float64(step.random_offset_))
    factor = float(np.sqrt(2.0 / step.n_components))
    write.give(write.add("Mul", write.add_of("", 7, "Cos", shifted), factor))


def _convert_nystroem(write: NodeWriter) -> None:
    step = write.step
    fitted = np.asarray(step.components_, np.float64)
    first, degree = 1.0 if step.coef0 is None else step.coef0, 3.0 if step.degree is None else step.degree
    kernel = kernel_of(write, write.joined(), fitted, step.kernel, gamma=step.gamma, first=first, degree=degree)
    write.give(write.add("MatMul", kernel, np.float64(step.normalization_.T)))


def _convert_ridge(write: NodeWriter) -> None:
    step = write.step
    fitted = np.asarray(step.X_fit_.toarray() if issparse(step.X_fit_) else step.X_fit_, np.float64)
    given = {"gamma": step.gamma, "first": step.coef0, "degree": step.degree}
    kernel = kernel_of(write, write.joined(), fitted, step.kernel, **given)
    write.give(write.add("MatMul", kernel, np.asarray(step.dual_coef_, np.float64).reshape(len(fitted), -1)))


def _convert_clusters(write: NodeWriter) -> None:
    write.give(distances(write, write.joined(), np.asarray(write.step.centres_, np.float64), "euclidean"))


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
    transformer(
        "sklearn.kernel_ridge:KernelRidge", _convert_ridge, lambda step: int(np.prod(step.dual_coef_.shape[1:]))
    ),
    transformer(
        "onnxtool.conversion.sklearn.cluster_distances:ClusterDistances",
        _convert_clusters,
        lambda step: len(step.centres_),
    ),
    classifier("sklearn.neighbors:NearestCentroid", _convert_centroid),
)

"""Features that stand for a kernel (Nystroem, the samplers) or are hidden units; ridge regression by kernels, centres
of classes and clusters, rows outside an ellipse, and constant predictions.

Source: scikit-learn, `sklearn.kernel_approximation`, `sklearn.neural_network.BernoulliRBM`, `sklearn.kernel_ridge`,
`sklearn.neighbors.NearestCentroid`, `sklearn.cluster.Birch`, `sklearn.covariance.EllipticEnvelope`, `sklearn.dummy`.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse

from onnxtool.conversion.sklearn.converters.distances import distances
from onnxtool.conversion.sklearn.converters.kernels import kernel_of
from onnxtool.conversion.sklearn.converters.members import give_posterior
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import classifier, converter_patch, labels_and_scores, transformer
from onnxtool.errors import UnsupportedError


def _convert_sampler(write: NodeWriter) -> None:
    step, x = write.step, write.joined()
    if hasattr(step, "skewedness"):
        x = write.add("Log", write.add("Add", x, float(step.skewedness)))
    shifted = write.add("Add", write.add("MatMul", x, np.float64(step.random_weights_)), step.random_offset_)
    factor = float(np.sqrt(2.0 / step.n_components))
    write.give(write.add("Mul", write.add_of("", 7, "Cos", shifted), factor))


def _convert_additive(write: NodeWriter) -> None:
    """Roots, and waves of logarithms; of zero all are zero, as roots are."""
    step, x = write.step, write.joined()
    interval = float(step.sample_interval or {1: 0.8, 2: 0.5, 3: 0.4}[step.sample_steps])
    roots = write.add("Sqrt", x)
    angles = write.add("Log", write.add("Where", write.add("Equal", x, 0.0), 1.0, x))
    parts = [write.add("Mul", roots, float(np.sqrt(interval)))]
    for turn in range(1, step.sample_steps):
        length = write.add("Mul", roots, float(np.sqrt(2 * interval / np.cosh(np.pi * turn * interval))))
        angle = write.add("Mul", angles, turn * interval)
        parts += [write.add("Mul", length, write.add_of("", 7, wave, angle)) for wave in ("Cos", "Sin")]
    write.give(write.columns(parts))


def _convert_machine(write: NodeWriter) -> None:
    sums = write.add("MatMul", write.joined(), np.float64(write.step.components_.T))
    write.give(write.add("Sigmoid", write.add("Add", sums, np.float64(write.step.intercept_hidden_))))


def _convert_nystroem(write: NodeWriter) -> None:
    step = write.step
    fitted = np.asarray(step.components_, np.float64)
    first, degree = 1.0 if step.coef0 is None else step.coef0, 3.0 if step.degree is None else step.degree
    kernel = kernel_of(write, write.joined(), fitted, step.kernel, gamma=step.gamma, first=first, degree=degree)
    write.give(write.add("MatMul", kernel, np.float64(step.normalization_.T)))


def _convert_count_sketch(write: NodeWriter) -> None:
    """Hashed columns of each factor, circularly convolved: products of their Fourier transforms, which are matrices."""
    step = write.step
    count = int(step.n_components)
    x = write.add("Mul", write.joined(), float(np.sqrt(step.gamma)))
    waves = np.exp(-2j * np.pi * (np.outer(np.arange(count), np.arange(count)) % count) / count)
    real = imaginary = ""
    for places, signs in zip(step.indexHash_, step.bitHash_, strict=True):
        turned = waves[places] * np.asarray(signs)[:, None]
        row = np.sqrt(step.coef0) * turned[-1:] if step.coef0 != 0 else np.zeros((1, count))
        turned = turned[: step.n_features_in_]
        a, b = (
            write.add("Add", write.add("MatMul", x, np.ascontiguousarray(part)), np.ascontiguousarray(more))
            for part, more in ((turned.real, row.real), (turned.imag, row.imag))
        )
        if real:
            straight, crossed = write.add("Mul", imaginary, b), write.add("Mul", real, b)
            real, imaginary = (
                write.add("Sub", write.add("Mul", real, a), straight),
                write.add("Add", crossed, write.add("Mul", imaginary, a)),
            )
        else:
            real, imaginary = a, b
    back = waves.conj() / count
    parts = write.add("MatMul", real, back.real.copy()), write.add("MatMul", imaginary, back.imag.copy())
    write.give(write.add("Sub", *parts))


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
    give_posterior(write, scores)


def _convert_constant(write: NodeWriter) -> None:
    write.give(write.on_all_rows(np.asarray(write.step.constant_, np.float64).reshape(1, -1)))


def _convert_constant_class(write: NodeWriter) -> None:
    model = write.step
    if isinstance(model.classes_, list):
        raise UnsupportedError("DummyClassifier: several targets have no ONNX form here.")
    if model.strategy not in ("prior", "most_frequent", "constant"):
        raise UnsupportedError(f"DummyClassifier(strategy={model.strategy!r}): it predicts at random.")
    place = int(np.argmax(model.class_prior_))
    if model.strategy == "constant":
        place = list(model.classes_).index(np.ravel(model.constant)[0])
    chances = model.class_prior_ if model.strategy == "prior" else np.eye(len(model.classes_))[place]
    shown = write.on_all_rows(np.asarray(chances, np.float64).reshape(1, -1))
    write.give_labels(write.add("ArgMax", shown, axis=1, keepdims=0), model.classes_)
    write.give(shown, write.outputs[1])


def _convert_ellipse(write: NodeWriter) -> None:
    model = write.step
    apart = write.add("Sub", write.joined(), np.asarray(model.location_, np.float64).reshape(1, -1))
    parts = write.add("Mul", write.add("MatMul", apart, np.float64(model.get_precision())), apart)
    score = write.add("Sub", -float(model.offset_), write.add("ReduceSum", parts, np.array([1]), keepdims=1))
    write.give_inliers(score)


def _convert_subclusters(write: NodeWriter) -> None:
    model = write.step
    apart = distances(write, write.joined(), np.asarray(model.subcluster_centers_, np.float64), "euclidean")
    write.give_labels(write.add("ArgMin", apart, axis=1, keepdims=0), model.subcluster_labels_)
    write.give(apart, write.outputs[1])


PATCH = converter_patch(
    "",
    "skl2onnx 1.20 has no converters for them",
    transformer("sklearn.kernel_approximation:Nystroem", _convert_nystroem, lambda step: len(step.normalization_)),
    transformer(
        "sklearn.kernel_approximation:PolynomialCountSketch", _convert_count_sketch, lambda step: step.n_components
    ),
    *(
        transformer(f"sklearn.kernel_approximation:{kind}", _convert_sampler, lambda step: len(step.random_offset_))
        for kind in ("RBFSampler", "SkewedChi2Sampler")
    ),
    transformer(
        "sklearn.kernel_approximation:AdditiveChi2Sampler",
        _convert_additive,
        lambda step: step.n_features_in_ * (2 * step.sample_steps - 1),
    ),
    transformer("sklearn.neural_network:BernoulliRBM", _convert_machine, lambda step: len(step.components_)),
    transformer(
        "sklearn.kernel_ridge:KernelRidge", _convert_ridge, lambda step: int(np.prod(step.dual_coef_.shape[1:]))
    ),
    transformer(
        "onnxtool.conversion.sklearn.cluster_distances:ClusterDistances",
        _convert_clusters,
        lambda step: len(step.centres_),
    ),
    classifier("sklearn.neighbors:NearestCentroid", _convert_centroid),
    transformer("sklearn.dummy:DummyRegressor", _convert_constant, lambda model: np.size(model.constant_)),
    classifier("sklearn.dummy:DummyClassifier", _convert_constant_class),
    labels_and_scores("sklearn.covariance:EllipticEnvelope", _convert_ellipse, lambda _: 1),
    labels_and_scores("sklearn.cluster:Birch", _convert_subclusters, lambda model: len(model.subcluster_labels_)),
)

"""Mixtures of Gaussians, and quadratic discriminants, in doubles.

Logarithms of likelihoods are large sums of which the differences count.

Source: scikit-learn, `sklearn.mixture` (`_estimate_log_gaussian_prob`), `sklearn.discriminant_analysis`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from onnxtool.conversion.sklearn.converters.members import give_posterior
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import classifier, converter_patch, extension


def _convert_mixture(write: NodeWriter, _original: Callable[[], None]) -> None:
    model, x = write.step, write.joined()
    means, roots = model.means_, model.precisions_cholesky_
    if model.covariance_type in ("full", "tied"):
        each = list(roots) if roots.ndim == 3 else [roots] * len(means)
        centres = np.stack([mean @ root for mean, root in zip(means, each, strict=True)]).astype(np.float64)
        side_by_side = np.concatenate(each, axis=1).astype(np.float64)
        rows = write.add("Reshape", write.add("MatMul", x, side_by_side), np.array([0, *centres.shape]))
        apart = write.add("Sub", rows, centres[None])
    else:
        scale = roots.astype(np.float64).reshape(1, len(roots), -1)
        apart = write.add("Mul", _differences(write, x, means), scale)
    at_centres = copy.copy(model)
    at_centres.means_ = np.zeros(means.shape)
    constants = at_centres._estimate_weighted_log_prob(at_centres.means_[:1])
    _give(write, _halved(write, write.add("Mul", apart, apart), constants), np.arange(len(means)))


def _differences(write: NodeWriter, x: str, centres: np.ndarray) -> str:
    """[rows, centres, features]."""
    return write.add("Sub", write.add("Unsqueeze", x, np.array([1])), np.asarray(centres, np.float64)[None])


def _halved(write: NodeWriter, squares: str, constants: np.ndarray) -> str:
    """[rows, classes]: constants less half of the sums of squares [rows, classes, features]."""
    total = write.add("ReduceSum", squares, np.array([2]), keepdims=0)
    return write.add("Sub", np.reshape(constants, (1, -1)), write.add("Mul", total, 0.5))


def _give(write: NodeWriter, logs: str, classes: np.ndarray) -> None:
    """The likeliest class, and the chances of all."""
    write.give_labels(write.add("ArgMax", logs, axis=1, keepdims=0), classes)
    largest = write.largest(logs)
    shares = write.add("ReduceSum", write.add("Exp", write.add("Sub", logs, largest)), np.array([1]), keepdims=1)
    total = write.add("Add", largest, write.add("Log", shares))
    write.give(write.add("Exp", write.add("Sub", logs, total)), write.outputs[1])


def _convert_quadratic(write: NodeWriter) -> None:
    model, x, parts = write.step, write.joined(), []
    for mean, rotation, scaling in zip(model.means_, model.rotations_, model.scalings_, strict=True):
        turned = write.add(
            "MatMul", write.add("Sub", x, np.asarray(mean, np.float64)[None]), np.float64(rotation * scaling**-0.5)
        )
        parts.append(write.add("ReduceSum", write.add("Mul", turned, turned), np.array([1]), keepdims=1))
    constants = np.log(model.priors_) - 0.5 * np.array([np.log(scaling).sum() for scaling in model.scalings_])
    logs = write.add("Sub", constants[None], write.add("Mul", write.columns(parts), 0.5))
    write.give_labels(write.add("ArgMax", logs, axis=1, keepdims=0), model.classes_)
    give_posterior(write, logs)


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 subtracts large numbers of mixtures, and has no decision function of quadratic discriminants",
    extension("sklearn.mixture:GaussianMixture", _convert_mixture),
    extension("sklearn.mixture:BayesianGaussianMixture", _convert_mixture),
    classifier("sklearn.discriminant_analysis:QuadraticDiscriminantAnalysis", _convert_quadratic),
)

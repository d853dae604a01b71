"""Mixtures of Gaussians, naive Bayes, quadratic discriminants, and classes by Gaussian processes, in doubles.

Logarithms of likelihoods are large sums of which the differences count.

Source: scikit-learn, `sklearn.mixture` (`_estimate_log_gaussian_prob`), `sklearn.discriminant_analysis`,
`sklearn.gaussian_process` (algorithm 3.2 of Rasmussen and Williams 2006, "Gaussian processes for machine learning").
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.kernels import covariance
from onnxtool.conversion.sklearn.converters.members import give_posterior
from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import classifier, converter_patch, extension, typed_as_rows
from onnxtool.errors import UnsupportedError


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


def _convert_truths(write: NodeWriter, _original: Callable[[], None]) -> None:
    model, x = write.step, write.joined()
    if model.binarize is not None:
        x = write.cast(write.add("Greater", x, float(model.binarize)), DOUBLE)
    absent = np.log(1 - np.exp(model.feature_log_prob_))
    logs = write.add("MatMul", x, np.ascontiguousarray((model.feature_log_prob_ - absent).T))
    begin = model.class_log_prior_ + absent.sum(axis=1)
    _give(write, write.add("Add", logs, begin[None]), model.classes_)


_NODES = 32  # of the quadrature; an error function of up to 6 has all its digits


def _error_function(write: NodeWriter, value: str) -> str:
    """Of [..., 1], in doubles, for which the runtime has no kernel: the integral of exp(-t^2) by Gauss's nodes."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    value = write.add("Min", write.add("Max", value, -6.0), 6.0)
    points = write.add("Mul", value, (nodes + 1) / 2)
    bells = write.add("Exp", write.add("Neg", write.add("Mul", points, points)))
    return write.add("Mul", write.add("MatMul", bells, weights[:, None] / np.sqrt(np.pi)), value)


def _latent(write: NodeWriter, x: str, model: Any) -> tuple[str, str]:
    """Of two classes: the mean of the latent function, and the chance of the second class, [rows, 1]."""
    from sklearn.gaussian_process._gpc import COEFS, LAMBDAS

    fitted = np.asarray(model.X_train_, np.float64)
    kernel = covariance(write, x, fitted, model.kernel_)
    kernel = write.add("Add", np.zeros((1, len(fitted))), kernel)
    mean = write.add("MatMul", kernel, (model.y_train_ - model.pi_).reshape(-1, 1))
    seen = write.add("MatMul", kernel, np.ascontiguousarray(np.linalg.solve(model.L_, np.diag(model.W_sr_)).T))
    known = write.add("ReduceSum", write.add("Mul", seen, seen), np.array([1]), keepdims=1)
    variance = write.add("Sub", covariance(write, x, None, model.kernel_), known)
    scale = LAMBDAS.reshape(1, -1)
    wide = write.add("Sqrt", write.add("Add", write.add("Mul", variance, 2 * scale**2), 1.0))
    nowhere = write.add("Mul", write.add("Sqrt", variance), 0.0)  # NaN below zero, as there
    ratios = write.add("Div", write.add("Mul", write.add("Add", mean, nowhere), scale), wide)
    steps = _error_function(write, write.add("Unsqueeze", ratios, np.array([2])))
    parts = write.add("MatMul", write.add("Squeeze", steps, np.array([2])), COEFS.reshape(-1, 1) / 2)
    return mean, write.add("Add", parts, float(COEFS.sum() / 2))


def _convert_process(write: NodeWriter) -> None:
    model, x = write.step, write.joined()
    several = len(model.classes_) > 2
    if several and model.multi_class != "one_vs_rest":
        raise UnsupportedError("GaussianProcessClassifier: multi_class='one_vs_one' gives no chances.")
    members = model.base_estimator_.estimators_ if several else [model.base_estimator_]
    latent = [_latent(write, x, member) for member in members]
    if not several:
        ((mean, chance),) = latent
        places = write.cast(write.add("Less", 0.0, write.add("Squeeze", mean, np.array([1]))), INT64)
        chances = write.columns([write.add("Sub", 1.0, chance), chance])
    else:
        each = write.columns([chance for _, chance in latent])
        places = write.add("ArgMax", each, axis=1, keepdims=0)
        chances = write.add("Div", each, write.add("ReduceSum", each, np.array([1]), keepdims=1))
    write.give_labels(places, model.classes_)
    write.give(chances, write.outputs[1])


def _convert_process_mean(write: NodeWriter, original: Callable[[], None]) -> None:
    model = write.step
    if not hasattr(model, "X_train_"):  # not fitted: that it predicts zeros is skl2onnx's
        original()
        return
    fitted, weights = np.asarray(model.X_train_, np.float64), np.asarray(model.alpha_, np.float64)
    kernel = covariance(write, write.joined(), fitted, model.kernel_)
    kernel = write.on_all_rows(np.full((1, len(fitted)), kernel)) if isinstance(kernel, float) else kernel
    scale, level = (np.asarray(n, np.float64).reshape(1, -1) for n in (model._y_train_std, model._y_train_mean))
    # ONNX Runtime makes MatMul and Mul one operator, whose factor is a float32.
    write.give(write.add("Add", write.add("MatMul", kernel, weights.reshape(len(fitted), -1) * scale), level))


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 subtracts large numbers of mixtures, takes a little more than 1 for 1 in BernoulliNB, has no "
    "decision function of quadratic discriminants, and solves the equations of a Gaussian process by an operator that "
    "no runtime has",
    extension("sklearn.mixture:GaussianMixture", _convert_mixture),
    extension("sklearn.mixture:BayesianGaussianMixture", _convert_mixture),
    extension("sklearn.naive_bayes:BernoulliNB", _convert_truths),
    classifier("sklearn.discriminant_analysis:QuadraticDiscriminantAnalysis", _convert_quadratic),
    classifier("sklearn.gaussian_process:GaussianProcessClassifier", _convert_process),
    extension("sklearn.gaussian_process:GaussianProcessRegressor", _convert_process_mean, shapes=typed_as_rows),
)

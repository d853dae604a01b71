"""Kernels of rows and fitted rows, in doubles.

Source: scikit-learn, `sklearn.metrics.pairwise`; libsvm's of the same names are the same functions. Covariances are
those of `sklearn.gaussian_process.kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.distances import distances
from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.errors import UnsupportedError


def kernel_of(
    write: NodeWriter, x: str, fitted: np.ndarray, kind: object, *, gamma: float | None, first: float, degree: float
) -> str:
    """[rows, fitted rows].

    Args:
        write: adds nodes.
        x: [rows, features], doubles.
        fitted: [fitted rows, features].
        kind: as scikit-learn names it.
        gamma: factor of distances and products; None is one over the number of features.
        first: what is added to products (coef0).
        degree: of polynomials.

    Raises:
        UnsupportedError: another kernel.
    """
    factor = 1.0 / fitted.shape[1] if gamma is None else float(gamma)
    if kind in ("rbf", "laplacian"):
        apart = distances(write, x, fitted, "sqeuclidean" if kind == "rbf" else "manhattan")
        return write.add("Exp", write.add("Mul", apart, -factor))
    if kind == "cosine":
        return write.add("Sub", 1.0, distances(write, x, fitted, "cosine"))
    if kind == "linear":
        return write.add("MatMul", x, np.ascontiguousarray(fitted.T))
    if kind not in ("poly", "polynomial", "sigmoid"):
        raise UnsupportedError(f"{type(write.step).__name__}: its kernel {kind!r} has no ONNX form here.")
    # ONNX Runtime makes MatMul and Mul one operator, whose factor is a float32.
    products = write.add("MatMul", x, factor * np.ascontiguousarray(fitted.T))
    scaled = write.add("Add", products, float(first))
    return write.add("Tanh", scaled) if kind == "sigmoid" else write.add("Pow", scaled, float(degree))


_JOINED = {"Sum": "Add", "Product": "Mul"}


def covariance(write: NodeWriter, x: str, fitted: np.ndarray | None, kernel: Any) -> str | float:
    """[rows, fitted rows] of a Gaussian process; [rows, 1] of each row with itself where `fitted` is None. A number
    stands for all of them.

    Raises:
        UnsupportedError: a kernel without a form here.
    """
    kind = type(kernel).__name__
    if kind in _JOINED or kind == "Exponentiation":
        sides = [kernel.kernel] if kind == "Exponentiation" else [kernel.k1, kernel.k2]
        parts = [covariance(write, x, fitted, side) for side in sides]
        parts += [float(kernel.exponent)] if kind == "Exponentiation" else []
        return write.add(_JOINED.get(kind, "Pow"), *parts)
    if kind == "ConstantKernel":
        return float(kernel.constant_value)
    if kind == "WhiteKernel":
        return float(kernel.noise_level) if fitted is None else 0.0
    if kind == "DotProduct":
        squared = float(kernel.sigma_0) ** 2
        if fitted is None:
            return write.add("Add", write.add("ReduceSum", write.add("Mul", x, x), np.array([1]), keepdims=1), squared)
        return write.add("Add", write.add("MatMul", x, np.ascontiguousarray(fitted.T)), squared)
    if kind not in ("RBF", "Matern", "RationalQuadratic", "ExpSineSquared"):
        raise UnsupportedError(f"{type(write.step).__name__}: its kernel {kind} has no ONNX form here.")
    return 1.0 if fitted is None else _stationary(write, x, fitted, kernel)


def _stationary(write: NodeWriter, x: str, fitted: np.ndarray, kernel: Any) -> str:
    """By the distances alone."""
    kind, length = type(kernel).__name__, np.asarray(kernel.length_scale, np.float64).reshape(1, -1)
    if kind == "ExpSineSquared":
        waves = write.add("Mul", distances(write, x, fitted, "euclidean"), float(np.pi / kernel.periodicity))
        wave = write.add("Div", write.add_of("", 7, "Sin", waves), float(kernel.length_scale))
        return write.add("Exp", write.add("Mul", write.add("Mul", wave, wave), -2.0))
    squares = distances(write, write.add("Div", x, length), fitted / length, "sqeuclidean")
    if kind == "RationalQuadratic":
        base = write.add("Add", write.add("Div", squares, float(2 * kernel.alpha)), 1.0)
        return write.add("Pow", base, -float(kernel.alpha))
    if kind == "RBF" or kernel.nu == np.inf:
        return write.add("Exp", write.add("Mul", squares, -0.5))
    if kernel.nu not in (0.5, 1.5, 2.5):
        raise UnsupportedError(f"{type(write.step).__name__}: Matern with nu={kernel.nu:g} has no ONNX form here.")
    apart = write.add("Sqrt", write.add("Mul", squares, float(2 * kernel.nu)))
    decay = write.add("Exp", write.add("Neg", apart))
    if kernel.nu == 0.5:
        return decay
    factor = write.add("Add", apart, 1.0)
    if kernel.nu == 2.5:
        factor = write.add("Add", factor, write.add("Div", write.add("Mul", apart, apart), 3.0))
    return write.add("Mul", factor, decay)

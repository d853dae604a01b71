"""Kernels of rows and fitted rows, in doubles.

Source: scikit-learn, `sklearn.metrics.pairwise`; libsvm's of the same names are the same functions.
"""

from __future__ import annotations

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

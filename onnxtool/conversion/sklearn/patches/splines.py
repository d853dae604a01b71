"""SplineTransformer: each basis function as polynomials between the knots.

Source: scikit-learn, `sklearn.preprocessing._polynomial`; de Boor, "A Practical Guide to Splines", chapter IX.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.errors import UnsupportedError


def _convert(write: NodeWriter) -> None:
    step = write.step
    if step.extrapolation == "linear" and step.degree <= 1 and len(step.bsplines_) > 1:
        # scikit-learn 1.9 counts its degree up from one feature to the next there.
        raise UnsupportedError("SplineTransformer: extrapolation='linear' of degree 1 is for one feature only here.")
    x = write.joined()
    columns = [_feature(write, step, spline, x, place) for place, spline in enumerate(step.bsplines_)]
    write.give(write.columns(columns))


def _feature(write: NodeWriter, step: Estimator, spline: Any, x: str, place: int) -> str:
    """The basis functions of one feature, [rows, functions]."""
    knots, powers = _polynomials(spline)
    if not step.include_bias:
        powers = powers[:, :, :-1]
    first, last = knots[:1, None], knots[-1:, None]
    value = write.add("Gather", x, np.array([place]), axis=1)
    within = value
    if step.extrapolation == "periodic":
        period = float(knots[-1] - knots[0])
        beyond = write.add("Sub", value, first)
        turns = write.add("Floor", write.add("Div", beyond, period))
        within = write.add("Add", first, write.add("Sub", beyond, write.add("Mul", turns, period)))
    elif step.extrapolation in ("constant", "linear"):
        within = write.add("Min", write.add("Max", value, first), last)
    passed = write.cast(write.add("GreaterOrEqual", within, knots[None, 1:-1]), INT64)
    interval = write.add("ReduceSum", passed, np.array([1]), keepdims=0)
    chosen = [write.add("Gather", table, interval, axis=0) for table in powers]
    begin = write.add("Gather", knots[:-1, None], interval, axis=0)
    offset = write.add("Sub", within, begin)
    result = _horner(write, chosen, offset)
    if step.extrapolation == "linear":
        degree = len(chosen) - 1
        slopes = [write.add("Mul", table, float(degree - power)) for power, table in enumerate(chosen[:-1])]
        outside = write.add("Sub", value, within)
        result = write.add("Add", result, write.add("Mul", outside, _horner(write, slopes, offset)))
    return result


def _horner(write: NodeWriter, coefficients: list[str], x: str) -> str:
    """A polynomial of each column, the highest power first."""
    total = coefficients[0]
    for following in coefficients[1:]:
        total = write.add("Add", write.add("Mul", total, x), following)
    return total


def _polynomials(spline: Any) -> tuple[np.ndarray, np.ndarray]:
    """Knots between which a feature lies, float64[knots], and the coefficients of each function in each interval.

    Args:
        spline: scipy's BSpline with one column of coefficients for each function.

    Returns:
        The knots, and float64[powers, knots - 1, functions], the highest power first.
    """
    from scipy.interpolate import BSpline, PPoly

    degree, count = spline.k, spline.t.size - spline.k - 1
    if spline.t[degree] == spline.t[count]:  # of a feature that was constant: scikit-learn gives the same everywhere
        at = float(spline.t[degree])
        level = np.nan_to_num(np.asarray(spline(at), np.float64)).reshape(1, 1, -1)
        return np.array([at, at + 1.0]), np.concatenate([np.zeros((degree, *level.shape[1:])), level])
    parts = [PPoly.from_spline(BSpline(spline.t, column, degree)) for column in np.asarray(spline.c).T]
    inner = slice(degree, count)
    coefficients = np.stack([part.c[:, inner] for part in parts], axis=-1).astype(np.float64)
    return np.asarray(spline.t[degree : count + 1], np.float64), coefficients


PATCH = converter_patch(
    "",
    "skl2onnx 1.20 has no converter for it",
    transformer("sklearn.preprocessing:SplineTransformer", _convert, lambda step: int(step.n_features_out_)),
)

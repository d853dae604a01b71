"""SplineTransformer -> ONNX, which skl2onnx 1.20 lacks: each basis function as polynomials between the knots.

Source: scikit-learn, `sklearn.preprocessing._polynomial`; de Boor, "A Practical Guide to Splines", chapter IX.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import register_transformer
from onnxtool.errors import UnsupportedError


@cache
def register() -> None:
    """Let skl2onnx convert it by this converter."""
    from sklearn.preprocessing import SplineTransformer

    register_transformer(SplineTransformer, _convert, lambda step: int(step.n_features_out_))


def _convert(scope: Any, operator: Any, container: Any) -> None:
    step = operator.raw_operator
    if step.extrapolation == "linear" and step.degree <= 1 and len(step.bsplines_) > 1:
        # scikit-learn 1.9 counts its degree up from one feature to the next there.
        raise UnsupportedError("SplineTransformer: extrapolation='linear' of degree 1 is for one feature only here.")
    write = NodeWriter(scope, container, "splines")
    x = write.joined(operator.inputs)
    columns = [_feature(write, step, spline, x, place) for place, spline in enumerate(step.bsplines_)]
    write.give(columns[0] if len(columns) == 1 else write.add("Concat", *columns, axis=1), operator.outputs[0])


def _feature(write: NodeWriter, step: Any, spline: Any, x: str, place: int) -> str:
    """The basis functions of one feature, [rows, functions]."""
    knots, powers = _polynomials(spline)
    if not step.include_bias:
        powers = powers[:, :, :-1]
    first, last = (write.constant(np.array([[knot]])) for knot in (knots[0], knots[-1]))
    value = write.add("Gather", x, write.constant(np.array([place])), axis=1)
    within = value
    if step.extrapolation == "periodic":
        period = write.constant(np.array([[knots[-1] - knots[0]]]))
        beyond = write.add("Sub", value, first)
        turns = write.add("Floor", write.add("Div", beyond, period))
        within = write.add("Add", first, write.add("Sub", beyond, write.add("Mul", turns, period)))
    elif step.extrapolation in ("constant", "linear"):
        within = write.add("Min", write.add("Max", value, first), last)
    inner = write.constant(knots[None, 1:-1])
    passed = write.cast(write.add("GreaterOrEqual", within, inner), INT64)
    interval = write.add("ReduceSum", passed, write.constant(np.array([1])), keepdims=0)
    chosen = [write.add("Gather", write.constant(table), interval, axis=0) for table in powers]
    begin = write.add("Gather", write.constant(knots[:-1, None]), interval, axis=0)
    offset = write.add("Sub", within, begin)
    result = _horner(write, chosen, offset)
    if step.extrapolation == "linear":
        degree = len(chosen) - 1
        factors = [write.constant(np.array([[float(degree - p)]])) for p in range(degree)]
        slopes = [write.add("Mul", table, by) for table, by in zip(chosen, factors, strict=False)]
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
    parts = [PPoly.from_spline(BSpline(spline.t, column, degree)) for column in np.asarray(spline.c).T]
    inner = slice(degree, count)
    coefficients = np.stack([part.c[:, inner] for part in parts], axis=-1).astype(np.float64)
    return np.asarray(spline.t[degree : count + 1], np.float64), coefficients

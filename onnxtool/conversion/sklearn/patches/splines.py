"""PolynomialFeatures and SplineTransformer: products and basis functions of columns, to the last digit.

Source: scikit-learn, `sklearn.preprocessing._polynomial`; de Boor, "A Practical Guide to Splines", chapter IX.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import Estimator
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.conversion.sklearn.source_columns import computes_in_float32
from onnxtool.errors import UnsupportedError


def _convert_products(write: NodeWriter) -> None:
    """All columns at once, factor by factor from the last to the first, as scikit-learn multiplies."""
    step, count = write.step, int(write.step.n_features_in_)
    padded = write.add("Pad", write.joined(), np.array([0, 0, 0, 1]), 1.0)  # a column of ones, for lower degrees
    degree = max(1, int(step.powers_.sum(1).max()))
    factors = np.full((len(step.powers_), degree), count)
    for own, powers in zip(factors, step.powers_, strict=True):
        named = np.repeat(np.arange(count), powers)
        own[degree - len(named) :] = named
    single = computes_in_float32(write)
    product = write.add("Gather", padded, factors[:, -1], axis=1)
    for place in range(degree - 2, -1, -1):
        product = write.add("Mul", write.add("Gather", padded, factors[:, place], axis=1), product)
        product = write.in_float32(product) if single else product
    write.give(product)


def _convert(write: NodeWriter) -> None:
    step = write.step
    if step.extrapolation == "linear" and step.degree <= 1 and len(step.bsplines_) > 1:
        # scikit-learn 1.9 counts its degree up from one feature to the next there.
        raise UnsupportedError("SplineTransformer: extrapolation='linear' of degree 1 is for one feature only here.")
    x = write.joined()
    columns = [_feature(write, step, spline, x, place) for place, spline in enumerate(step.bsplines_)]
    found = write.columns(columns)
    # SciPy computes in float64 in any case; scikit-learn keeps that in the type of the rows.
    write.give(write.in_float32(found) if computes_in_float32(write) else found)


def _feature(write: NodeWriter, step: Estimator, spline: Any, x: str, place: int) -> str:
    """The basis functions of one feature, [rows, functions]."""
    kept = slice(None if step.include_bias else -1)
    value = write.add("Gather", x, np.array([place]), axis=1)
    first, last = spline.t[spline.k], spline.t[spline.t.size - spline.k - 1]
    if first == last:  # of a feature that was constant: scikit-learn gives the same everywhere
        level = np.nan_to_num(spline(0.0 if step.extrapolation == "periodic" else first))[kept]
        result = write.add("Where", write.add("IsInf", value), level[None], level[None])
    elif step.extrapolation == "periodic":
        rest = write.add("Mod", write.add("Sub", value, first), last - first, fmod=1)
        below = write.add("Where", write.add("Less", rest, 0.0), last - first, 0.0)
        result = _functions(write, spline, write.add("Add", write.add("Add", rest, below), first), kept)
    elif step.extrapolation in ("constant", "linear"):
        result = _functions(write, spline, write.add("Min", write.add("Max", value, first), last), kept)
    else:
        result = _functions(write, spline, value, kept)
    if step.extrapolation == "linear" and first != last:
        for end, kind in ((first, "Less"), (last, "Greater")):
            further = write.add("Mul", write.add("Sub", value, end), spline(end, nu=1)[None, kept])
            line = write.add("Add", further, spline(end)[None, kept])
            result = write.add("Where", write.add(kind, value, end), line, result)
    return write.add("Where", write.add("IsNaN", value), 0.0, result)


def _functions(write: NodeWriter, spline: Any, x: str, kept: slice) -> str:
    """A spline's columns, in the order in which scipy adds and multiplies: its last digits may decide what follows.

    Source: de Boor's recursion as in scipy 1.17, `_deBoor_D` of interpolate/src/__fitpack.cc.
    """
    degree, knots = spline.k, np.asarray(spline.t, np.float64)
    places = np.arange(degree, knots.size - degree - 1)  # of the knots at which intervals begin
    passed = write.cast(write.add("GreaterOrEqual", x, knots[None, places[1:]]), INT64)
    interval = write.add("ReduceSum", passed, np.array([1]), keepdims=0)
    above = [write.add("Sub", write.add("Gather", knots[places + n, None], interval, axis=0), x) for n in
             range(1, degree + 1)]  # fmt: skip
    below = [write.add("Sub", x, write.add("Gather", knots[places - n, None], interval, axis=0)) for n in range(degree)]
    values = [write.constant(np.ones((1, 1)))]
    for order in range(1, degree + 1):
        following: list[str] = []
        for n in range(1, order + 1):
            width = knots[places + n, None] - knots[places + n - order, None]
            width[width == 0] = np.inf  # of knots that are one: nothing is added
            part = write.add("Div", values[n - 1], write.add("Gather", width, interval, axis=0))
            lower = write.add("Mul", part, above[n - 1])
            following[-1:] = [lower if n == 1 else write.add("Add", following[-1], lower)]
            following.append(write.add("Mul", part, below[order - n]))
        values = following
    table = np.asarray(spline.c, np.float64)[:, kept]
    total = ""
    for n, part in enumerate(values):
        term = write.add("Mul", part, write.add("Gather", table[places - degree + n], interval, axis=0))
        total = write.add("Add", total, term) if total else term
    return total


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 writes two nodes for each product of columns, and has no converter for splines",
    transformer("sklearn.preprocessing:PolynomialFeatures", _convert_products, lambda step: len(step.powers_)),
    transformer("sklearn.preprocessing:SplineTransformer", _convert, lambda step: int(step.n_features_out_)),
)

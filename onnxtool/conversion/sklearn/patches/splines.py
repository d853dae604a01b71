"""PolynomialFeatures and SplineTransformer: products and basis functions of columns, to the last digit.

Source: scikit-learn, `sklearn.preprocessing._polynomial`; de Boor, "A Practical Guide to Splines", chapter IX.
"""

from __future__ import annotations

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.conversion.sklearn.patches.isotonic import points_reached
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
    splines, kept = step.bsplines_, slice(None if step.include_bias else -1)
    knots = np.stack([np.asarray(spline.t, np.float64) for spline in splines], axis=1)
    first, last = knots[step.degree], knots[-step.degree - 1]
    periodic = step.extrapolation == "periodic"
    x = value = write.joined()
    if periodic:
        length = np.where(last == first, 1.0, last - first)
        rest = write.add("Mod", write.add("Sub", x, first), length, fmod=1)
        below = write.add("Where", write.add("Less", rest, 0.0), length, 0.0)
        value = write.add("Add", write.add("Add", rest, below), first)
    elif step.extrapolation in ("constant", "linear"):
        value = write.add("Min", write.add("Max", x, first), last)
    result = _functions(write, knots, np.asarray(splines[0].c, np.float64)[:, kept], value)
    x = write.add("Unsqueeze", x, np.array([2]))
    if step.extrapolation == "linear":
        for ends, kind in ((first, "Less"), (last, "Greater")):
            slopes, levels = (
                np.stack([f(end, nu=n) for f, end in zip(splines, ends, strict=True)])[:, kept] for n in (1, 0)
            )
            line = write.add("Add", write.add("Mul", write.add("Sub", x, ends[:, None]), slopes), levels)
            result = write.add("Where", write.add(kind, x, ends[:, None]), line, result)
    # Of features that were constant scikit-learn gives the same everywhere, but for steps that go on beyond.
    if (first == last).any() and (step.degree or periodic):
        at = np.zeros(len(splines)) if periodic else first
        same = np.nan_to_num([f(end) for f, end in zip(splines, at, strict=True)])[:, kept]
        result = write.add("Where", (first == last)[:, None], same, result)
    result = write.add("Where", write.add("IsNaN", x), 0.0, result)
    found = write.add("Reshape", result, np.array([0, len(splines) * splines[0].c[:, kept].shape[1]]))
    # SciPy computes in float64 in any case; scikit-learn keeps that in the type of the rows.
    write.give(write.in_float32(found) if computes_in_float32(write) else found)


def _functions(write: NodeWriter, knots: np.ndarray, weights: np.ndarray, x: str) -> str:
    """The basis functions of all features, [rows, features, functions], in the order in which scipy adds and
    multiplies: their last digits may decide what follows.

    Source: de Boor's recursion as in scipy 1.17, `_deBoor_D` of interpolate/src/__fitpack.cc.

    Args:
        write: adds nodes.
        knots: [knots, features].
        weights: of the splines in each function, the same for all features.
        x: [rows, features].
    """
    degree = len(knots) - len(weights) - 1
    places = np.arange(degree, len(knots) - degree - 1)  # of the knots at which intervals begin
    interval = points_reached(write, x, knots[places[1:]].T)
    features = knots.shape[1]
    index = write.add("Add", write.add("Mul", interval, np.array([features])), np.arange(features))

    def there(table: np.ndarray) -> str:
        """What a table [intervals, features] has for each number."""
        return write.add("Gather", table.reshape(-1), index, axis=0)

    above = [write.add("Sub", there(knots[places + n]), x) for n in range(1, degree + 1)]
    below = [write.add("Sub", x, there(knots[places - n])) for n in range(degree)]
    values = [write.constant(np.ones((1, features)))]
    for order in range(1, degree + 1):
        following: list[str] = []
        for n in range(1, order + 1):
            width = knots[places + n] - knots[places + n - order]
            width[width == 0] = np.inf  # of knots that are one: nothing is added
            part = write.add("Div", values[n - 1], there(width))
            lower = write.add("Mul", part, above[n - 1])
            following[-1:] = [lower if n == 1 else write.add("Add", following[-1], lower)]
            following.append(write.add("Mul", part, below[order - n]))
        values = following
    total = ""
    for n, part in enumerate(values):
        own = write.add("Gather", weights[places - degree + n], interval, axis=0)
        term = write.add("Mul", write.add("Unsqueeze", part, np.array([2])), own)
        total = write.add("Add", total, term) if total else term
    return total


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 writes two nodes for each product of columns, and has no converter for splines",
    transformer("sklearn.preprocessing:PolynomialFeatures", _convert_products, lambda step: len(step.powers_)),
    transformer("sklearn.preprocessing:SplineTransformer", _convert, lambda step: int(step.n_features_out_)),
)

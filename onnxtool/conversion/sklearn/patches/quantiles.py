"""QuantileTransformer, by tables and the normal distribution's own formula.

Source: scikit-learn, `sklearn.preprocessing.QuantileTransformer`; M. J. Wichura, "Algorithm AS 241: The percentage
points of the normal distribution", Applied Statistics 37 (1988), PPND16, which is right to 1e-16 of the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtool.conversion.sklearn.converters.node_writer import DOUBLE, FLOAT, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, transformer
from onnxtool.conversion.sklearn.patches.exact_columns import passed_thresholds
from onnxtool.conversion.sklearn.patches.isotonic import on_lines
from onnxtool.conversion.sklearn.source_columns import reads_exact_numbers

_THRESHOLD = 1e-7  # scikit-learn's BOUNDS_THRESHOLD
_FARTHEST = 5.5  # beyond, a share is nearer to 0 or 1 than that
_CENTRE = (
    (3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125, 45921.953931549871457,
     67265.770927008700853, 33430.575583588128105, 2509.0809287301226727),
    (1.0, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077, 21213.794301586595867,
     39307.895800092710610, 28729.085735721942674, 5226.4952788528545610),
)  # fmt: skip
_NEAR = (
    (1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
     1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550, 0.148103976427480074590,
     0.0151986665636164571966, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 0.296560571828504891230,
     0.0265321895265761230930, 0.00124266094738807843860, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 0.599832206555887937690, 0.136929880922735805310, 0.0148753612908506148525, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def _convert(write: NodeWriter) -> None:
    """All columns at once: the mean of the lines through the quantiles from below and from above."""
    quantiles = np.ascontiguousarray(np.asarray(write.step.quantiles_, np.float64).T)
    places = np.broadcast_to(np.asarray(write.step.references_, np.float64), quantiles.shape)
    x = write.joined()
    reached, within = _reached(write, quantiles)
    upwards = on_lines(write, x, quantiles, places, reached)
    downwards = on_lines(write, write.add("Neg", x), -quantiles[:, ::-1], -places[:, ::-1], within)
    mean = write.add("Mul", write.add("Sub", upwards, downwards), 0.5)
    first, last = quantiles[:, 0], quantiles[:, -1]
    normal = write.step.output_distribution == "normal"
    if normal:
        top = write.add("Less", last, write.add("Add", x, _THRESHOLD))
        bottom = write.add("Less", write.add("Sub", x, _THRESHOLD), first)
    elif reached:
        top = write.add("Gather", reached, np.array(-1), axis=2)
        bottom = write.add("Gather", within, np.array(0), axis=2)
    else:
        top, bottom = write.add("GreaterOrEqual", x, last), write.add("LessOrEqual", x, first)
    share = write.add("Where", bottom, 0.0, write.add("Where", top, 1.0, mean))
    write.give(_clipped(write, normal_quantile(write, share)) if normal else share)


def _reached(write: NodeWriter, quantiles: np.ndarray) -> tuple[str, str]:
    """Which quantiles each number is at or above, and which it is at or below, bool [rows, columns, quantiles]; ""
    where its own digits tell.

    Where quantiles are equal the share jumps, and what steps before make of a number may be off by a last digit.
    """
    if (np.diff(quantiles) > 0).all() or reads_exact_numbers(write):
        return "", ""
    columns, x = np.repeat(np.arange(len(quantiles)), quantiles.shape[1]), write.joined()
    known = write.add("Unsqueeze", write.add("Equal", x, x), np.array([2]))  # no NaN
    above, reached = (
        write.add(
            "Reshape", passed_thresholds(write, columns, mode, quantiles.ravel()), np.array([0, *quantiles.shape])
        )
        for mode in ("BRANCH_GT", "BRANCH_GTE")
    )
    return reached, write.add("And", write.add("Not", above), known)


def _clipped(write: NodeWriter, value: str) -> str:
    """Within what scikit-learn gives for the least and the largest quantile."""
    from scipy.stats import norm

    end = _THRESHOLD - np.spacing(1)
    low, high = (float(norm.ppf(share)) for share in (end, 1 - end))
    return write.add("Max", low, write.add("Min", high, value))


def normal_quantile(write: NodeWriter, share: str) -> str:
    """The number that a share of all normal numbers lies below: -infinity at 0, infinity at 1, in doubles."""
    centred = write.add("Sub", share, 0.5)
    square = write.add("Sub", 0.425**2, write.add("Mul", centred, centred))
    inside = write.add("Mul", centred, _ratio(write, square, _CENTRE))
    tail = write.add("Min", share, write.add("Sub", 1.0, share))
    root = write.add("Sqrt", write.add("Neg", write.add("Log", tail)))
    near = _ratio(write, write.add("Sub", root, 1.6), _NEAR)
    far = _ratio(write, write.add("Sub", root, 5.0), _FAR)
    close = write.add("Less", root, 5.0)
    outside = write.add("Mul", write.add("Sign", centred), write.add("Where", close, near, far))
    central = write.add("Less", write.add("Abs", centred), 0.425)
    ends = write.add("Where", write.add("Equal", tail, 0.0), write.add("Div", centred, 0.0), outside)
    return write.add("Where", central, inside, ends)


def normal_share(write: NodeWriter, value: str) -> str:
    """The share of all normal numbers below a number, in doubles; 0 or 1 where it is nearer to that than 1e-7.

    The runtime's Erf is of floats: Taylor's series begins where its result is the exact share.
    """
    near = write.add("Max", -_FARTHEST, write.add("Min", _FARTHEST, value))
    erf = write.add("Erf", write.cast(write.add("Mul", near, float(np.sqrt(0.5))), FLOAT))
    half = write.add("Mul", write.add("Add", write.cast(erf, DOUBLE), 1.0), 0.5)
    share = write.add("Max", _THRESHOLD / 4, write.add("Min", 1 - _THRESHOLD / 4, half))
    start = normal_quantile(write, share)
    square = write.add("Mul", start, start)
    density = write.add("Div", write.add("Exp", write.add("Mul", square, -0.5)), float(np.sqrt(2 * np.pi)))
    step = write.add("Sub", near, start)
    third = write.add("Div", write.add("Mul", write.add("Sub", square, 1.0), step), 6.0)
    second = write.add("Mul", step, write.add("Sub", third, write.add("Mul", start, 0.5)))
    more = write.add("Mul", write.add("Mul", density, step), write.add("Add", second, 1.0))
    found = write.add("Add", share, more)
    top = write.add("Less", 1.0, write.add("Add", found, _THRESHOLD))
    bottom = write.add("Less", write.add("Sub", found, _THRESHOLD), 0.0)
    return write.add("Where", bottom, 0.0, write.add("Where", top, 1.0, found))


def _ratio(write: NodeWriter, value: str, terms: tuple[Sequence[float], Sequence[float]]) -> str:
    return write.add("Div", _polynomial(write, value, terms[0]), _polynomial(write, value, terms[1]))


def _polynomial(write: NodeWriter, value: str, terms: Sequence[float]) -> str:
    total = write.constant(terms[-1])
    for term in reversed(terms[:-1]):
        total = write.add("Add", write.add("Mul", total, value), term)
    return total


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 refuses normal numbers, and does not come to an end for many quantiles",
    transformer("sklearn.preprocessing:QuantileTransformer", _convert, lambda step: step.quantiles_.shape[1]),
)

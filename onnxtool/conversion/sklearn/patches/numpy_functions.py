"""Functions that a FunctionTransformer applies."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np

from onnxtool.conversion.frameworks import copy_with
from onnxtool.conversion.sklearn.converters.node_writer import INT64, NodeWriter
from onnxtool.conversion.sklearn.converters.register import converter_patch, extension, number_type
from onnxtool.conversion.sklearn.converters.traced_functions import UNARY, traced
from onnxtool.conversion.small_numbers import expm1, log1p

_PI = "3.14159265358979323846264338327950288419716939937510582"
_ANGLES = 840  # of which hours, minutes, months and weekdays are whole numbers
_FAR = 250_000.0  # up to here the number of angles has 25 bits


def written(write: NodeWriter, function: Any, value: str) -> str | None:
    """What a function makes of a double; None where it has no ONNX form here.

    Args:
        write: adds nodes.
        function: of NumPy.
        value: any shape.
    """
    further: dict[Any, Callable[[], str]] = {
        np.square: lambda: write.add("Mul", value, value),
        np.expm1: lambda: expm1(write.add, value),
        np.exp2: lambda: write.add("Pow", 2.0, value),
        np.log1p: lambda: log1p(write.add, value),
        np.log2: lambda: _scaled_logarithm(write, value, np.log(2)),
        np.log10: lambda: _scaled_logarithm(write, value, np.log(10)),
        np.sin: lambda: _sine(write, value, 0),
        np.cos: lambda: _sine(write, value, _ANGLES // 4),
        np.cbrt: lambda: _cube_root(write, value),
        np.arctan: lambda: _arc_tangent(write, value),
        np.arcsinh: lambda: _inverse_sine(write, value),
        np.radians: lambda: write.add("Mul", value, np.pi / 180),
        np.degrees: lambda: write.add("Mul", value, 180 / np.pi),
    }
    if function in UNARY:
        return write.add(UNARY[function], value)
    return further[function]() if function in further else None


def _scaled_logarithm(write: NodeWriter, value: str, by: float) -> str:
    return write.add("Div", write.add("Log", value), by)


@cache
def _sines() -> tuple[list[float], np.ndarray, np.ndarray]:
    """One of the equal angles in three parts of 28, 28 and 53 bits; the sines of all in float32, and their rests."""
    with localcontext(prec=50):
        angle, parts = 2 * Decimal(_PI) / _ANGLES, []
        rest = angle
        for bits in (28, 28, 53):
            fraction, exponent = math.frexp(rest)
            parts.append(math.ldexp(math.floor(math.ldexp(fraction, bits)), exponent - bits))
            rest -= Decimal(parts[-1])
        quarter = []
        for place in range(_ANGLES // 4 + 1):
            term = total = place * angle
            for power in range(2, 40, 2):
                term *= -((place * angle) ** 2) / (power * (power + 1))
                total += term
            quarter.append(total)
        half = [*quarter, *quarter[-2:0:-1]]
        exact = [*half, *(-sine for sine in half)]
        singles = np.array(exact, np.float32).astype(np.float64)
        rests = np.array([float(sine - Decimal(single)) for sine, single in zip(exact, singles, strict=True)])
    return parts, singles, rests


def _sine(write: NodeWriter, value: str, ahead: int) -> str:
    """The sine of an angle that is so many angles of the table ahead, rounded correctly but for one in thousands, as
    NumPy's. The runtime's own is off by up to 5e-16, and 0 at pi: trees split there.

    Source: Tang 1991, "Table-lookup algorithms for elementary functions and their error analysis".
    """
    add, (parts, singles, rests) = write.add, _sines()
    count = add("Round", add("Mul", value, _ANGLES / (2 * math.pi)))
    whole, second = add("Sub", value, add("Mul", count, parts[0])), add("Mul", count, parts[1])  # both exact
    angle = add("Sub", whole, second)
    back = add("Sub", angle, whole)
    lost = add("Sub", add("Sub", whole, add("Sub", angle, back)), add("Add", second, back))
    rest = add("Sub", lost, add("Mul", count, parts[2]))
    place = add("Add", write.cast(count, INT64), np.array([ahead]))
    tables = [
        add("Gather", table, add("Mod", add("Add", place, np.array([more])), np.array([_ANGLES])))
        for more in (0, _ANGLES // 4)
        for table in (singles, rests)
    ]
    sine, sine_rest, cosine, cosine_rest = tables
    # sin(a + d) = sin(a) + cos(a) d + ..., of which the first two are added without an error.
    full = add("Add", angle, rest)
    square, short = add("Mul", full, full), write.in_float32(angle)
    cubic = add("Mul", add("Mul", full, square), add("Sub", add("Div", square, 120.0), 1 / 6))
    even = add("Mul", square, add("Sub", 0.5, add("Mul", square, add("Sub", 1 / 24, add("Div", square, 720.0)))))
    small = add("Mul", add("Add", cosine, cosine_rest), add("Add", cubic, rest))
    small = add("Sub", small, add("Mul", add("Add", sine, sine_rest), even))
    dropped = add("Add", add("Mul", cosine, add("Sub", angle, short)), add("Mul", cosine_rest, angle))
    small = add("Add", add("Add", small, dropped), sine_rest)
    product = add("Mul", cosine, short)
    total = add("Add", sine, product)
    found = add("Add", total, add("Add", add("Sub", product, add("Sub", total, sine)), small))
    far = write.add_of("", 7, "Cos" if ahead else "Sin", value)
    return add("Where", add("Less", add("Abs", value), _FAR), found, far)


def _cube_root(write: NodeWriter, value: str) -> str:
    root = write.add("Pow", write.add("Abs", value), 1 / 3)
    return write.add("Mul", write.add("Sign", value), root)


def _arc_tangent(write: NodeWriter, value: str) -> str:
    """Newton's steps to the angle whose sine and cosine have this quotient; the runtime has no Atan of doubles.

    Within one a fraction is near enough to begin with: three steps leave nothing. Beyond, the angle of 1 / value is
    what is missing from a right angle.
    """
    beyond = write.add("Less", 1.0, write.add("Abs", value))
    x = write.add("Where", beyond, write.add("Reciprocal", value), value)
    angle = write.add("Div", x, write.add("Add", write.add("Mul", write.add("Mul", x, x), 0.28), 1.0))
    for _ in range(3):
        sine, cosine = write.add_of("", 7, "Sin", angle), write.add_of("", 7, "Cos", angle)
        apart = write.add("Sub", sine, write.add("Mul", x, cosine))
        angle = write.add("Sub", angle, write.add("Mul", cosine, apart))
    right = write.add("Mul", write.add("Sign", value), np.pi / 2)
    return write.add("Where", beyond, write.add("Sub", right, angle), angle)


def _inverse_sine(write: NodeWriter, value: str) -> str:
    """Of hyperbolas: the logarithm of |x| + sqrt(x^2 + 1), whose part beyond one is taken apart from it."""
    size = write.add("Abs", value)
    root = write.add("Sqrt", write.add("Add", write.add("Mul", size, size), 1.0))
    more = write.add("Mul", size, write.add("Div", size, write.add("Add", root, 1.0)))
    logarithm, doubled = (
        log1p(write.add, write.add("Add", size, more)),
        write.add("Add", write.add("Log", size), np.log(2)),
    )
    large = write.add("Less", 1e9, size)  # whose square may be infinite
    return write.add("Mul", write.add("Sign", value), write.add("Where", large, doubled, logarithm))


def _convert(write: NodeWriter, original: Callable[[], None]) -> None:
    step = write.step
    if step.func is None:
        original()
        return
    write.give(traced(write, step.func, write.joined(), written, **(step.kw_args or {})))


def _width(step: Any) -> int:
    """How many columns a function gives; as many as it is given where it cannot be asked."""
    rows: Any = np.ones((1, step.n_features_in_))
    try:
        if hasattr(step, "feature_names_in_"):
            import pandas

            rows = pandas.DataFrame(rows, columns=step.feature_names_in_)
        return int(np.asarray(step.func(rows, **(step.kw_args or {}))).shape[1])
    except Exception:  # of any code
        return int(step.n_features_in_)


def _shapes(operator: Any, known: Callable[[Any], None]) -> None:
    """Those of the identity, of floats where it computes: skl2onnx refuses any function."""
    step = operator.raw_operator
    operator.raw_operator = copy_with(step, func=None)
    try:
        known(operator)
    finally:
        operator.raw_operator = step
    if step.func is not None:
        output = operator.outputs[0]
        output.type = number_type(output.type)([output.type.shape[0], _width(step)])


PATCH = converter_patch(
    "1.21",
    "skl2onnx 1.20 refuses every function",
    extension("sklearn.preprocessing:FunctionTransformer", _convert, shapes=_shapes),
)

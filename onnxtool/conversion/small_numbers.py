"""Functions for which ONNX has no operator, exact where exporters write what is not: near and far from zero, for -0."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxtool.equality.rule.exact_kernels import ERFC

# Adds a node, given its operator, inputs (values, or floats of the type of the value that is changed) and attributes.
AddNode = Callable[..., Any]


def expm1(add: AddNode, x: Any) -> Any:
    """e^x - 1 = tanh(x / 2) (e^x + 1)."""
    return add("Mul", add("Tanh", add("Mul", x, 0.5)), add("Add", add("Exp", x), 1.0))


def log1p(add: AddNode, x: Any) -> Any:
    """log(1 + x) with the part of x that 1 + x drops made good.

    Source: Goldberg 1991, "What every computer scientist should know about floating-point arithmetic", theorem 4.
    """
    more = add("Add", x, 1.0)
    kept = add("Sub", more, 1.0)  # what 1 + x has of x
    usual, lost, endless = add("Log", more), add("Equal", kept, 0.0), add("IsInf", kept)
    scaled = add("Mul", usual, add("Div", x, add("Where", add("Or", lost, endless), 1.0, kept)))
    return add("Where", lost, x, add("Where", endless, usual, scaled))


def log_add_exp(add: AddNode, x: Any, y: Any) -> Any:
    """log(e^x + e^y) with the larger taken out: neither overflows, and not both vanish."""
    apart = add("Where", add("Equal", x, y), 0.0, add("Sub", add("Min", x, y), add("Max", x, y)))
    return add("Add", add("Max", x, y), log1p(add, add("Exp", apart)))


def floor_mod(add: AddNode, x: Any, y: Any) -> Any:
    """The remainder with the sign of y: fmod, which is exact, moved by y where signs differ.

    x - y floor(x / y) is wrong as soon as x / y has more digits than its type.
    """
    rest = add("Mod", x, y, fmod=1)
    return add("Where", _is_apart(add, rest, y), add("Add", rest, y), rest)


def floor_divide(add: AddNode, x: Any, y: Any) -> Any:
    """The whole number of times, as Python and torch have it: 9 times 0.1 in 1, though the quotient rounds to 10."""
    rest = add("Mod", x, y, fmod=1)
    quotient = add("Div", add("Sub", x, rest), y)
    quotient = add("Where", _is_apart(add, rest, y), add("Sub", quotient, 1.0), quotient)
    low = add("Floor", quotient)
    found = add("Where", add("Greater", add("Sub", quotient, low), 0.5), add("Add", low, 1.0), low)
    return add("Where", add("Equal", y, 0.0), add("Div", x, y), found)


def _is_apart(add: AddNode, rest: Any, y: Any) -> Any:
    """Whether a remainder has another sign than y."""
    alike = add("Equal", add("Less", rest, 0.0), add("Less", y, 0.0))
    return add("Not", add("Or", add("Equal", rest, 0.0), alike))


def atan2(add: AddNode, y: Any, x: Any) -> Any:
    """The angle of (x, y): the arc tangent of |y| / |x|, and the signs, which zeros have too."""
    height, width = add("Abs", y), add("Abs", x)
    alike = add("Equal", height, width)  # also both zero, or both infinite, whose quotient is NaN
    unit = add("Sign", height)
    angle = add("Atan", add("Where", alike, unit, add("Div", height, width)))
    angle = add("Where", is_negative(add, x), add("Sub", math.pi, angle), angle)
    return add("Where", is_negative(add, y), add("Neg", angle), angle)


def is_negative(add: AddNode, x: Any) -> Any:
    """Whether the sign bit is set, as far as numbers show it: -0.0 by its reciprocal, which is minus infinity."""
    return add("Or", add("Less", x, 0.0), add("Less", add("Reciprocal", x), 0.0))


def erfcx(add: AddNode, x: Any) -> Any:
    """e^(x^2) (1 - erf(x)), to float32's digits: the exponential is not computed where it would vanish.

    Source: Press et al. 2007, "Numerical Recipes", 6.2.2.
    """
    t = add("Reciprocal", add("Add", add("Mul", add("Abs", x), 0.5), 1.0))
    above = add("Mul", t, add("Exp", _polynomial(add, t, (*ERFC, -1.26551223))))
    below = add("Sub", add("Mul", add("Exp", add("Mul", x, x)), 2.0), above)
    return add("Where", add("Less", x, 0.0), below, above)


# Source: M. Giles, "Approximating the erfinv function", GPU Computing Gems (2011), in single precision.
_CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
            -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
         1.00167406, 2.83297682)  # fmt: skip


def erfinv(add: AddNode, x: Any) -> Any:
    """The inverse of the error function, to float32's digits: infinite at -1 and 1, NaN beyond them."""
    w = add("Neg", add("Log", add("Mul", add("Sub", 1.0, x), add("Add", x, 1.0))))
    central = _polynomial(add, add("Sub", w, 2.5), _CENTRAL)
    tail = _polynomial(add, add("Sub", add("Sqrt", w), 3.0), _TAIL)
    found = add("Mul", x, add("Where", add("Less", w, 5.0), central, tail))
    return add("Where", add("IsInf", w), add("Mul", x, math.inf), found)


def _polynomial(add: AddNode, x: Any, terms: Sequence[float]) -> Any:
    total: Any = terms[0]
    for term in terms[1:]:
        total = add("Add", add("Mul", x, total), term)
    return total


_LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
            12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)  # fmt: skip


def lgamma(add: AddNode, x: Any) -> Any:
    """log|gamma(x)| of doubles: infinite at 0, -1, ... and at both infinities; by reflection below 1/2.

    Source: C. Lanczos, "A precision approximation of the gamma function", SIAM J. Numer. Anal. 1 (1964), g = 7, n = 9.
    """
    low = add("Less", x, 0.5)
    z = add("Sub", add("Where", low, add("Sub", 1.0, x), x), 1.0)
    terms: Any = _LANCZOS[0]
    for place, number in enumerate(_LANCZOS[1:], 1):
        terms = add("Add", add("Div", number, add("Add", z, float(place))), terms)
    t = add("Add", z, 7.5)
    scaled = add("Log", add("Mul", terms, math.sqrt(2 * math.pi)))
    above = add("Add", add("Sub", add("Mul", add("Add", z, 0.5), add("Log", t)), t), scaled)
    turn = add("Abs", add("Sin", add("Mul", _fraction(add, x), math.pi)))
    below = add("Sub", add("Log", add("Div", math.pi, turn)), above)
    return add("Where", add("IsInf", x), math.inf, add("Where", low, below, above))


def digamma(add: AddNode, x: Any) -> Any:
    """The derivative of `lgamma`, of doubles: minus infinity at 0, infinity at -0.0, NaN at -1, -2, ...

    Source: Abramowitz and Stegun 1964, 6.3.5 (six steps up), 6.3.7 (reflection below 1/2), 6.3.18.
    """
    low = add("Less", x, 0.5)
    y = add("Where", low, add("Sub", 1.0, x), x)
    steps: Any = 0.0
    for place in range(6):
        steps = add("Add", add("Reciprocal", add("Add", y, float(place))), steps)
    far = add("Add", y, 6.0)
    square = add("Reciprocal", add("Mul", far, far))
    series = _polynomial(add, square, (-1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12, 0.0))
    usual = add("Sub", add("Add", add("Sub", add("Log", far), add("Div", 0.5, far)), series), steps)
    fraction = _fraction(add, x)
    angle = add("Mul", fraction, math.pi)
    turn = add("Div", add("Mul", add("Cos", angle), math.pi), add("Sin", angle))
    whole = add("And", add("Equal", fraction, 0.0), low)
    ends = add("Where", add("Equal", x, 0.0), add("Neg", add("Reciprocal", x)), math.nan)
    return add("Where", whole, ends, add("Where", low, add("Sub", usual, turn), usual))


def _fraction(add: AddNode, x: Any) -> Any:
    return add("Sub", x, add("Floor", x))

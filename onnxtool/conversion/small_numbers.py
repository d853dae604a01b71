"""Functions for which ONNX has no operator, exact where exporters write what is not: near zero, and for -0.0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

# Adds a node, given its operator and its inputs: values, or floats of the type of the value that is changed.
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

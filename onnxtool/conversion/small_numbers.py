"""exp(x) - 1 and log(1 + x) of small x, for which ONNX has no operator and exporters write what loses all digits."""

from __future__ import annotations

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

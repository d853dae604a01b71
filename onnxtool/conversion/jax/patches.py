"""What jax2onnx loses: the digits of small numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from onnxtool.conversion.patches import LibraryPatch, replaced

_BELOW = "0.18"
# Adds a node, given its operator and its inputs (numbers of the input's type where they are no values).
Add = Callable[..., Any]


def _expm1(add: Add, x: Any) -> Any:
    """e^x - 1 = tanh(x / 2) (e^x + 1)."""
    return add("Mul", add("Tanh", add("Mul", x, 0.5)), add("Add", add("Exp", x), 1.0))


def _log1p(add: Add, x: Any) -> Any:
    """log(1 + x) with the part of x that 1 + x drops made good.

    Source: Goldberg 1991, "What every computer scientist should know about floating-point arithmetic", theorem 4.
    """
    more = add("Add", x, 1.0)
    kept = add("Sub", more, 1.0)  # what 1 + x has of x
    usual, lost, endless = add("Log", more), add("Equal", kept, 0.0), add("IsInf", kept)
    scaled = add("Mul", usual, add("Div", x, add("Where", add("Or", lost, endless), 1.0, kept)))
    return add("Where", lost, x, add("Where", endless, usual, scaled))


def _lower(function: Callable[[Add, Any], Any], context: Any, equation: Any) -> None:
    """Write a primitive of one input."""
    (source,), (result,) = equation.invars, equation.outvars
    x = context.get_value_for_var(source, name_hint=context.fresh_name("x"))
    kind = np.dtype(source.aval.dtype)

    def add(operator: str, *inputs: Any) -> Any:
        given = [
            context.bind_const_for_var(object(), np.asarray(i, kind)) if isinstance(i, float) else i for i in inputs
        ]
        value = getattr(context.builder, operator)(*given, _outputs=[context.fresh_name(operator)])
        value.shape = x.shape
        if operator not in ("Equal", "IsInf", "Or"):
            value.type = x.type
        return value

    context.bind_value_for_var(result, function(add, x))


def _precise(module: str, plugin: str, function: Callable[[Add, Any], Any]) -> AbstractContextManager[None]:
    kind = getattr(import_module(f"jax2onnx.plugins.jax.lax.{module}"), plugin)
    return replaced(kind, "lower", lambda _, context, equation: _lower(function, context, equation))


PATCHES = (
    LibraryPatch(
        "jax2onnx",
        _BELOW,
        "jax2onnx 0.17's e^x - 1 has no correct digit left at 1e-7",
        partial(_precise, "expm1", "Expm1Plugin", _expm1),
    ),
    LibraryPatch(
        "jax2onnx",
        _BELOW,
        "jax2onnx 0.17's log(1 + x) has no correct digit left at 1e-7",
        partial(_precise, "log1p", "Log1pPlugin", _log1p),
    ),
)

"""How large a tensor's numbers can be at most, so that a test for NaN or infinity is known not to hold.

Exporters write a guard behind each softmax with a mask: `Where(IsNaN(p), 0, p)`. Where all numbers before it have a
bound that their type holds, the guard never acts. Inputs of floats have no bound: they may be NaN themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxtool.equality.certificate.interpreter import Item, Value, follow, is_float, moves

Bounds = Sequence[float]
_UNIT = frozenset(("Softmax", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "HardSigmoid", "Not", "And", "Or", "Xor"))
_COMPARED = frozenset(("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"))
_NO_LARGER = frozenset(
    (
        *("Relu", "Abs", "Neg", "Gelu", "Max", "Min", "Concat", "Cast", "CastLike", "Dropout", "Floor", "Ceil"),
        *("ReduceMean", "ReduceMax", "ReduceMin", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "AveragePool"),
    )
)
_ROUNDED = 2.0**-25  # what is so little above the largest number of a type is rounded to it


def bound_of(value: Item) -> float | None:
    """The largest magnitude that a tensor may have; None where it may be any, NaN or infinite."""
    if not isinstance(value, Value):
        return None
    if value.bound is None and value.exact and value.data.dtype.kind in "biuf":
        value.bound = float(np.abs(value.data.astype(np.float64)).max(initial=0.0))
    elif value.bound is None and value.dtype.kind in "biu":
        value.bound = 1.0 if value.dtype.kind == "b" else float(np.iinfo(value.dtype).max) + 1
    return value.bound if value.bound is not None and math.isfinite(value.bound) else None


def enter_bounds(kind: str, inputs: list[Item], attributes: dict[str, Any], outputs: list[Item]) -> None:
    """Give an operator's outputs the bound that follows from those of its inputs, if their type holds it."""
    held = [bound_of(v) for v in inputs if v is not None]
    for output in outputs:
        if isinstance(output, Value) and not output.exact and is_float(output.dtype):
            known = [b for b in held if b is not None]
            found = _bound(kind, inputs, attributes, known, output) if len(known) == len(held) else None
            wide = np.float32 if output.dtype.name == "bfloat16" else output.dtype
            if found is not None and found <= float(np.finfo(wide).max) * (1 + _ROUNDED):
                output.bound = found


def _bound(kind: str, inputs: Sequence[Item], attributes: dict[str, Any], held: Bounds, output: Value) -> float | None:
    if kind in _UNIT or kind in _COMPARED:
        return 1.0
    if moves(kind) or kind in _NO_LARGER:
        floats = [b for b, v in zip(held, (v for v in inputs if v is not None), strict=True) if is_float(v.dtype)]
        return max(floats or held, default=1.0)  # not of whole numbers that are places in a table
    if kind == "Clip":
        return max(held)
    if kind == "LayerNormalization":
        shape = inputs[0].data.shape
        count = math.prod(shape[attributes.get("axis", -1) % len(shape) :])
        if count * (2 * held[0]) ** 2 > float(np.finfo(np.float32).max):
            return None
        return math.sqrt(count) * held[1] + (held[2] if len(held) > 2 else 0.0)
    if kind == "Div":
        smallest = float(np.abs(inputs[1].data).min(initial=np.inf)) if inputs[1].exact else 0.0
        return held[0] / smallest if smallest else None
    made = _MADE.get(kind)
    return None if made is None else made(inputs, attributes, held, output)


def _product(inputs: Sequence[Item], attributes: dict[str, Any], held: Bounds, _: Value) -> float:
    terms = int(inputs[0].data.shape[0 if attributes.get("transA") else -1])
    scaled = abs(attributes.get("alpha", 1.0)) * terms * held[0] * held[1]
    return float(scaled + abs(attributes.get("beta", 1.0)) * sum(held[2:]))


def _convolved(inputs: Sequence[Item], _: dict[str, Any], held: Bounds, __: Value) -> float:
    return float(math.prod(inputs[1].data.shape[1:]) * held[0] * held[1] + sum(held[2:]))


def _summed(inputs: Sequence[Item], _: dict[str, Any], held: Bounds, output: Value) -> float:
    return float(held[0] * max(inputs[0].data.size // max(output.data.size, 1), 1))


_Made = Callable[[Sequence[Item], dict[str, Any], Bounds, Value], float]
_MADE: dict[str, _Made] = {
    **dict.fromkeys(("Add", "Sub", "Sum"), lambda _, __, held, ___: sum(held)),
    "Mul": lambda _, __, held, ___: math.prod(held),
    **dict.fromkeys(("MatMul", "Gemm"), _product),
    "Conv": _convolved,
    "ReduceSum": _summed,
}

follow(enter_bounds)

__all__ = ["bound_of", "enter_bounds"]

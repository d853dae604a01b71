"""How large a tensor's numbers can be at most, so that a test for NaN or infinity is known not to hold.

Exporters write a guard behind each softmax with a mask: `Where(IsNaN(p), 0, p)`. Where all numbers before it have a
bound that their type holds, the guard never acts. Inputs of floats have no bound: they may be NaN themselves. Where a
mask puts -inf in, a softmax is NaN where it leaves nothing but -inf: which rows these are is an expression of the mask.
What a normalization divides by is no smaller than a part of each number that it divides: |x| <= sqrt(n mean(x^2)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxtool.equality.certificate.interpreter import Interpreter, follow, moves
from onnxtool.equality.certificate.values import Item, Over, Value, is_float, largest

Bounds = Sequence[float]
_UNIT = frozenset(("Softmax", "Sigmoid", "Tanh", "Erf", "Sin", "Cos", "HardSigmoid", "Not", "And", "Or", "Xor"))
_COMPARED = frozenset(("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"))
_NO_LARGER = frozenset(
    (
        *("Relu", "Abs", "Neg", "Gelu", "QuickGelu", "Max", "Min", "Concat", "Cast", "CastLike"),
        *("Dropout", "Floor", "Ceil"),
        *("ReduceMean", "ReduceMax", "ReduceMin", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "AveragePool"),
    )
)
_STEPS = 1.001  # what rounding of a few steps may add to a bound
_ROUNDED = 2.0**-25  # what is so little above the largest number of a type is rounded to it


def bound_of(value: Item) -> float | None:
    """The largest magnitude that a tensor may have; None where it may be any, NaN or infinite."""
    if not isinstance(value, Value):
        return None
    if value.bound is None and value.exact and value.data.dtype.kind in "biuf":
        value.bound = largest(value.data)
    elif value.bound is None and value.dtype.kind in "biu":
        value.bound = 1.0 if value.dtype.kind == "b" else float(np.iinfo(value.dtype).max) + 1
    return value.bound if value.bound is not None and math.isfinite(value.bound) else None


def enter_bounds(
    _: Interpreter, kind: str, inputs: list[Item], attributes: dict[str, Any], outputs: list[Item]
) -> None:
    """Give an operator's outputs the bound that follows from those of its inputs, if their type holds it."""
    held = [bound_of(v) for v in inputs if v is not None]
    for place, output in enumerate(outputs):
        if kind.endswith("LayerNormalization") and place in (1, 2):  # the mean, and one by the deviation
            continue
        if isinstance(output, Value) and not output.exact and is_float(output.dtype):
            known = [b for b in held if b is not None]
            found = _bound(kind, inputs, attributes, known, output) if len(known) == len(held) else None
            if found is not None and found <= _largest(output.dtype):
                output.bound = found


def _limits(dtype: np.dtype[Any]) -> Any:
    return np.finfo(np.float32 if dtype.name == "bfloat16" else dtype)


def _largest(dtype: np.dtype[Any]) -> float:
    """What a type of floats holds at most, before rounding."""
    return float(_limits(dtype).max) * (1 + _ROUNDED)


def _lowest_of(value: Item) -> tuple[np.ndarray, float] | None:
    """Which numbers of a tensor are -inf, as elements that stand for 0 or 1, and the bound of the others."""
    if not isinstance(value, Value) or not is_float(value.dtype):
        return None
    if value.tag[:1] == ("lowest",):
        return value.tag[1], value.tag[2]
    bound = bound_of(value)
    if bound is not None:
        return np.zeros(value.data.shape, np.int64), bound
    if not value.exact or np.isnan(value.data).any() or (value.data == np.inf).any():
        return None
    lowest = value.data == -np.inf
    return lowest.astype(np.int64), float(np.abs(np.where(lowest, 0, value.data)).max(initial=0.0))


def enter_norms(_: Interpreter, kind: str, inputs: list[Item], __: dict[str, Any], outputs: list[Item]) -> None:
    """Follow a mean of squares to the quotient that it makes small, as LayerNormalization does in single operators."""
    output = outputs[0] if outputs else None
    bounds = [bound_of(v) for v in inputs if v is not None]
    if not isinstance(output, Value) or output.exact or not is_float(output.dtype) or None in bounds:
        return
    output.over = _over(kind, inputs, output)
    if output.over is not None and output.over.kind == "inverse":
        least = output.over.least
        output.bound = 1 / least if least > 1 / _largest(output.dtype) else None
        output.over = None if output.bound is None else output.over
    quotient = {"Div": ((0, 1, "root"),), "Mul": ((0, 1, "inverse"), (1, 0, "inverse"))}.get(kind, ())
    for number, by, wanted in quotient:
        over = inputs[by].over
        if over is not None and (over.kind, over.least > 0) == (wanted, True) and _is(inputs[number], over.x):
            vanishing = float(np.sqrt(_limits(output.dtype).smallest_subnormal))  # its square is zero
            output.bound = max(_STEPS / over.factor, vanishing / over.least)


def _is(value: Value, elements: np.ndarray) -> bool:
    return not value.exact and value.data.shape == elements.shape and np.array_equal(value.data, elements)


def _over(kind: str, inputs: Sequence[Item], output: Value) -> Over | None:
    first, second = [*inputs, None, None][:2]
    if first is None or (second is None and kind in ("Add", "Div", "Mul")):
        return None
    number = float(second.data.reshape(())) if second is not None and _is_single(second) else None
    if (kind == "Pow" and number == 2) or (kind == "Mul" and not first.exact and _is(second, first.data)):
        return None if first.exact else Over("square", first.data, 1.0, 0.0)
    over = first.over
    if kind == "Add" and over is None and second.over is not None and first.exact:
        over, number = second.over, float(first.data.reshape(())) if _is_single(first) else None
    if kind == "Div" and second.over is not None and first.exact and (first.data == 1).all():
        over, number = second.over, -1.0
    if over is None or over.kind == "inverse":
        return None
    if kind in ("ReduceMean", "ReduceSum") and output.data.ndim == over.x.ndim and over.kind == "square":
        count = first.data.size // max(output.data.size, 1) if kind == "ReduceMean" else 1
        return Over("square", over.x, over.factor / max(count, 1), 0.0)
    if kind == "Add" and number is not None and number >= 0:
        return Over(over.kind, over.x, over.factor, over.least + number)
    if (kind == "Sqrt" or (kind == "Pow" and number == 0.5)) and over.kind == "square":
        return Over("root", over.x, over.factor**0.5, over.least**0.5)
    if (kind == "Reciprocal" or (kind == "Div" and number == -1)) and over.kind == "root":
        return Over("inverse", over.x, over.factor, over.least)
    if kind == "Pow" and number == -0.5 and over.kind == "square":
        return Over("inverse", over.x, over.factor**0.5, over.least**0.5)
    return None


def enter_lowest(
    m: Interpreter, kind: str, inputs: list[Item], attributes: dict[str, Any], outputs: list[Item]
) -> None:
    """Follow -inf from a mask to a softmax, which is NaN where it is taken over nothing else."""
    output = outputs[0] if outputs else None
    if not m.field.has_values or not isinstance(output, Value) or output.exact or bound_of(output) is not None:
        return
    f = m.field
    if kind == "Where" and inputs[2].nan is not None:
        bound, rows = bound_of(inputs[1]), np.broadcast_to(inputs[2].nan, output.data.shape)
        if bound is not None and np.array_equal(np.broadcast_to(m.elements(inputs[0]), rows.shape), rows):
            output.bound = max(bound, 1.0)
        return
    if kind not in ("Where", "Add", "ReduceMax", "Softmax"):
        return
    known = [_lowest_of(v) for v in (inputs[1:] if kind == "Where" else inputs[:1] if kind != "Add" else inputs)]
    found = [k for k in known if k is not None]
    if len(found) != len(known):
        return
    rank = inputs[0].data.ndim
    if kind in ("ReduceMax", "Softmax"):
        axis, (lowest, bound) = rank - 1, found[0]
        over = attributes.get("axis", -1 if m.version >= 13 else 1)
        if kind == "Softmax" and over in (-1, axis):
            output.nan = f.product(lowest, axis, keepdims=True)
        elif kind == "ReduceMax" and output.data.shape == (*lowest.shape[:-1], 1):
            output.tag = ("lowest", f.product(lowest, axis, keepdims=True), bound)
        return
    (first, second), bounds = (k[0] for k in found), [k[1] for k in found]
    lowest = f.sub(f.add(first, second), f.mul(first, second))
    bound = sum(bounds)
    if kind == "Where":
        lowest, bound = f.where(m.elements(inputs[0]), first, second), max(bounds)
    if bound <= _largest(output.dtype):
        output.tag = ("lowest", np.broadcast_to(lowest, output.data.shape), bound)


def _bound(kind: str, inputs: Sequence[Item], attributes: dict[str, Any], held: Bounds, output: Value) -> float | None:
    if kind in _UNIT or kind in _COMPARED:
        return 1.0
    if moves(kind) or kind in _NO_LARGER:
        floats = [b for b, v in zip(held, (v for v in inputs if v is not None), strict=True) if is_float(v.dtype)]
        return max(floats or held, default=1.0)  # not of whole numbers that are places in a table
    if kind == "Clip":
        return max(held)
    if kind in ("LayerNormalization", "SkipLayerNormalization"):
        skips = kind == "SkipLayerNormalization"
        shape, most = inputs[0].data.shape, sum(held[:2]) + sum(held[4:]) if skips else held[0]
        count = math.prod(shape[attributes.get("axis", -1) % len(shape) :])
        if count * np.float64(2 * most) ** 2 > float(np.finfo(np.float32).max) or None in inputs:
            return None
        return max(math.sqrt(count) * held[1 + skips] + sum(held[2 + skips : 3 + skips]), most * skips)
    if kind in ("Pow", "Sqrt"):
        power = 0.5 if kind == "Sqrt" else float(inputs[1].data.reshape(())) if _is_single(inputs[1]) else -1.0
        safe = power.is_integer() or inputs[0].over is not None  # of no negative number
        return float(np.float64(held[0]) ** power) if power >= 0 and safe else None
    if kind == "Div":
        smallest = float(np.abs(inputs[1].data).min(initial=np.inf)) if inputs[1].exact else 0.0
        return held[0] / smallest if smallest else None
    made = _MADE.get(kind)
    return None if made is None else made(inputs, attributes, held, output)


def _is_single(value: Value) -> bool:
    return value.exact and value.data.size == 1


def _product(inputs: Sequence[Item], attributes: dict[str, Any], held: Bounds, _: Value) -> float:
    terms = int(inputs[0].data.shape[-2 if attributes.get("transA") else -1])
    scaled = abs(attributes.get("alpha", 1.0)) * terms * held[0] * held[1]
    return float(scaled + abs(attributes.get("beta", 1.0)) * sum(held[2:]))


def _convolved(inputs: Sequence[Item], _: dict[str, Any], held: Bounds, __: Value) -> float:
    return float(math.prod(inputs[1].data.shape[1:]) * held[0] * held[1] + sum(held[2:]))


def _summed(inputs: Sequence[Item], _: dict[str, Any], held: Bounds, output: Value) -> float:
    return float(held[0] * max(inputs[0].data.size // max(output.data.size, 1), 1))


_Made = Callable[[Sequence[Item], dict[str, Any], Bounds, Value], float]
_MADE: dict[str, _Made] = {
    **dict.fromkeys(("Add", "Sub", "Sum"), lambda _, __, held, ___: sum(held)),
    **dict.fromkeys(("FastGelu", "BiasGelu"), lambda _, __, held, ___: sum(held)),
    "Mul": lambda _, __, held, ___: math.prod(held),
    **dict.fromkeys(("MatMul", "Gemm", "FusedMatMul"), _product),
    "MultiHeadAttention": lambda _, __, held, ___: held[2],
    "Conv": _convolved,
    "ReduceSum": _summed,
}

for _follower in (enter_bounds, enter_norms, enter_lowest):
    follow(_follower)

__all__ = ["bound_of", "enter_bounds", "enter_lowest", "enter_norms"]

"""Between which places an index lies that the values of a model decide.

A text model takes the row of the last token out of all rows of the batch, one behind the other: ArgMax + 20 * row. What
is taken hangs on the values, but it is one of the row's own 20. So followed are the ends of whole numbers where rows
are asked for: of an ArgMax, of a count (the last place that is no padding), through sums with known numbers and bounds,
and what moves them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtool.equality.certificate.field import Array, Field
from onnxtool.equality.certificate.interpreter import Interpreter, follow
from onnxtool.equality.certificate.values import Item, Value, exact

_MOST = 4096  # places that are looked up one by one
_MOVED = frozenset(("Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Concat", "Expand", "Transpose"))
# The result is no smaller for larger inputs; those behind the first are known, or are such inputs too.
_MONOTONE = frozenset(("ReduceSum", "ReduceMax", "ReduceMin", "Clip", "Max", "Min"))
_LARGEST = 1 << 31  # that a sum of as many as are looked up does not wrap around
Ends = tuple[Array, Array]


def ends_of(value: Item) -> Ends | None:
    """The smallest and the largest number that each element may be; None where it may be any."""
    if isinstance(value, Value) and value.dtype == np.bool_ and not value.exact:
        return np.zeros(value.data.shape, np.int64), np.ones(value.data.shape, np.int64)
    if isinstance(value, Value) and value.exact and value.data.dtype.kind in "iu":
        return value.data, value.data
    return value.ends if isinstance(value, Value) else None


def enter_ends(m: Interpreter, kind: str, inputs: list[Item], attributes: dict[str, Any], outputs: list[Item]) -> None:
    """Give whole numbers that an operator makes the ends that follow from those of its inputs."""
    output = outputs[-1] if outputs else None
    if not isinstance(output, Value) or output.exact or output.dtype.kind not in "iu" or output.data.size > _MOST:
        return
    if kind in ("ArgMax", "ArgMin", "TopK") and isinstance(inputs[0], Value):
        count = inputs[0].data.shape[attributes.get("axis", -1 if kind == "TopK" else 0)]
        output.ends = np.zeros(output.data.shape, np.int64), np.full(output.data.shape, count - 1)
        return
    count = len(inputs) if kind in ("Add", "Sub", "Concat", "Max", "Min") else 1
    known, rest = [ends_of(v) for v in inputs[:count]], inputs[count:]
    ends = [e for e in known if e is not None]
    if len(ends) < len(known):
        return
    if kind == "Sub":
        ends = [ends[0], (-ends[1][1], -ends[1][0])]
    if kind in ("Add", "Sub", "Cast"):
        low, high = (np.asarray(sum(side, np.int64(0))) for side in zip(*ends, strict=True))
        output.ends = _fitting(low, high, output)
    elif kind in _MONOTONE and _is_small(ends) and all(v is None or (isinstance(v, Value) and v.exact) for v in rest):
        sides = [[exact(end.astype(np.int64)) for end in side] for side in zip(*ends, strict=True)]
        few, many = (m.by_reference(kind, [*side, *map(_wide, rest)], attributes, 1) for side in sides)
        output.ends = _fitting(few.data, many.data, output)
    elif kind in _MOVED:
        moved = [m.by_reference(kind, [*map(exact, side), *rest], attributes, 1) for side in zip(*ends, strict=True)]
        output.ends = moved[0].data, moved[1].data


def _is_small(ends: list[Ends]) -> bool:
    return all(low.min(initial=0) > -_LARGEST and high.max(initial=0) < _LARGEST for low, high in ends)


def _fitting(low: Array, high: Array, output: Value) -> Ends | None:
    """Ends of an output whose type has both; None where numbers may wrap around."""
    limits = np.iinfo(output.dtype)
    return (low, high) if limits.min <= low.min(initial=0) and high.max(initial=0) <= limits.max else None


def _wide(value: Item) -> Item:
    """Whole numbers in the type of ends, such as the bounds of a Clip."""
    whole = isinstance(value, Value) and value.exact and value.data.dtype.kind in "iu"
    return exact(value.data.astype(np.int64)) if whole and isinstance(value, Value) else value


def taken_between(f: Field, table: Array, places: Array, ends: Ends | None) -> Array | None:
    """Elements by places [..., n] along the first n dims, each a function of those that it may be.

    Args:
        f: the field.
        table: of elements.
        places: elements.
        ends: of the places; None where nothing is known, for which there is no result.
    """
    count = places.shape[-1]
    if ends is None or not 0 < places.size <= _MOST:
        return None
    low, high = (end.reshape(-1, count).astype(np.int64) for end in ends)
    if (low < 0).any() or (high >= table.shape[:count]).any():
        return None
    boxes = (table[tuple(slice(a, b + 1) for a, b in zip(*pair, strict=True))] for pair in zip(low, high, strict=True))
    seen = np.stack([f.digest(box.reshape(-1, *table.shape[count:]), 0) for box in boxes])
    inside = f.sub(places.reshape(-1, count), f.from_int(low))
    columns = (column.reshape(-1, *[1] * (table.ndim - count)) for column in inside.T)
    return f.hash("take between", seen, *columns).reshape(*places.shape[:-1], *table.shape[count:])


follow(enter_ends, rows=True)

__all__ = ["ends_of", "enter_ends", "taken_between"]

"""Between which places an index lies that the values of a model decide.

A text model takes the row of the last token out of all rows of the batch, one behind the other: ArgMax + 20 * row. What
is taken hangs on the values, but it is one of the row's own 20. So followed are the ends of whole numbers where rows
are asked for: of an ArgMax, through sums with known numbers, and what moves them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtool.equality.certificate.field import Array, Field
from onnxtool.equality.certificate.interpreter import Interpreter, follow
from onnxtool.equality.certificate.values import Item, Value, exact

_MOST = 4096  # places that are looked up one by one
_MOVED = frozenset(("Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Concat", "Expand", "Transpose"))
Ends = tuple[Array, Array]


def ends_of(value: Item) -> Ends | None:
    """The smallest and the largest number that each element may be; None where it may be any."""
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
    known = [ends_of(v) for v in (inputs if kind in ("Add", "Concat") else inputs[:1])]
    ends = [e for e in known if e is not None]
    if len(ends) < len(known):
        return
    if kind in ("Add", "Cast"):
        low, high = (np.asarray(sum(side, np.int64(0))) for side in zip(*ends, strict=True))
        limits = np.iinfo(output.dtype)
        output.ends = (low, high) if limits.min <= low.min() and high.max() <= limits.max else None
    elif kind in _MOVED:
        rest = [] if kind == "Concat" else inputs[1:]
        moved = [m.by_reference(kind, [*map(exact, side), *rest], attributes, 1) for side in zip(*ends, strict=True)]
        output.ends = moved[0].data, moved[1].data


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

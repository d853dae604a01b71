"""Masks of attention that hide later positions: how exporters write them."""

from __future__ import annotations

import enum

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer
from onnxtool.model.operators.layout_rules import SliceBounds, slice_bounds
from onnxtool.model.operators.value_facts import Size, integers, rank_of, sizes_of
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.patterns.operands import uniform_value

HIDDEN = -1e9  # at or below this, a key has no weight beside one that is not hidden
_LARGEST = 1 << 24  # elements of a constant mask that is looked at
_DEEPEST = 8  # logical operators on top of each other that are looked through; masks have two or three
_RESHAPING = ("Unsqueeze", "Reshape", "Expand", "Identity", "Cast")


class Causal(enum.Enum):
    """What a mask hides.

    Attributes:
        ONLY: from each position those after it, and nothing else.
        ALSO: those and perhaps others, all of them with minus infinity.
    """

    ONLY = enum.auto()
    ALSO = enum.auto()


def added(mask: ir.Value, context: PassContext) -> Causal | None:
    """What a mask that is added to the scores hides; None when it is not known to hide every later position."""
    mask = _inner(mask)
    array = context.array(mask, limit=_LARGEST)
    if array is not None:
        shown = _square(array)
        hidden = shown is not None and bool(((shown == 0) | (shown <= HIDDEN)).all())
        return Causal.ONLY if shown is not None and hidden and _lower(shown == 0) else None
    triangle = producer(mask, "Trilu")
    if triangle is not None:
        fill = uniform_value(triangle.inputs[0], context)
        upper = _diagonal(triangle, upper=1) == 1
        return Causal.ONLY if upper and fill is not None and fill <= HIDDEN else None
    choice = producer(mask, "Where")
    if choice is None or choice.inputs[0] is None:
        return None
    yes, no = (uniform_value(v, context) for v in choice.inputs[1:3])
    if yes is None or no is None:
        return None
    if yes == 0 and no <= HIDDEN:
        found = shows(choice.inputs[0], context)
    else:
        found = hides(choice.inputs[0], context) if no == 0 and yes <= HIDDEN else None
    return None if found is Causal.ALSO and min(yes, no) != -np.inf else found


def shows(condition: ir.Value, context: PassContext, deepest: int = _DEEPEST) -> Causal | None:
    """The same of a condition that is true where a position is seen; None where it is made of too many others."""
    if deepest == 0:
        return None
    condition = _inner(condition)
    both = producer(condition, "And")
    if both is not None:
        return Causal.ALSO if any(shows(v, context, deepest - 1) for v in both.inputs if v is not None) else None
    opposite = producer(condition, "Not")
    if opposite is not None and opposite.inputs[0] is not None:
        return hides(opposite.inputs[0], context, deepest - 1)
    if _compares(condition, ("LessOrEqual", "GreaterOrEqual"), context) or _triangle(condition, context):
        return Causal.ONLY
    return None


def hides(condition: ir.Value, context: PassContext, deepest: int = _DEEPEST) -> Causal | None:
    """The same of a condition that is true where a position is hidden."""
    if deepest == 0:
        return None
    condition = _inner(condition)
    either = producer(condition, "Or")
    if either is not None:
        return Causal.ALSO if any(hides(v, context, deepest - 1) for v in either.inputs if v is not None) else None
    opposite = producer(condition, "Not")
    if opposite is not None and opposite.inputs[0] is not None:
        return shows(opposite.inputs[0], context, deepest - 1)
    equal = producer(condition, "Equal")
    if equal is not None:
        for value, number in (equal.inputs, equal.inputs[::-1]):
            if value is not None and uniform_value(number, context) == 0 and _triangle(value, context):
                return Causal.ONLY
        return None
    array = context.array(condition, limit=_LARGEST)
    if array is not None:
        found = _square(array)
        return Causal.ONLY if found is not None and np.isin(found, (0, 1)).all() and _lower(found == 0) else None
    above = producer(condition, "Trilu")
    if above is not None and _diagonal(above, upper=1) == 1 and uniform_value(above.inputs[0], context) == 1:
        return Causal.ONLY
    return Causal.ONLY if _compares(condition, ("Less", "Greater"), context) else None


def covers(mask: ir.Value, scores: ir.Value, context: PassContext) -> bool:
    """Whether the last two dims of a mask, or of a condition, are those of the scores, and both the same."""
    whole, own = sizes_of(scores), sizes_of(mask)
    if whole is None or own is None or len(whole) < 2 or len(own) < 2 or whole[-1] != whole[-2]:
        return False
    return own[-2:] == whole[-2:] or _cut(mask, whole[-1], context)


def _cut(mask: ir.Value, length: Size, context: PassContext) -> bool:
    """Whether it comes from a large constant that is sliced to the length along both dims.

    Beyond the constant's size the dims would not fit, and the model itself fails.
    """
    value: ir.Value | None = mask
    axes = set()
    while (node := producer(value, *_RESHAPING, "Slice", "Equal", "Where", "Not")) is not None:
        if node.op_type == "Slice":
            bounds, rank = _from_the_start(node), rank_of(node.outputs[0])
            if bounds is None or rank is None:
                return False
            axes |= {a - rank if a >= 0 else a for a, e in zip(bounds.axes, bounds.ends, strict=True) if e == length}
        varying = [v for v in node.inputs if v is not None and uniform_value(v, context) is None]
        value = varying[0] if node.op_type in ("Equal", "Where") and len(varying) == 1 else node.inputs[0]
    array = context.array(value, limit=_LARGEST)
    return axes >= {-1, -2} and array is not None and array.ndim > 1 and min(array.shape[-2:]) > 1


def _compares(condition: ir.Value, operators: tuple[str, str], context: PassContext) -> bool:
    """Whether a comparison is between positions: keys on one side and queries on the other.

    Keys are on the left of LessOrEqual and GreaterOrEqual's right, as these show them; on the right of Less and the
    left of Greater, as these hide them.
    """
    node = producer(condition, *operators)
    if node is None:
        return False
    keys, queries = node.inputs if node.op_type in ("LessOrEqual", "Greater") else node.inputs[::-1]
    return _positions(keys, context) == -1 and _positions(queries, context) == -2


def _positions(value: ir.Value | None, context: PassContext) -> int | None:
    """The axis, counted from the end, along which a value is 0, 1, 2, ...; None when it is something else."""
    sizes = sizes_of(value)
    along = [i - len(sizes) for i, s in enumerate(sizes) if s != 1] if sizes is not None else []
    if value is None or len(along) != 1:
        return None
    array = context.array(value, limit=_LARGEST)
    if array is not None:
        return along[0] if np.array_equal(array.reshape(-1), np.arange(array.size)) else None
    inner: ir.Value | None = value
    while (node := producer(inner, *_RESHAPING, "Squeeze")) is not None:
        before = sizes_of(node.inputs[0])
        if before is None or [s for s in before if s != 1] != [s for s in sizes or () if s != 1]:
            return None
        inner = node.inputs[0]
    made = producer(inner, "Range")
    if made is None or integers(made.inputs[0]) != (0,) or integers(made.inputs[2]) != (1,):
        return None
    return along[0]


def _triangle(value: ir.Value, context: PassContext) -> bool:
    """Whether a value is zero (or false) above the diagonal of its last two dims, and nowhere else."""
    value = _inner(value)
    while (part := producer(value, "Slice")) is not None and _from_the_start(part):
        assert part.inputs[0] is not None
        value = _inner(part.inputs[0])
    array = context.array(value, limit=_LARGEST)
    if array is not None:
        found = _square(array)
        return found is not None and bool(np.isin(found, (0, 1)).all()) and _lower(found != 0)
    made = producer(value, "Trilu")
    return made is not None and _diagonal(made, upper=0) == 0 and uniform_value(made.inputs[0], context) == 1


def _from_the_start(part: ir.Node) -> SliceBounds | None:
    """The bounds of a Slice that takes the first of some dims."""
    bounds = slice_bounds(part)
    first = bounds is not None and all(s == 0 for s in bounds.starts) and set(bounds.steps) == {1}
    return bounds if first else None


def _diagonal(triangle: ir.Node, upper: int) -> int | None:
    """The diagonal of a Trilu that keeps the given half; None for one of the other half, or one that is computed."""
    if attribute(triangle, "upper", 1) != upper:
        return None
    if len(triangle.inputs) < 2 or triangle.inputs[1] is None:
        return 0
    found = integers(triangle.inputs[1])
    return found[0] if found else None


def _inner(value: ir.Value) -> ir.Value:
    """The value before dims of one were put in front of its last two, or a type was changed."""
    while (node := producer(value, *_RESHAPING)) is not None and node.inputs[0] is not None:
        before, after = sizes_of(node.inputs[0]), sizes_of(value)
        if before is None or after is None or len(before) < 2 or before[-2:] != after[-2:]:
            return value
        if any(s != 1 for s in before[:-2]):
            return value
        value = node.inputs[0]
    return value


def _square(array: np.ndarray) -> np.ndarray | None:
    """The last two dims, when they are equal and those before them are 1."""
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.size != array.shape[-1] ** 2:
        return None
    return array.reshape(array.shape[-2:])


def _lower(seen: np.ndarray) -> bool:
    return bool(np.array_equal(seen, np.tril(np.ones(seen.shape, bool))))

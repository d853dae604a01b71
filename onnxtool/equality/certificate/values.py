"""Tensors of a model over a field, and what is known of their numbers where canonical forms ask."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray
Attributes = dict[str, Any]
Item = Any  # a Value, a list of them (a sequence), or None (an empty optional)
Tag = tuple[Any, ...]

_SMALL = 16
WRAPS = ("wraps",)  # the tag of integers that arithmetic made: beyond their type they wrap around
# Tags that say something of each element: of the first kind as they are, of the others by elements that move with them.
OF_EACH = frozenset((("whole",), ("wraps",), ("positive",), ("bool",), ("wide",)))
MOVED = frozenset((("root",), ("power",), ("logarithm",), ("log",), ("above",), ("clip",), ("lowest",)))
FILL = frozenset(("Trilu", "CenterCropPad", "ReverseSequence"))  # zeros come in, or it depends on more


# What NumPy and ONNX's own implementation may raise for numbers, shapes and types that an operator does not take.
FAULTS = (ValueError, LookupError, TypeError, RuntimeError, AttributeError, ArithmeticError, AssertionError)


class NotCoveredError(Exception):
    """The interpreter cannot evaluate the graph; the message says which operator and why."""


class DataShapeError(NotCoveredError):
    """An operator gives as many elements as the data says.

    Attributes:
        operator: which.
    """

    def __init__(self, operator: str) -> None:
        super().__init__(f"{operator}, whose shape the data decides")
        self.operator = operator


class TooManyStepsError(NotCoveredError):
    """A loop that is longer than what is followed; it says nothing of the model."""


class UndefinedError(NotCoveredError):
    """An operator at sizes for which nothing says what it gives, or for which its formula fails."""


@dataclass(frozen=True)
class Over:
    """Numbers that are no smaller than a part of others, as what a normalization divides by.

    Attributes:
        kind: "square": at least factor * x^2; "root": at least factor * |x|; "inverse": at most 1 / (factor * |x|).
        x: elements, along whose axis they were summed.
        factor: above zero.
        least: no number is smaller than that; of an inverse no reciprocal is.
    """

    kind: str
    x: Array
    factor: float
    least: float


@dataclass(eq=False)
class Value:
    """A tensor.

    Attributes:
        data: exact numbers, booleans or strings, or elements of the field.
        dtype: that the tensor has in the model.
        exact: `data` are the tensor's own; else elements.
        tag: how it came to be, where canonical forms ask.
        number: of elements that depend on no input, what they are in the tensor's own precision; a shape may follow.
        mark: what tells it from others, once asked.
        bound: the largest magnitude that its numbers may have, where models ask for NaN.
        nan: of a softmax, which of its numbers are NaN because all that it is taken over is -inf; as elements that
            stand for 0 or 1, broadcast.
        over: of a mean of squares and what is made of it, what it is no smaller than.
        ends: of whole numbers the smallest and the largest that each may be, where rows are asked for.
    """

    data: Array
    dtype: np.dtype[Any]
    exact: bool = True
    tag: tuple[Any, ...] = ()
    number: Array | None = None
    mark: object = None
    bound: float | None = None
    nan: Array | None = None
    over: Over | None = None
    ends: tuple[Array, Array] | None = None


@functools.cache
def is_float(dtype: np.dtype[Any]) -> bool:
    """Floats of all precisions, those that numpy does not know too."""
    return dtype.name.startswith(("float", "bfloat"))


def largest(array: Array) -> float:
    """The largest magnitude of an array's numbers; NaN where one is."""
    if not array.size:
        return 0.0
    return float(max(abs(float(array.max())), abs(float(array.min()))))


def exact(array: Any) -> Value:
    """A tensor whose numbers are known."""
    data = np.asarray(array)
    return Value(data, data.dtype)


def shared_tag(values: Sequence[Value]) -> Tag:
    """What is true of each of some tensors; that integers may have wrapped around, of one is enough."""
    first = next((v.tag for v in values if not v.exact), ())
    if any(v.tag == WRAPS for v in values):
        return WRAPS
    return first if all(_is_tag(v.tag, first) or (v.exact and _is_whole(v.data, first)) for v in values) else ()


def tag_of_each(values: Sequence[Value]) -> Tag:
    """What is true of each element of some tensors, wherever it goes."""
    tag = shared_tag(values)
    return tag if tag[:1] in OF_EACH else ()


def _is_tag(tag: Tag, other: Tag) -> bool:
    """Whether two tags are the same; of elements, whether they are the same array."""
    pairs = zip(tag, other, strict=False)
    return len(tag) == len(other) and all(x is y or (not isinstance(x, np.ndarray) and x == y) for x, y in pairs)


def _is_whole(array: Array, tag: Tag) -> bool:
    """Whether known numbers are integers of the type that a tag says a tensor holds."""
    if tag[:1] != ("whole",) or array.dtype.kind not in "fiu":
        return False
    limits = np.iinfo(tag[1])
    return bool(((array == np.round(array)) & (array >= limits.min) & (array <= limits.max)).all())


def moved_tags(tag: Tag, shape: tuple[int, ...], move: Callable[[Array], Sequence[Array]], count: int) -> list[Tag]:
    """What stays true of elements in other places.

    Args:
        tag: of a tensor.
        shape: of the tensor.
        move: what becomes of elements of that shape: `count` arrays.
        count: how many tensors the elements go to.
    """
    if tag[:1] in OF_EACH:
        return [tag] * count
    arrays = [x for x in tag[1:] if isinstance(x, np.ndarray)]
    if tag[:1] not in MOVED or any(x.shape != shape for x in arrays):
        return [()] * count
    moved = [[x] * count if not isinstance(x, np.ndarray) else move(x) for x in tag[1:]]
    return [(tag[0], *parts) for parts in zip(*moved, strict=True)]


def small_number(value: Value) -> Array | None:
    """The numbers of a tensor of few elements, where they are known."""
    if value.data.size > _SMALL or value.data.dtype.kind not in "bifu":
        return None
    return value.data if value.exact else value.number


def several(found: Any) -> tuple[Item, ...]:
    """An operator's outputs, of which a single one stands for itself."""
    return found if isinstance(found, tuple) else (found,)


def other_numbers(value: Value | None) -> Value | None:
    """Zeros that stand for symbols, with other numbers in their place."""
    if value is None or value.data.dtype.kind in "OUSb" or value.data.any():
        return value
    return Value((np.arange(value.data.size).reshape(value.data.shape) % 3).astype(value.data.dtype), value.dtype)


def plain(value: Item) -> Any:
    """The arrays of a tensor or a sequence."""
    return [v.data for v in value] if isinstance(value, list) else value.data


def ordinary_type(dtype: np.dtype[Any]) -> Any:
    """One that numpy computes with, for floats that it may not know."""
    return np.float32 if is_float(dtype) else dtype


def type_of(value: Item) -> onnx.TypeProto:
    """What ONNX calls a tensor of this type and shape."""
    if value is None:
        return onnx.TypeProto()
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.data.shape)


__all__ = [
    "FAULTS",
    "FILL",
    "MOVED",
    "WRAPS",
    "Array",
    "Attributes",
    "Item",
    "NotCoveredError",
    "Over",
    "Tag",
    "TooManyStepsError",
    "UndefinedError",
    "Value",
    "exact",
    "is_float",
    "largest",
    "moved_tags",
    "ordinary_type",
    "other_numbers",
    "plain",
    "several",
    "shared_tag",
    "small_number",
    "tag_of_each",
    "type_of",
]

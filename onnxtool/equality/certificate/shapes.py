"""A field whose elements are not computed: what is left of a graph are its sizes, and what follows from them.

A graph is run in it thousands of times, to find the sizes at which it does something else: a window more, another
branch, another row of a table. At these the graphs are then compared in a true field.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from onnxtool.equality.certificate.field import Array, Decisions, Field

_ZERO = np.int64(0)


def _zeros(*arrays: ArrayLike) -> Array:
    shapes = {np.shape(a) for a in arrays}
    return _view(shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes))


def _of(shape: Sequence[int]) -> Array:
    return _view(tuple(shape))


@lru_cache(1 << 14)
def _view(shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(_ZERO, shape)  # which nothing can be written to


class Shapes(Field):
    """The operations of a field on views of one zero."""

    has_values = False

    def __init__(self) -> None:
        super().__init__(0)

    def _broadcast(self, *arguments: object, **_: object) -> Array:
        """What any function of single elements gives of its arrays, of which it takes numbers and texts besides."""
        return _zeros(*(a for a in arguments if isinstance(a, np.ndarray)))

    fold = neg = inverse = relu = abs = exp = sqrt = sigmoid = tanh = positive = cumsum = _broadcast
    add = sub = mul = div = less = equal = maximum = minimum = where = power = clip = gelu = _broadcast
    hash = function = softmax = shifted_exp = layer_norm = _broadcast

    def from_int(self, x: ArrayLike) -> Array:
        return _zeros(x)

    from_float = from_int

    def scalar(self, x: float) -> Array:
        return _of(())

    def draw(self, name: str, shape: Sequence[int]) -> Array:
        return _of(shape)

    def log_sum_exp(self, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
        return self.sum(x, axes, keepdims)

    def sum(self, x: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        given = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = {a % x.ndim for a in given}
        if keepdims:
            return _of([1 if i in axes else n for i, n in enumerate(x.shape)])
        return _of([n for i, n in enumerate(x.shape) if i not in axes])

    mean = reduce_max = product = sum

    def digest(self, x: Array, axis: int = -1) -> Array:
        return self.sum(x, axis)

    def fingerprint(self, x: Array) -> int:
        return 0

    def opaque(self, name: str, attributes: object, arguments: Sequence[Array], shape: Sequence[int]) -> Array:
        return _of(shape)

    def matmul(self, a: Array, b: Array) -> Array:
        x, y = a if a.ndim > 1 else a[None], b if b.ndim > 1 else b[:, None]
        if x.shape[-1] != y.shape[-2]:
            raise ValueError("the sizes of a matrix product differ")
        rows = [x.shape[-2]] if a.ndim > 1 else []
        return _of([*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), *rows, *([y.shape[-1]] if b.ndim > 1 else [])])

    def einsum(self, equation: str, *parts: Array) -> Array:
        return _zeros(np.einsum(equation, *(np.broadcast_to(np.float32(0), p.shape) for p in parts), optimize=True))

    def conv(
        self,
        x: Array,
        weight: Array,
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[int],
        groups: int = 1,
    ) -> Array:
        if x.shape[1] != weight.shape[1] * groups:
            raise ValueError("the channels of a convolution differ")
        rank, kernel = x.ndim - 2, weight.shape[2:]
        reach = [dilations[i] * (kernel[i] - 1) + 1 for i in range(rank)]
        room = [x.shape[2 + i] + pads[i] + pads[rank + i] - reach[i] for i in range(rank)]
        if min(room, default=0) < 0:
            raise ValueError("a convolution reaches further than its input")
        return _of([x.shape[0], weight.shape[0], *(n // s + 1 for n, s in zip(room, strides, strict=True))])

    def window_sum(
        self, x: Array, kernel: Sequence[int], size: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Array:
        return _of([*x.shape[:2], *size])

    def pad(self, x: Array, widths: Sequence[tuple[int, int]], mode: str = "constant", fill: ArrayLike = 0) -> Array:
        added = [before + behind for before, behind in widths]
        if mode != "constant" and any(n == 0 < more for n, more in zip(x.shape, added, strict=True)):
            raise ValueError("nothing to pad with")
        return _of([n + more for n, more in zip(x.shape, added, strict=True)])

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        first, k = list(arrays[0].shape), axis % arrays[0].ndim
        if any([*x.shape[:k], *x.shape[k + 1 :]] != [*first[:k], *first[k + 1 :]] for x in arrays):
            raise ValueError("the sizes beside a Concat differ")
        return _of([*first[:k], sum(x.shape[k] for x in arrays), *first[k + 1 :]])

    def conv_transpose(
        self,
        x: Array,
        weight: Array,
        strides: Sequence[int],
        dilations: Sequence[int],
        pads: Sequence[int],
        size: Sequence[int],
        groups: int = 1,
    ) -> Array:
        return _of([x.shape[0], weight.shape[1] * groups, *size])

    def reached(self, x: Array, trees: Decisions) -> Array:
        return _of([x.shape[0], trees.count])

    def rows(self, table: Array, indices: Array, axis: int = 0) -> Array:
        count = table.shape[axis]
        if indices.size and not -count <= indices.min() <= indices.max() < count:
            raise IndexError(f"a row that a table of {count} rows has not")
        return self.take(table, indices, axis)

    def take(self, table: Array, indices: Array, axis: int = 0) -> Array:
        return _of([*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :]])

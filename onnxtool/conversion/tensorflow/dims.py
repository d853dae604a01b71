"""Names for the unknown dims of what TensorFlow functions give, which have None where ONNX has a symbol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.conversion.tensorflow.environment import quiet
from onnxtool.model.spec import Dim, TensorSpec

# Distinct sizes for dynamic dims, to see which output dim follows which input dim. Multiples of 32, for strides.
_PROBE_SIZES = (32, 64, 96, 128, 160, 192)


def follow_dims(
    inputs: Sequence[TensorSpec], shapes: Sequence[tuple[int | None, ...] | None], call: Callable[..., Sequence[Any]]
) -> list[tuple[Dim, ...] | None]:
    """Name the unknown dims of the outputs after the input dims that they follow.

    The first is the batch. For others the model runs once with a distinct size for each dynamic input dim; a dim that
    follows none stays unnamed (None).

    Args:
        inputs: what the model takes.
        shapes: what TensorFlow knows of the outputs' shapes.
        call: tensors in the order of `inputs` -> output tensors.
    """
    first = inputs[0].shape if inputs else None
    batch = first[0] if first and isinstance(first[0], str) else None
    observed: list[tuple[int, ...]] = []
    by_size: dict[int, str] = {}
    if any(d is None for s in shapes for d in (s or ())[1:]):
        words = dict.fromkeys(d for s in inputs for d in s.dynamic_dims if d != batch)
        sizes = dict(zip(words, _PROBE_SIZES, strict=False))
        by_size = {size: word for word, size in sizes.items()}
        observed = _observe(inputs, sizes | ({batch: 3} if batch else {}), call)
    if [len(s) for s in observed] != [-1 if s is None else len(s) for s in shapes]:
        observed = [(0,) * len(s or ()) for s in shapes]
    return [
        None
        if shape is None
        else tuple(
            dim if dim is not None else batch if axis == 0 else by_size.get(seen[axis])
            for axis, dim in enumerate(shape)
        )
        for shape, seen in zip(shapes, observed, strict=True)
    ]


def _observe(
    inputs: Sequence[TensorSpec], sizes: Mapping[str, int], call: Callable[..., Sequence[Any]]
) -> list[tuple[int, ...]]:
    import tensorflow as tf

    if any(isinstance(s.dtype, str) or s.shape is None for s in inputs):
        return []
    feeds = [np.zeros([_size(d, sizes) for d in s.shape or ()], s.dtype) for s in inputs]
    with quiet():
        try:
            return [tuple(t.shape) for t in call(*(tf.constant(f) for f in feeds))]
        except Exception:  # sizes that do not go together: equal lengths wanted, a fixed patch grid
            return []


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else sizes.get(dim or "", 1)


def swaps(shape: Any, nchw: bool) -> bool:
    """Whether a tensor of this shape is transposed for `--layout nchw`."""
    return nchw and shape is not None and len(shape) == 4


def swapped(shape: tuple[Dim, ...] | None, nchw: bool) -> tuple[Dim, ...] | None:
    """A channels-last shape as the interface shows it."""
    return tuple(shape[axis] for axis in (0, 3, 1, 2)) if shape is not None and swaps(shape, nchw) else shape

"""Adaptive pooling at sizes that are no multiple of the output's, or not known: torch's exporter fixes the size.

Of n places, window i of k begins at floor(i n / k) and ends before ceil((i + 1) n / k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxscript

op = onnxscript.opset18


def average(values: Any, output_size: Sequence[Any]) -> Any:
    """aten::adaptive_avg_pool2d and 3d (of which 1d is made): `values` [..., sizes] -> [..., output_size]."""
    rank = len(output_size)
    if (pooled := _regular(values, output_size, "AveragePool", op.ReduceMean)) is not None:
        return pooled
    found = _windows(values, output_size)
    inside = reduce(op.And, found.inside)
    zero = op.CastLike(op.Constant(value_float=0.0), values)
    total = op.ReduceSum(op.Where(inside, found.values, zero), _last(rank), keepdims=0)
    count = op.ReduceSum(op.Cast(inside, to=ir.DataType.INT64), _last(rank), keepdims=0)
    return op.Div(total, op.CastLike(count, values))


def maximum(values: Any, output_size: Sequence[Any]) -> tuple[Any, Any]:
    """aten::adaptive_max_pool2d and 3d (of which 1d is made).

    Returns:
        The largest of each window, and its place in the flat [sizes].
    """
    rank = len(output_size)
    found = _windows(values, output_size)
    highest = op.ReduceMax(found.values, _last(rank), keepdims=1)
    beyond = op.Constant(value_int=2**63 - 1)
    places = op.ReduceMin(op.Where(op.Equal(found.values, highest), found.places, beyond), _last(rank), keepdims=0)
    pooled = _regular(values, output_size, "MaxPool", op.ReduceMax)
    return op.Squeeze(highest, _last(rank)) if pooled is None else pooled, places


def _regular(values: Any, output_size: Sequence[Any], operator: str, whole: Any) -> Any:
    """By the operator for windows that are all alike; None where they are not known to be."""
    rank = len(output_size)
    if not all(isinstance(k, int) for k in output_size):
        return None
    if all(k == 1 for k in output_size):
        return whole(values, _last(rank), keepdims=1)
    sizes = values.shape[-rank:]
    if not all(isinstance(n, int) and n % k == 0 for n, k in zip(sizes, output_size, strict=True)):
        return None
    steps = [n // k for n, k in zip(sizes, output_size, strict=True)]
    batch = op.Constant(value_ints=[0])
    single = len(values.shape) == rank + 1
    given = op.Unsqueeze(values, batch) if single else values
    pooled = getattr(op, operator)(given, kernel_shape=steps, strides=steps)
    pooled = pooled[0] if isinstance(pooled, (tuple, list)) else pooled
    return op.Squeeze(pooled, batch) if single else pooled


@dataclass(frozen=True)
class _Windows:
    """The windows of a tensor.

    Attributes:
        values: [..., windows of each axis, places in a window of each axis]; its last place again behind the end.
        places: [windows of each axis, places in a window of each axis]: the flat index of each.
        inside: of each axis, which places are not behind the end; broadcast to the shape of `places`.
    """

    values: Any
    places: Any
    inside: list[Any]


def _windows(values: Any, output_size: Sequence[Any]) -> _Windows:
    rank, lead = len(output_size), len(values.shape) - len(output_size)
    one = op.Constant(value_int=1)
    made, places, inside = values, op.Constant(value_int=0), []
    for axis, count in enumerate(output_size):
        size = op.Gather(op.Shape(values), op.Constant(value_int=lead + axis), axis=0)
        # A size that is kept comes as a number that the graph computes.
        windows = op.Constant(value_int=count) if isinstance(count, int) else op.Squeeze(count)
        number = op.Range(op.Constant(value_int=0), windows, one)
        start = op.Div(op.Mul(number, size), windows)
        end = op.Div(op.Sub(op.Add(op.Mul(op.Add(number, one), size), windows), one), windows)
        longest = op.ReduceMax(op.Sub(end, start), keepdims=0)
        place = op.Add(_column(start), op.Range(op.Constant(value_int=0), longest, one))
        last = op.Sub(_column(end), one)
        made = op.Gather(made, op.Min(place, last), axis=lead + 2 * axis)
        shape = op.Constant(value_ints=[i for i in range(2 * rank) if i % rank != axis])
        inside.append(op.Unsqueeze(op.LessOrEqual(place, last), shape))
        places = op.Add(op.Mul(places, size), op.Unsqueeze(op.Min(place, last), shape))
    order = [*range(lead), *range(lead, lead + 2 * rank, 2), *range(lead + 1, lead + 2 * rank, 2)]
    return _Windows(op.Transpose(made, perm=order), places, inside)


def _column(row: Any) -> Any:
    return op.Unsqueeze(row, op.Constant(value_ints=[1]))


def _last(rank: int) -> Any:
    return op.Constant(value=ir.tensor(np.arange(-rank, 0)))

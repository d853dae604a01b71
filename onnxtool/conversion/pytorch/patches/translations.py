"""Operators that torch.export's exporter has no translation for, or one that loses what decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxscript
import torch
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_div_mode,
    aten_floor_divide,
    aten_grid_sampler,
    aten_index_put,
    aten_roll,
)
from onnxscript.function_libs.torch_lib.ops.nn import (
    aten_avg_pool2d,
    aten_avg_pool3d,
    aten_group_norm,
    aten_scaled_dot_product_attention,
    aten_upsample_nearestnd_vec,
)

from onnxtool.conversion.patches import LibraryPatch, applied
from onnxtool.conversion.pytorch.patches import adaptive_pools, elimination, fourier, loop_steps, size_fractions
from onnxtool.conversion.small_numbers import (
    atan2,
    digamma,
    erfcx,
    erfinv,
    expm1,
    floor_divide,
    floor_mod,
    is_negative,
    lgamma,
    log1p,
    log_add_exp,
)

op = onnxscript.opset18
Translation = Callable[..., Any]


_TABLE: dict[object, Translation] = {}


def translations() -> dict[object, Translation]:
    """What torch.export's exporter is to write for operators that it lacks or has wrong."""
    with applied(PATCHES):
        return dict(_TABLE)


def _stable_sort(values: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """Torch's exporter has a translation of aten::sort, and none of its stable form: ONNX's TopK is stable, since of
    equal values it takes the one of lower index first.
    """
    del stable
    if len(values.shape) == 0:
        return values, op.Constant(value_int=0)
    return op.TopK(values, _size(values, dim), axis=dim, largest=int(descending), sorted=1)


def _median_along(values: Any, dim: int, keepdim: bool = False) -> Any:
    if len(values.shape) == 0:
        return values, op.Constant(value_int=0)
    return _last_of_smallest(values, _half(values, dim), dim, keepdim)


def _median(values: Any) -> Any:
    flat = op.Reshape(values, op.Constant(value_ints=[-1]))
    return _last_of_smallest(flat, _half(flat, 0), 0, keepdim=False)[0]


def _half(values: Any, dim: int) -> Any:
    """(n + 1) // 2: of the two in the middle torch's median is the lower."""
    return op.Div(op.Add(_size(values, dim), op.Constant(value_ints=[1])), op.Constant(value_ints=[2]))


def _last_of_smallest(values: Any, count: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """The largest of the `count` smallest along a dim, and its places."""
    smallest = op.TopK(values, count, axis=dim, largest=0, sorted=1)
    last = op.Sub(count, op.Constant(value_ints=[1]))
    found = [op.Gather(part, last, axis=dim) for part in smallest]
    return tuple(found if keepdim else [op.Squeeze(part, op.Constant(value_ints=[dim])) for part in found])


def _median_of_numbers(values: Any, dim: int, keepdim: bool = False) -> Any:
    """Of what is not NaN, along a dim; NaN where there is nothing else."""
    lost, one, axis = op.IsNaN(values), op.Constant(value_ints=[1]), op.Constant(value_ints=[dim])
    count = op.ReduceSum(op.Cast(op.Not(lost), to=ir.DataType.INT64), axis, keepdims=1)
    known = op.Where(lost, _like(math.inf, values), values)
    ranked = op.TopK(known, _size(values, dim), axis=dim, largest=0, sorted=1)
    middle = op.Div(op.Sub(op.Max(count, one), one), op.Constant(value_ints=[2]))
    found, place = (op.GatherElements(part, middle, axis=dim) for part in ranked)
    found = op.Where(op.Equal(count, op.Constant(value_ints=[0])), _like(math.nan, values), found)
    return tuple(part if keepdim else op.Squeeze(part, axis) for part in (found, place))


def _median_of_all_numbers(values: Any) -> Any:
    return _median_of_numbers(op.Reshape(values, op.Constant(value_ints=[-1])), 0)[0]


def _commonest(values: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The smallest of those that stand most often along a dim, and the first of its places."""
    ranked, places = op.TopK(values, _size(values, dim), axis=dim, largest=0, sorted=1)
    axis = dim % len(values.shape)
    alike = op.Equal(*(op.Unsqueeze(ranked, op.Constant(value_ints=[axis + n])) for n in (0, 1)))
    counts = op.ReduceSum(op.Cast(alike, to=ir.DataType.INT64), op.Constant(value_ints=[axis]), keepdims=0)
    best = op.ArgMax(counts, axis=axis, keepdims=1)
    found = [op.GatherElements(part, best, axis=axis) for part in (ranked, places)]
    return tuple(found if keepdim else [op.Squeeze(part, op.Constant(value_ints=[axis])) for part in found])


def _sampled(image: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    """Of a place beyond the border torch takes the border, of one at infinity too, where the runtime gives 0. Where
    the nearest pixel is sought, and in volumes, what is nowhere is beyond the zeros, or at the last pixel.
    """
    if len(image.shape) == 5 or (mode, padding) == (1, 0):
        nowhere = op.IsNaN(grid) if padding == 1 else op.Not(op.Less(op.Abs(grid), _like(math.inf, grid)))
        grid = op.Where(nowhere, _like({0: 3.0, 1: 2.0, 2: 1.0}[padding], grid), grid)
    if padding == 1:
        grid = op.Clip(grid, *(op.CastLike(op.Constant(value_float=end), grid) for end in (-2.0, 2.0)))
    return aten_grid_sampler(image, grid, mode, padding, align_corners)


def _pooled(own: Translation) -> Translation:
    """Means of windows, of which sums may be divided by a number of their own."""

    def translation(
        values: Any, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        if divisor_override is None:
            return own(values, kernel, stride, padding, ceil_mode, count_include_pad)
        if ceil_mode:
            raise NotImplementedError("a pool with a divisor of its own and ceil_mode")
        sizes = list(kernel) * (len(values.shape) - 2 if len(kernel) == 1 else 1)
        means = own(values, kernel, stride, padding, False, True)
        return op.Mul(means, _like(math.prod(sizes) / divisor_override, means))

    return translation


def _selected(values: Any, mask: Any) -> Any:
    """Those at which a mask is true, in a row; each is broadcast to the other."""
    chosen = op.Reshape(op.Expand(mask, op.Shape(values)), op.Constant(value_ints=[-1]))
    return op.Compress(op.Expand(values, op.Shape(mask)), chosen)


def _kth_smallest(values: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _last_of_smallest(values, op.Constant(value_ints=[k]), dim, keepdim)


def _diagonal(values: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Taken by their places: a product with zeros elsewhere makes NaN of what is infinite there."""
    rank = len(values.shape)
    rows, columns = (_size(values, dim % rank) for dim in (dim1, dim2))
    kept = [k for k in range(rank) if k not in (dim1 % rank, dim2 % rank)]
    moved = op.Transpose(values, perm=[*kept, dim1 % rank, dim2 % rank])
    zero, one, down, right = (op.Constant(value_ints=[k]) for k in (0, 1, max(0, -offset), max(0, offset)))
    count = op.Max(op.Min(op.Sub(rows, down), op.Sub(columns, right)), zero)
    steps = op.Range(op.Squeeze(zero), op.Squeeze(count), op.Squeeze(one))
    places = op.Add(op.Add(op.Mul(down, columns), right), op.Mul(steps, op.Add(columns, one)))
    shape = [*(_size(values, k) for k in kept), op.Mul(rows, columns)]
    flat = op.Reshape(moved, op.Concat(*shape, axis=0) if kept else shape[0], allowzero=1)
    return op.Gather(flat, places, axis=rank - 2)


def _prefixes(values: Any, dim: int, rank: int, outside: Any) -> Any:
    """Of each place along a dim, those up to it, and `outside` for the others: [..., n, ...] -> [..., n, n, ...].

    Reduced along dim + 1 they are running products, maxima and so on, for which ONNX has no operators.
    """
    count = _size(values, dim)
    ones = op.Expand(op.Constant(value_int=1), op.Concat(count, count, axis=0))
    upto = op.Cast(op.Trilu(ones, upper=0), to=ir.DataType.BOOL)
    if rank - dim > 1:
        upto = op.Unsqueeze(upto, op.Constant(value_ints=list(range(2, rank - dim + 1))))
    return op.Where(upto, op.Unsqueeze(values, op.Constant(value_ints=[dim])), outside)


def _running_product(values: Any, dim: int, dtype: int | None = None) -> Any:
    rank = len(values.shape)
    if rank == 0 or dtype is not None:
        raise NotImplementedError("cumprod of a single number, or with a dtype of its own")
    each = _prefixes(values, dim % rank, rank, _like(1, values))
    return op.ReduceProd(each, op.Constant(value_ints=[dim % rank + 1]), keepdims=0)


def _running_extreme(reduction: str) -> Translation:
    """The largest or smallest up to each place, and where it stands last; from the first NaN on, the last NaN."""

    def translation(values: Any, dim: int) -> Any:
        rank, dtype = len(values.shape), values.dtype
        if rank == 0 or not (dtype.is_floating_point() or dtype.is_signed()):
            raise NotImplementedError("a running maximum or minimum of a single number, or of this type")
        dim %= rank
        after, count = op.Constant(value_ints=[dim + 1]), _size(values, dim)
        neutral = _neutral(reduction, dtype)
        column = op.Constant(value_ints=[-1, *[1] * (rank - 1 - dim)])
        places = op.Range(op.Constant(value_int=0), op.Squeeze(count), op.Constant(value_int=1))
        places = op.Expand(op.Reshape(places, column), op.Shape(values))
        numbers = values
        if dtype.is_floating_point():
            missing = op.IsNaN(values)
            numbers = op.Where(missing, neutral, values)
            places = op.Where(missing, op.Add(places, count), places)  # NaN is beyond all numbers
        each = _prefixes(numbers, dim, rank, neutral)
        reduced = {"max": op.ReduceMax, "min": op.ReduceMin}[reduction]
        best = op.Equal(each, reduced(each, after, keepdims=1))
        standing = _prefixes(places, dim, rank, op.Constant(value_int=-1))
        chosen = op.Or(best, op.GreaterOrEqual(standing, count))
        last = op.ReduceMax(op.Where(chosen, standing, op.Constant(value_int=-1)), after, keepdims=0)
        found = op.Mod(last, count)
        return op.GatherElements(values, found, axis=dim), found

    return translation


def _written_places(values: Any, indices: Any, updates: Any, accumulate: bool = False) -> Any:
    """ONNX's ScatterND takes int64 indices alone, and torch int32 too (istft has them)."""
    wide = list(indices)
    for k, index in enumerate(indices):
        if index is not None and index.dtype == ir.DataType.INT32:
            wide[k] = op.Cast(index, to=ir.DataType.INT64)
            wide[k].shape, wide[k].dtype = index.shape, ir.DataType.INT64
    return aten_index_put(values, wide, updates, accumulate)


def _neutral(reduction: str, dtype: Any) -> Any:
    """What changes nothing in a sum, a product, a maximum or a minimum."""
    limits = np.iinfo(dtype.numpy()) if dtype.is_integer() else None
    low, high = (limits.min, limits.max) if limits is not None else (-math.inf, math.inf)
    number = {"add": 0, "mul": 1, "max": low, "min": high}[reduction]
    return op.Constant(value=ir.tensor(np.asarray(number, dtype.numpy())))


def _scattered(values: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    """Elements of `source` summed, multiplied and so on at the places that they go to; means divide sums by counts.

    The exporter's means keep the last element, and where the first values do not count, an infinite one is made finite.
    """
    rank = len(values.shape)
    if not rank:
        values, index, source = (op.Reshape(v, op.Constant(value_ints=[1])) for v in (values, index, source))
    reduction = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    index, dtype = op.Cast(index, to=ir.DataType.INT64), values.dtype
    start = values
    if not include_self:
        neutral = op.Expand(_neutral(reduction, dtype), op.Shape(index))
        start = op.ScatterElements(values, index, neutral, axis=dim)
    found = op.ScatterElements(start, index, source, axis=dim, reduction=reduction)
    if reduce == "mean":
        ones = op.Expand(_like(1, values), op.Shape(index))
        counts = op.Expand(_like(float(include_self), values), op.Shape(values))
        counts = op.ScatterElements(counts, index, ones, axis=dim, reduction="add")
        counts = op.Max(counts, _like(1, values))
        found = _rounded_down(found, counts) if dtype.is_integer() else op.Div(found, counts)
    return found if rank else op.Squeeze(found)


def _scattered_rows(values: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    rank = len(values.shape)
    column = op.Constant(value_ints=[-1, *[1] * (rank - 1 - dim % max(rank, 1))])
    whole = op.Expand(op.Reshape(index, column), op.Shape(source))
    return _scattered(values, dim, whole, source, reduce, include_self)


def _quotient(values: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """The exporter divides integers as float32, which holds them to 2^24, and rounds quotients of floats first."""
    if not values.dtype.is_integer() or rounding_mode is None:
        floor = rounding_mode == "floor" and values.dtype.is_floating_point()
        return _written(floor_divide)(values, other) if floor else aten_div_mode(values, other, rounding_mode)
    return op.Div(values, other) if rounding_mode == "trunc" else _rounded_down(values, other)


def _rounded_down(x: Any, y: Any) -> Any:
    """Of integers: Div cuts off, which is one more where the signs differ and a rest remains."""
    zero = op.CastLike(op.Constant(value_int=0), x)
    more = op.And(op.Xor(op.Less(x, zero), op.Less(y, zero)), op.Not(op.Equal(op.Mod(x, y), zero)))
    return op.Sub(op.Div(x, y), op.CastLike(more, x))


def _floor_quotient(values: Any, other: Any) -> Any:
    """As the division of `_quotient`; of integers the exporter's is right."""
    write = _written(floor_divide) if values.dtype.is_floating_point() else aten_floor_divide
    return write(values, other)


def _remainder(values: Any, other: Any) -> Any:
    """With the sign of `other`; either may be a number."""
    (given,) = {v.dtype for v in (values, other) if hasattr(v, "dtype")}
    return _written(floor_mod if given.is_floating_point() else lambda add, x, y: add("Mod", x, y))(values, other)


def _signed_remainder(values: Any, other: Any) -> Any:
    """With the sign of `values`; of integers the runtime's own goes by way of float64."""
    if values.dtype.is_integer():
        return op.Sub(values, op.Mul(op.Div(values, other), other))
    return op.Mod(values, other, fmod=1)


def _log_add_exp_2(add: Any, x: Any, y: Any) -> Any:
    ln2 = math.log(2)
    return add("Div", log_add_exp(add, *(add("Mul", v, ln2) for v in (x, y))), ln2)


def _nearest(plain: Translation) -> Translation:
    """Pixels at floor(i times the quotient of the sizes), in torch's float32, which decides between two.

    The runtime's Resize, which is faster, divides by the other quotient: it serves where that gives the same pixels.
    """

    def translation(values: Any, output_size: Any = None, scale_factors: Any = None) -> Any:
        axes = range(2, len(values.shape))
        factors = scale_factors or [None] * len(axes)
        news = output_size if isinstance(output_size, (list, tuple)) else [None] * len(axes)
        if all(map(_same_pixels, [values.shape[a] for a in axes], news, factors)):
            return plain(values, output_size, scale_factors)
        sizes = None if output_size is None else op.Cast(output_size, to=ir.DataType.INT64)
        for axis, factor in zip(axes, factors, strict=True):
            old, one = op.Cast(_size(values, axis), to=ir.DataType.FLOAT), op.Constant(value_floats=[1.0])
            if factor is None:
                new = op.Cast(op.Gather(sizes, op.Constant(value_ints=[axis - 2])), to=ir.DataType.FLOAT)
                scale = op.Div(old, new)
            else:
                exact = op.Mul(op.Cast(_size(values, axis), to=ir.DataType.DOUBLE), _double(factor))
                new = op.Cast(op.Floor(exact), to=ir.DataType.FLOAT)
                scale = op.Constant(value_floats=[float(np.float32(1 / factor))])
            places = op.Range(*(op.Constant(value_float=0.0), op.Squeeze(new), op.Constant(value_float=1.0)))
            index = op.Cast(op.Min(op.Floor(op.Mul(places, scale)), op.Sub(old, one)), to=ir.DataType.INT64)
            values = op.Gather(values, index, axis=axis)
        return values

    return translation


def _same_pixels(old: Any, new: Any, factor: float | None) -> bool:
    """Whether i / (new / old) and i (old / new), rounded down in float32, are the same for all pixels of a dim."""
    if factor is not None:
        old, new = (old, math.floor(old * factor)) if isinstance(old, int) else (4096, math.floor(4096 * factor))
    if not isinstance(old, int) or not isinstance(new, int) or new == 0:
        return False
    places, single = np.arange(new, dtype=np.float32), np.float32
    scale = single(new) / single(old) if factor is None else single(factor)
    back = single(old) / single(new) if factor is None else single(1 / factor)
    return bool((np.floor(places / scale) == np.floor(places * back)).all())


def _double(number: float) -> Any:
    return op.Constant(value=ir.tensor(np.float64(number)))


def _running_logsumexp(values: Any, dim: int) -> Any:
    """log(sum of e^x) up to each place, with the largest up to there taken out: no place overflows or vanishes."""
    rank = len(values.shape)
    if rank == 0:
        return op.Identity(values)
    after = op.Constant(value_ints=[dim % rank + 1])
    each = _prefixes(values, dim % rank, rank, _like(-math.inf, values))
    highest = op.ReduceMax(each, after, keepdims=1)
    highest = op.Where(op.IsInf(highest), _like(0, values), highest)  # no infinity less infinity
    total = op.ReduceSum(op.Exp(op.Sub(each, highest)), after, keepdims=0)
    return op.Add(op.Log(total), op.Squeeze(highest, after))


def _place_among_sorted(
    ordered: Any, values: Any, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Any:
    """How many of a sorted row are less than each value, or not greater; NaN is greater than all.

    Takes [..., n] and [..., m], or [n] and any shape.
    """
    if sorter is not None:
        raise NotImplementedError("searchsorted with a sorter")
    right = right or side == "right"
    row = op.Unsqueeze(ordered, op.Constant(value_ints=[-2])) if len(ordered.shape) > 1 else ordered
    value = op.Unsqueeze(values, op.Constant(value_ints=[-1]))
    beyond = op.Greater(row, value) if right else op.GreaterOrEqual(row, value)
    passed = op.Cast(op.Not(beyond), to=6 if out_int32 else 7)
    return op.ReduceSum(passed, op.Constant(value_ints=[-1]), keepdims=0)


def _distances(a: Any, b: Any, p: float, compute_mode: int | None = None) -> Any:
    """Of all pairs of rows, from their differences: the exporter's |a|^2 + |b|^2 - 2ab loses what is close together.

    Takes [..., n, d] and [..., m, d], gives [..., n, m].
    """
    del compute_mode
    last = op.Constant(value_ints=[-1])
    apart = op.Abs(op.Sub(op.Unsqueeze(a, op.Constant(value_ints=[-2])), op.Unsqueeze(b, op.Constant(value_ints=[-3]))))
    if p == 0:
        return op.ReduceSum(op.Sign(apart), last, keepdims=0)
    if p == 1:
        return op.ReduceSum(apart, last, keepdims=0)
    if p == 2:
        return op.ReduceL2(apart, last, keepdims=0)
    if p == float("inf"):
        return op.ReduceMax(apart, last, keepdims=0)
    total = op.ReduceSum(op.Pow(apart, _like(p, apart)), last, keepdims=0)
    return op.Pow(total, _like(1 / p, apart))


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """As `recording.attention`: the exporter gives the mean of all values, or NaN, where a mask leaves nothing."""
    options = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    attend = aten_scaled_dot_product_attention
    if not enable_gqa and (len(query.shape) != 4 or query.shape[:-2] != key.shape[:-2] or len(value.shape) != 4):
        attend, options = _plain_attention, {"is_causal": is_causal, "scale": scale}
    if attn_mask is None:
        return attend(query, key, value, **options)
    if attn_mask.dtype == ir.DataType.BOOL:
        attn_mask = op.Where(attn_mask, _like(0, query), _like(-math.inf, query))
    highest = op.ReduceMax(attn_mask, op.Constant(value_ints=[-1]), keepdims=1)
    empty = op.Equal(highest, _like(-math.inf, query))
    some = op.Where(empty, _like(0, query), attn_mask)  # no 0 / 0 on the way
    mixed = attend(query, key, value, some, **options)
    return op.Mul(mixed, op.Where(empty, _like(0, query), _like(1, query)))


def _plain_attention(
    query: Any, key: Any, value: Any, mask: Any = None, *, is_causal: bool, scale: float | None
) -> Any:
    """Of any number of dims, and of heads that are broadcast: torch's exporter takes four dims alone."""
    width = query.shape[-1]
    if scale is None and isinstance(width, int):
        scale = width**-0.5
    if scale is None:
        root = op.Sqrt(op.Div(_like(1, query), op.Sqrt(op.CastLike(_size(query, -1), query))))
    else:
        root = _like(scale**0.5, query)
    order = [*range(len(key.shape) - 2), len(key.shape) - 1, len(key.shape) - 2]
    scores = op.MatMul(op.Mul(query, root), op.Mul(op.Transpose(key, perm=order), root))
    if is_causal:
        hidden = op.Expand(_like(-math.inf, query), op.Concat(_size(query, -2), _size(key, -2), axis=0))
        mask = op.Trilu(hidden, op.Constant(value_int=1), upper=1)
    return op.MatMul(op.Softmax(scores if mask is None else op.Add(scores, mask), axis=-1), value)


def _group_norm(values: Any, *given: Any, **named: Any) -> Any:
    """By InstanceNormalization of the groups, which takes the mean away before it squares. GroupNormalization, which
    ONNX defines as a formula, does not: a variance may come out below zero. The runtime's kernel is for float32 alone.
    """
    if values.dtype == ir.DataType.FLOAT:
        return aten_group_norm(values, *given, **named)
    from torch.onnx._internal.exporter._torchlib.ops import nn

    return nn.aten_group_norm(values, *given, **named)


def _repeated(values: Any, repeats: Any, dim: int | None = None, output_size: Any = None) -> Any:
    """Each element of a dim so many times in a row."""
    del output_size
    if dim is None or not len(values.shape):
        return _repeated_along(op.Reshape(values, op.Constant(value_ints=[-1])), repeats, 0, 1)
    return _repeated_along(values, repeats, dim % len(values.shape), len(values.shape))


def _repeated_along(values: Any, repeats: Any, dim: int, rank: int) -> Any:
    count = op.Reshape(repeats, op.Constant(value_ints=[1])) if not isinstance(repeats, int) else repeats
    count = op.Constant(value_ints=[count]) if isinstance(count, int) else count
    before, after = (op.Constant(value=ir.tensor(np.ones(n, np.int64))) for n in (dim + 1, rank - dim - 1))
    wide = op.Expand(op.Unsqueeze(values, op.Constant(value_ints=[dim + 1])), op.Concat(before, count, after, axis=0))
    whole = op.Mul(op.Shape(values, start=dim, end=dim + 1), count)
    shape = op.Concat(op.Shape(values, start=0, end=dim), whole, op.Shape(values, start=dim + 1), axis=0)
    return op.Reshape(wide, shape, allowzero=1)


def _rolled(values: Any, shifts: Any, dims: Any = ()) -> Any:
    """By half a size that is dynamic, say: the exporter takes numbers alone."""
    if not dims or all(isinstance(shift, int) for shift in shifts):
        return aten_roll(values, shifts, dims)
    one = op.Constant(value_ints=[1])
    for shift, dim in zip(shifts, dims, strict=True):
        size, axis = _size(values, dim), op.Constant(value_ints=[dim])
        by = op.Constant(value_ints=[shift]) if isinstance(shift, int) else op.Reshape(shift, one)
        first = op.Sub(size, op.Mod(by, op.Max(size, one)))  # of what comes to the front
        front, back = op.Slice(values, first, size, axis), op.Slice(values, op.Constant(value_ints=[0]), first, axis)
        values = op.Concat(front, back, axis=dim)
    return values


def _all_true(values: Any) -> Any:
    return op.Cast(op.ReduceMin(op.Cast(values, to=ir.DataType.INT32), keepdims=0), to=ir.DataType.BOOL)


def _log_sigmoid(values: Any) -> Any:
    """-log(1 + e^-x): the logarithm of Sigmoid is minus infinity from -17 on."""
    return op.Neg(op.Softplus(op.Neg(values)))


def _numbers_first(operator: str) -> Translation:
    """The largest or smallest of two, of which a NaN is none."""

    def translation(a: Any, b: Any) -> Any:
        return op.Where(op.IsNaN(a), b, op.Where(op.IsNaN(b), a, getattr(op, operator)(a, b)))

    return translation


def _sign(values: Any) -> Any:
    """Of NaN 0, as torch has it."""
    if not values.dtype.is_floating_point():
        return op.Sign(values)
    return op.Where(op.IsNaN(values), _like(0, values), op.Sign(values))


def _step(values: Any, at_zero: Any) -> Any:
    """0 of what is no number, as of what is negative."""
    return op.Where(
        op.Equal(values, _like(0, values)), at_zero, op.CastLike(op.Greater(values, _like(0, values)), values)
    )


def _hypotenuse(a: Any, b: Any) -> Any:
    """sqrt(a^2 + b^2) by the larger of the two and the quotient, of which nothing overflows."""
    a, b = op.Abs(a), op.Abs(b)
    large, small = op.Max(a, b), op.Min(a, b)
    share = op.Where(op.Equal(small, large), op.Sign(large), op.Div(small, large))
    return op.Mul(large, op.Sqrt(op.Add(op.Mul(share, share), _like(1, share))))


def _window(length: Any, *shape: Any, make: Callable[..., torch.Tensor], dtype: int = 1, **_: Any) -> Any:
    """As torch has it. ONNX's HammingWindow has another shape (25/46 for 0.54), and there is none of Kaiser's."""
    if not isinstance(length, int):
        raise NotImplementedError("a window of a length that is not fixed")
    return op.Constant(value=ir.tensor(make(length, *shape).numpy().astype(ir.DataType(dtype).numpy())))


@contextmanager
def _windows_translated() -> Iterator[None]:
    with ExitStack() as stack:
        for make in (torch.hamming_window, torch.kaiser_window):
            packet = getattr(_ATEN, make.__name__)
            for name in (n for n in packet.overloads() if "out" not in n):
                stack.enter_context(_translated(getattr(packet, name), partial(_window, make=make)))
        yield


@contextmanager
def _fractions_translated() -> Iterator[None]:
    with ExitStack() as stack:
        for function, translation in size_fractions.TRANSLATIONS.items():
            stack.enter_context(_translated(function, translation))
        yield


def _written(formula: Callable[..., Any]) -> Translation:
    """A translation that writes a formula of its inputs, in which floats have the type of the first."""

    def translation(*values: Any) -> Any:
        first = next(v for v in values if hasattr(v, "dtype"))

        def add(operator: str, *inputs: Any, **attributes: Any) -> Any:
            given = (_like(i, first) if isinstance(i, float) else i for i in inputs)
            return getattr(op, operator)(*given, **attributes)

        return formula(add, *(_like(v, first) if isinstance(v, (int, float)) else v for v in values))

    return translation


def _written_in_doubles(formula: Callable[..., Any]) -> Translation:
    """Likewise of one input, in float64 whatever type that has."""

    def add(operator: str, *inputs: Any) -> Any:
        numbers = (op.Constant(value=ir.tensor(np.float64(i))) if isinstance(i, float) else i for i in inputs)
        return getattr(op, operator)(*numbers)

    return lambda x: op.CastLike(formula(add, op.Cast(x, to=ir.DataType.DOUBLE)), x)


def _chosen(condition: Any, *sides: Any) -> Any:
    """Of truth values, which the runtime's Where does not take; anything else as the exporter has it."""
    if not all(isinstance(side, bool) or getattr(side, "dtype", None) == ir.DataType.BOOL for side in sides):
        return op.Where(condition, *sides)
    a, b = (op.Constant(value=ir.tensor(side)) if isinstance(side, bool) else side for side in sides)
    return op.Or(op.And(condition, a), op.And(op.Not(condition), b))


def _size(values: Any, dim: int) -> Any:
    """The size of a dim, as a list of one number."""
    return op.Reshape(op.Gather(op.Shape(values), op.Constant(value_int=dim), axis=0), op.Constant(value_ints=[1]))


def _like(number: float, values: Any) -> Any:
    return op.CastLike(op.Constant(value=ir.tensor(np.float64(number))), values)


@contextmanager
def _translated(operator: object, translation: Translation) -> Iterator[None]:
    _TABLE[operator] = translation
    try:
        yield
    finally:
        del _TABLE[operator]


@contextmanager
def _translated_where_missing(operator: object, translation: Translation) -> Iterator[None]:
    known: set[object] = set()
    with suppress(Exception):  # another torch keeps them elsewhere; ours compute the same as any right one
        from torch.onnx._internal.exporter._torchlib import _torchlib_registry

        known = {entry.fx_target for entry in _torchlib_registry.get_torchlib_ops()}
    if operator in known:
        yield
        return
    with _translated(operator, translation):
        yield


def _missing(operator: object, translation: Translation) -> LibraryPatch:
    apply = partial(_translated_where_missing, operator, translation)
    return LibraryPatch("torch", "", f"torch 2.13 has no translation of {operator}", apply)


def _imprecise(operator: object, translation: Translation, upstream: str) -> LibraryPatch:
    return LibraryPatch("torch", "2.14", upstream, partial(_translated, operator, translation))


_ATEN, _PRIMS = torch.ops.aten, torch.ops.prims
_REAL = "torch 2.13 translates it for real numbers alone"
_DFT = "the runtime's DFT loses digits at sizes that are no power of 2"
PATCHES = (
    _missing(_ATEN.sort.stable, _stable_sort),
    _missing(_ATEN.median.default, _median),
    _missing(_ATEN.median.dim, _median_along),
    _missing(_ATEN.cumprod.default, _running_product),
    _missing(_ATEN.kthvalue.default, _kth_smallest),
    _missing(_ATEN.searchsorted.Tensor, _place_among_sorted),
    _missing(_PRIMS.fmax.default, _numbers_first("Max")),
    _missing(_PRIMS.fmin.default, _numbers_first("Min")),
    _missing(_PRIMS.hypot.default, _hypotenuse),
    _missing(_PRIMS.signbit.default, _written(is_negative)),  # of copysign
    _imprecise(_ATEN._cdist_forward.default, _distances, "torch 2.13 loses distances of what is close together"),
    _imprecise(_ATEN.log_sigmoid.default, _log_sigmoid, "torch 2.13 gives minus infinity from -17 on"),
    _imprecise(_ATEN.atan2.default, _written(atan2), "torch 2.13's angle is wrong for -0.0"),
    _imprecise(_ATEN.signbit.default, _written(is_negative), "torch 2.13 finds no sign in -0.0"),
    _imprecise(_ATEN.expm1.default, _written(expm1), "torch 2.13's e^x - 1 has no correct digit left at 1e-7"),
    _imprecise(_ATEN.log1p.default, _written(log1p), "torch 2.13's log(1 + x) has no correct digit left at 1e-7"),
    _imprecise(
        _ATEN.scaled_dot_product_attention.default,
        _attention,
        "torch 2.13 gives means or NaN where a mask leaves nothing to attend to",
    ),
    _missing(_ATEN.cummax.default, _running_extreme("max")),
    _missing(_ATEN.cummin.default, _running_extreme("min")),
    _missing(_ATEN.index_reduce.default, _scattered_rows),
    _imprecise(_ATEN.logcumsumexp.default, _running_logsumexp, "torch 2.13 takes the largest of all from early places"),
    _imprecise(_ATEN.scatter_reduce.two, _scattered, "torch 2.13's means of scattered elements are the last of them"),
    _imprecise(_ATEN.div.Tensor_mode, _quotient, "torch 2.13 divides integers as float32"),
    _imprecise(_ATEN.index_put.default, _written_places, "torch 2.13 hands int32 indices on to ScatterND"),
    _imprecise(_ATEN._unsafe_index_put.default, _written_places, "torch 2.13 does so in unsafe writes"),
    _imprecise(_ATEN._fft_r2c.default, fourier.real_to_complex, _DFT),
    _imprecise(_ATEN._fft_c2c.default, fourier.complex_to_complex, _DFT),
    _imprecise(_ATEN._fft_c2r.default, fourier.complex_to_real, _DFT),
    _imprecise(_ATEN.einsum.default, fourier.complex_einsum, _REAL),
    _imprecise(_ATEN.bmm.default, fourier.complex_bmm, _REAL),
    _imprecise(_ATEN.zeros.default, fourier.zeros, _REAL),
    _imprecise(_ATEN.copy.default, fourier.complex_copy, _REAL),
    _imprecise(_ATEN.slice_scatter.default, fourier.complex_slice_scatter, _REAL),
    _imprecise(_ATEN.unsqueeze.default, fourier.complex_unsqueeze, _REAL),
    _imprecise(_ATEN.expand.default, fourier.complex_expand, _REAL),
    _imprecise(_ATEN.select.int, fourier.complex_select, _REAL),
    _imprecise(_ATEN.group_norm.default, _group_norm, "torch 2.13 subtracts the square of a mean from that of squares"),
    _missing(_ATEN.linalg_inv.default, elimination.inverse),
    _missing(_ATEN.linalg_solve.default, elimination.solution),
    _missing(_ATEN.linalg_solve_triangular.default, elimination.triangular_solution),
    _missing(_ATEN.linalg_cholesky.default, elimination.cholesky),
    LibraryPatch("torch", "2.14", "torch 2.13 writes ONNX's Hamming window for its own", _windows_translated),
    _missing(_PRIMS.erf_inv.default, _written(erfinv)),
    _missing(_PRIMS.lgamma.default, _written_in_doubles(lgamma)),
    _missing(_PRIMS.digamma.default, _written_in_doubles(digamma)),
    _missing(_ATEN._is_all_true.default, _all_true),
    _imprecise(_ATEN.repeat_interleave.self_int, _repeated, "torch 2.13 repeats another dim by a size"),
    _imprecise(_ATEN.logaddexp.default, _written(log_add_exp), "torch 2.13's logarithm of a sum overflows from 89 on"),
    _imprecise(_ATEN.logaddexp2.default, _written(_log_add_exp_2), "torch 2.13's overflows from 128 on"),
    _imprecise(_ATEN.floor_divide.default, _floor_quotient, "torch 2.13 rounds the quotient before it rounds down"),
    _imprecise(_ATEN.fmod.Tensor, _signed_remainder, "the runtime's remainder of integers loses digits"),
    *(
        _imprecise(operator, _remainder, "torch 2.13's remainder is x - y floor(x / y)")
        for operator in (_ATEN.remainder.Tensor, _ATEN.remainder.Scalar, _ATEN.remainder.Scalar_Tensor)
    ),
    *(
        _imprecise(operator, _nearest(aten_upsample_nearestnd_vec), "the runtime divides: another pixel")
        for operator in (_ATEN.upsample_nearest1d.vec, _ATEN.upsample_nearest2d.vec, _ATEN.upsample_nearest3d.vec)
    ),
    *(
        _imprecise(operator, _sampled, "the runtime samples 0 at infinity")
        for operator in (_ATEN.grid_sampler.default, _ATEN.grid_sampler_2d.default)
    ),
    _imprecise(_ATEN.sign.default, _sign, "torch 2.13's sign of NaN is NaN"),
    _imprecise(_ATEN.heaviside.default, _step, "torch 2.13's step at NaN is 1"),
    *(
        _imprecise(operator, adaptive_pools.average, "torch 2.13 fixes the size that an adaptive mean divides")
        for operator in (
            _ATEN.adaptive_avg_pool2d.default,
            _ATEN.adaptive_avg_pool3d.default,
        )
    ),
    *(
        _missing(operator, adaptive_pools.maximum)
        for operator in (
            _ATEN.adaptive_max_pool2d.default,
            _ATEN.adaptive_max_pool3d.default,
        )
    ),
    _imprecise(_ATEN.roll.default, _rolled, "torch 2.13 rolls by numbers alone, not by sizes"),
    LibraryPatch("torch", "2.14", "torch 2.13 computes fractions of sizes in float32", _fractions_translated),
    _imprecise(torch.ops.higher_order.scan, loop_steps.written, "the runtime's Scan fails where there is no step"),
    _imprecise(_ATEN.stft.default, fourier.short_time, _DFT),
    _imprecise(_ATEN.exp.default, fourier.complex_exp, _REAL),
    *(
        _imprecise(operator, _pooled(own), "torch 2.13 divides sums of windows by their size alone")
        for operator, own in ((_ATEN.avg_pool2d.default, aten_avg_pool2d), (_ATEN.avg_pool3d.default, aten_avg_pool3d))
    ),
    _missing(_ATEN.masked_select.default, _selected),
    _missing(_ATEN.nanmedian.default, _median_of_all_numbers),
    _missing(_ATEN.nanmedian.dim, _median_of_numbers),
    _missing(_ATEN.mode.default, _commonest),
    _imprecise(_ATEN.special_erfcx.default, _written(erfcx), "torch 2.13's erfcx is 0 times infinity from 10 on"),
    *(
        _imprecise(getattr(_ATEN.where, kind), _chosen, "the runtime's Where has no truth values")
        for kind in ("self", "Scalar", "ScalarSelf", "ScalarOther")
    ),
    _imprecise(_ATEN.angle.default, fourier.complex_angle, "torch 2.13's angle of negative real numbers is minus pi"),
    _imprecise(_ATEN.log.default, fourier.complex_log, _REAL),
    *(
        _imprecise(operator, _diagonal, "torch 2.13 multiplies what stands beside a diagonal by 0")
        for operator in (_ATEN.diagonal.default, _ATEN.diagonal_copy.default)
    ),
)

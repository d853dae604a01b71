"""Operators that torch.export's exporter has no translation for, or one that loses what decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import onnx_ir as ir
import onnxscript
import torch
from onnxscript.function_libs.torch_lib.ops.nn import aten_scaled_dot_product_attention

from onnxtool.conversion.patches import LibraryPatch, applied
from onnxtool.conversion.small_numbers import AddNode, atan2, expm1, is_negative, log1p

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
    found = _middle(values, dim)
    return tuple(found if keepdim else [op.Squeeze(part, op.Constant(value_ints=[dim])) for part in found])


def _median(values: Any) -> Any:
    flat = op.Reshape(values, op.Constant(value_ints=[-1]))
    return op.Squeeze(_middle(flat, 0)[0], op.Constant(value_ints=[0]))


def _middle(values: Any, dim: int) -> list[Any]:
    """Values and places of the lower of the two in the middle, as torch's median is defined: the last of the smallest
    (n + 1) // 2.
    """
    one = op.Constant(value_ints=[1])
    count = op.Div(op.Add(_size(values, dim), one), op.Constant(value_ints=[2]))
    smallest, places = op.TopK(values, count, axis=dim, largest=0, sorted=1)
    last = op.Sub(count, one)
    return [op.Gather(part, last, axis=dim) for part in (smallest, places)]


def _kth_smallest(values: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    count = op.Constant(value_ints=[k])
    smallest, places = op.TopK(values, count, axis=dim, largest=0, sorted=1)
    last = op.Constant(value_ints=[k - 1])
    found = [op.Gather(part, last, axis=dim) for part in (smallest, places)]
    return tuple(found if keepdim else [op.Squeeze(part, op.Constant(value_ints=[dim])) for part in found])


def _running_product(values: Any, dim: int, dtype: int | None = None) -> Any:
    """Of each place, the product of those up to it: [..., n, ...] by way of [..., n, n, ...], since ONNX has none."""
    rank = len(values.shape)
    if rank == 0 or dtype is not None:
        raise NotImplementedError("cumprod of a single number, or with a dtype of its own")
    dim %= rank
    count = _size(values, dim)
    ones = op.Expand(op.Constant(value_int=1), op.Concat(count, count, axis=0))
    upto = op.Cast(op.Trilu(ones, upper=0), to=9)  # 9: bool
    if rank - dim > 1:
        upto = op.Unsqueeze(upto, op.Constant(value_ints=list(range(2, rank - dim + 1))))
    each = op.Where(upto, op.Unsqueeze(values, op.Constant(value_ints=[dim])), _like(1, values))
    return op.ReduceProd(each, op.Constant(value_ints=[dim + 1]), keepdims=0)


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
    if attn_mask is None:
        return aten_scaled_dot_product_attention(query, key, value, **options)
    if attn_mask.dtype == ir.DataType.BOOL:
        attn_mask = op.Where(attn_mask, _like(0, query), _like(-math.inf, query))
    highest = op.ReduceMax(attn_mask, op.Constant(value_ints=[-1]), keepdims=1)
    empty = op.Equal(highest, _like(-math.inf, query))
    some = op.Where(empty, _like(0, query), attn_mask)  # no 0 / 0 on the way
    mixed = aten_scaled_dot_product_attention(query, key, value, some, **options)
    return op.Mul(mixed, op.Where(empty, _like(0, query), _like(1, query)))


def _log_sigmoid(values: Any) -> Any:
    """-log(1 + e^-x): the logarithm of Sigmoid is minus infinity from -17 on."""
    return op.Neg(op.Softplus(op.Neg(values)))


def _expm1(values: Any) -> Any:
    return expm1(_adding_to(values), values)


def _log1p(values: Any) -> Any:
    return log1p(_adding_to(values), values)


def _angle(y: Any, x: Any) -> Any:
    return atan2(_adding_to(y), y, x)


def _numbers_first(operator: str) -> Translation:
    """The largest or smallest of two, of which a NaN is none."""

    def translation(a: Any, b: Any) -> Any:
        return op.Where(op.IsNaN(a), b, op.Where(op.IsNaN(b), a, getattr(op, operator)(a, b)))

    return translation


def _hypotenuse(a: Any, b: Any) -> Any:
    """sqrt(a^2 + b^2) by the larger of the two and the quotient, of which nothing overflows."""
    a, b = op.Abs(a), op.Abs(b)
    large, small = op.Max(a, b), op.Min(a, b)
    share = op.Where(op.Equal(small, large), op.Sign(large), op.Div(small, large))
    return op.Mul(large, op.Sqrt(op.Add(op.Mul(share, share), _like(1, share))))


def _sign_bit(values: Any) -> Any:
    return is_negative(_adding_to(values), values)


def _adding_to(values: Any) -> AddNode:
    """A way to add nodes; numbers among their inputs have the type of `values`."""

    def add(operator: str, *inputs: Any) -> Any:
        return getattr(op, operator)(*(_like(i, values) if isinstance(i, float) else i for i in inputs))

    return add


def _size(values: Any, dim: int) -> Any:
    """The size of a dim, as a list of one number."""
    return op.Reshape(op.Gather(op.Shape(values), op.Constant(value_int=dim), axis=0), op.Constant(value_ints=[1]))


def _like(number: float, values: Any) -> Any:
    return op.CastLike(op.Constant(value_float=float(number)), values)


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
    _missing(_PRIMS.signbit.default, _sign_bit),  # of copysign
    _imprecise(_ATEN._cdist_forward.default, _distances, "torch 2.13 loses distances of what is close together"),
    _imprecise(_ATEN.log_sigmoid.default, _log_sigmoid, "torch 2.13 gives minus infinity from -17 on"),
    _imprecise(_ATEN.atan2.default, _angle, "torch 2.13's angle is wrong for -0.0"),
    _imprecise(_ATEN.signbit.default, _sign_bit, "torch 2.13 finds no sign in -0.0"),
    _imprecise(_ATEN.expm1.default, _expm1, "torch 2.13's e^x - 1 has no correct digit left at 1e-7"),
    _imprecise(_ATEN.log1p.default, _log1p, "torch 2.13's log(1 + x) has no correct digit left at 1e-7"),
    _imprecise(
        _ATEN.scaled_dot_product_attention.default,
        _attention,
        "torch 2.13 gives means or NaN where a mask leaves nothing to attend to",
    ),
)

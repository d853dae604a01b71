"""Fourier transforms of torch.export's exporter, and its operators on complex numbers: float[..., 2] in ONNX.

The runtime's DFT loses digits at sizes that are no powers of two. These are products with cosines and sines instead,
computed in float64 of angles that are whole parts of a circle, so that the sines of half circles are zeros. What the
runtime's DFT makes of real numbers gets these zeros: an imaginary part that is rounding turns angles by a half circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxscript
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_expand,
    aten_select,
    aten_slice_scatter,
    aten_stft,
    aten_zeros,
)
from onnxscript.function_libs.torch_lib.ops.fft import aten__fft_c2c, aten__fft_c2r, aten__fft_r2c
from torch.onnx._internal.exporter._registration import ONNXRegistry

from onnxtool.conversion.fourier_tables import waves
from onnxtool.conversion.patches import LibraryPatch, replaced
from onnxtool.conversion.small_numbers import atan2

op = onnxscript.opset18
_LARGEST = 4096  # numbers: the table of cosines and sines has 67 MB then; of more the runtime's DFT takes less memory


def real_to_complex(values: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    """float[..., n, ...] to [..., n // 2 + 1, ..., 2] where one-sided: the rest mirrors it."""
    rank = len(values.shape)
    *others, last = (d % rank for d in dim)
    if _by_runtime(values, dim):
        found = aten__fft_r2c(values, [last], normalization, onesided)
        found = _real_at_half_circles(found, values.shape[last], onesided, behind=rank - 1 - last)
        return aten__fft_c2c(found, others, normalization, True) if others else found
    found = _transformed([values], last, rank, normalization, -1.0, onesided)
    for axis in reversed(others):
        found = _transformed(_parts(found), axis, rank, normalization, -1.0)
    return found


def complex_to_complex(values: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    """float[..., n, ..., 2] to the same shape."""
    if _by_runtime(values, dim):
        return aten__fft_c2c(values, dim, normalization, forward)
    rank = len(values.shape) - 1
    for axis in reversed([d % rank for d in dim]):
        values = _transformed(_parts(values), axis, rank, normalization, -1.0 if forward else 1.0)
    return values


def complex_to_real(values: Any, dim: Sequence[int], normalization: int, last_dim_size: Any) -> Any:
    """float[..., n // 2 + 1, ..., 2], of which the rest would mirror it, to [..., n, ...]."""
    if isinstance(last_dim_size, int) and _is_fast(last_dim_size) and _by_runtime(values, dim[:-1]):
        return aten__fft_c2r(values, dim, normalization, last_dim_size)
    rank = len(values.shape) - 1
    *others, last = (d % rank for d in dim)
    for axis in reversed(others):
        values = _transformed(_parts(values), axis, rank, normalization, 1.0)
    zero, one, two = (op.Constant(value_int=k) for k in (0, 1, 2))
    count = op.Constant(value_int=last_dim_size) if isinstance(last_dim_size, int) else op.Squeeze(last_dim_size)
    half = op.Add(op.Div(count, two), one)
    cosines, sines = _waves(count, half, count, normalization)
    place = op.Unsqueeze(op.Range(zero, half, one), op.Constant(value_ints=[1]))
    alone = op.Equal(op.Mod(op.Mul(place, two), count), zero)  # what has no mirror image, and counts once
    twice = op.Where(alone, _double(1.0), _double(2.0))
    order = [*(k for k in range(rank) if k != last), last]
    found = [
        op.MatMul(op.Transpose(part, perm=order), op.CastLike(op.Mul(table, twice), values))
        for part, table in zip(_parts(values), (cosines, op.Neg(sines)), strict=True)
    ]
    return op.Transpose(op.Add(*found), perm=[order.index(k) for k in range(rank)])


def short_time(
    signal: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> Any:
    """float[..., samples] to [..., n_fft // 2 + 1, frames, 2]: a convolution with windowed cosines and sines."""
    if _is_fast(n_fft) or (window is None and win_length not in (None, n_fft)):
        found = aten_stft(signal, n_fft, hop_length, win_length, window, normalized, onesided, return_complex)
        return _real_at_half_circles(found, n_fft, onesided is not False, behind=1)
    bins, lone = (n_fft if onesided is False else n_fft // 2 + 1), len(signal.shape) == 1
    table = np.concatenate(waves(bins, n_fft, n_fft, -1))[:, None] / (np.sqrt(n_fft) if normalized else 1.0)
    kernel = op.CastLike(op.Constant(value=ir.tensor(table)), signal)
    if window is not None:
        left, rest = divmod(n_fft - window.shape[0], 2)
        kernel = op.Mul(kernel, op.Pad(op.CastLike(window, signal), op.Constant(value_ints=[left, left + rest])))
    signal = op.Unsqueeze(signal, op.Constant(value_ints=[0, 1] if lone else [1]))
    both = op.Conv(signal, kernel, strides=[hop_length or n_fft // 4])
    found = _joined(op.Split(both, axis=1, num_outputs=2))
    return op.Squeeze(found, op.Constant(value_ints=[0])) if lone else found


def complex_exp(values: Any) -> Any:
    """e^x (cos y + i sin y)."""
    real, imaginary = _parts(values)
    return _joined(op.Mul(op.Exp(real), turn(imaginary)) for turn in (op.Cos, op.Sin))


def complex_angle(values: Any) -> Any:
    """By the signs of both parts, which zeros have too."""
    real, imaginary = _parts(values)
    return atan2(lambda operator, *inputs: getattr(op, operator)(*inputs), imaginary, real)


def complex_log(values: Any) -> Any:
    """The logarithm of the size, and the angle."""
    return _joined([op.Log(op.ReduceL2(values, op.Constant(value_ints=[-1]), keepdims=0)), complex_angle(values)])


def complex_einsum(equation: str, tensors: Sequence[Any], path: object = None) -> Any:
    """Products of two complex tensors, or sums of one."""
    del path
    if len(tensors) == 1:
        parts = [op.Einsum(part, equation=equation) for part in _parts(tensors[0])]
    elif len(tensors) == 2:
        (a, b), (c, d) = (_parts(t) for t in tensors)
        ac, bd, ad, bc = (op.Einsum(x, y, equation=equation) for x, y in ((a, c), (b, d), (a, d), (b, c)))
        parts = [op.Sub(ac, bd), op.Add(ad, bc)]
    else:
        raise NotImplementedError("einsum of more than two complex tensors")
    return _joined(parts)


def complex_bmm(a: Any, b: Any) -> Any:
    """[batch, n, k, 2] by [batch, k, m, 2]."""
    return complex_einsum("bij,bjk->bik", (a, b))


def complex_copy(values: Any, source: Any, non_blocking: bool = False) -> Any:
    """The source, broadcast."""
    del non_blocking
    return op.Expand(source, op.Shape(values))


def complex_slice_scatter(
    values: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """The real one, along a dim that is counted from the front."""
    return aten_slice_scatter(values, source, dim % (len(values.shape) - 1), start, end, step)


def complex_unsqueeze(values: Any, dim: int) -> Any:
    """A dim of 1, counted from the front."""
    return op.Unsqueeze(values, op.Constant(value_ints=[dim % len(values.shape)]))


def complex_expand(values: Any, size: Sequence[Any], implicit: bool = False) -> Any:
    """Broadcast to a shape, in which -1 leaves a dim as it is."""
    return aten_expand(values, [*size, 2], implicit)


def complex_select(values: Any, dim: int, index: int) -> Any:
    """One place of a dim, which goes."""
    return aten_select(values, dim % (len(values.shape) - 1), index)


def zeros(size: Any, dtype: Any = ir.DataType.FLOAT, **unused: Any) -> Any:
    """Of complex numbers, [..., 2]."""
    del unused
    floats = {ir.DataType.COMPLEX64: ir.DataType.FLOAT, ir.DataType.COMPLEX128: ir.DataType.DOUBLE}.get(dtype)
    return aten_zeros(size, dtype) if floats is None else aten_zeros([*size, 2], floats)


def _real_at_half_circles(found: Any, count: int, onesided: bool, behind: int) -> Any:
    """A transform of `count` real numbers without the imaginary parts that are zero; `behind` it come so many dims."""
    imaginary = np.arange(count // 2 + 1 if onesided else count) * 2 % count == 0
    zeros = np.stack([np.zeros_like(imaginary), imaginary], -1).reshape(len(imaginary), *[1] * behind, 2)
    return op.Where(op.Constant(value=ir.tensor(zeros)), op.CastLike(_double(0.0), found), found)


def _by_runtime(values: Any, dim: Iterable[int]) -> bool:
    return all(isinstance(size := values.shape[d], int) and _is_fast(size) for d in dim)


def _is_fast(size: int) -> bool:
    return size > _LARGEST or size & (size - 1) == 0


def _double(number: float) -> Any:
    return op.Constant(value=ir.tensor(np.asarray(number)))


def _waves(count: Any, rows: Any, columns: Any, normalization: int) -> tuple[Any, Any]:
    """Cosines and sines of 2 pi i k / count, float64[rows, columns]."""
    zero, one, two = (op.Constant(value_int=k) for k in (0, 1, 2))
    down = op.Unsqueeze(op.Range(zero, rows, one), op.Constant(value_ints=[1]))
    steps = op.Mod(op.Mul(down, op.Range(zero, columns, one)), count)
    whole = op.Cast(count, to=ir.DataType.DOUBLE)
    angle = op.Div(op.Mul(op.Cast(steps, to=ir.DataType.DOUBLE), _double(2 * np.pi)), whole)
    half = op.Equal(op.Mod(op.Mul(steps, two), count), zero)
    found = op.Cos(angle), op.Where(half, _double(0.0), op.Sin(angle))
    if normalization == 0:
        return found
    scale = op.Sqrt(whole) if normalization == 1 else whole
    return op.Div(found[0], scale), op.Div(found[1], scale)


def _transformed(
    parts: Sequence[Any], axis: int, rank: int, normalization: int, sign: float, onesided: bool = False
) -> Any:
    """The transform along one axis of real parts, or of real and imaginary ones: float[..., m, ..., 2]."""
    count = op.Squeeze(op.Shape(parts[0], start=axis, end=axis + 1))
    one, two = op.Constant(value_int=1), op.Constant(value_int=2)
    kept = op.Add(op.Div(count, two), one) if onesided else count
    cosines, sines = _waves(count, count, kept, normalization)
    if sign < 0:
        sines, back = op.Sub(_double(0.0), sines), sines  # not Neg, which makes -0.0 of zeros
    else:
        back = op.Sub(_double(0.0), sines)
    order = [*(k for k in range(rank) if k != axis), axis]
    tables = op.Concat(cosines, sines, axis=1), op.Concat(back, cosines, axis=1)
    products = [
        op.MatMul(op.Transpose(part, perm=order), op.CastLike(table, part))
        for part, table in zip(parts, tables, strict=False)
    ]
    both = products[0] if len(products) == 1 else op.Add(*products)
    found = _joined(op.Split(both, axis=-1, num_outputs=2))
    return op.Transpose(found, perm=[*(order.index(k) for k in range(rank)), rank])


def _parts(values: Any) -> list[Any]:
    """The real and the imaginary part: float[..., 2] to two of float[...]."""
    return [op.Gather(values, op.Constant(value_int=k), axis=-1) for k in (0, 1)]


def _joined(parts: Iterable[Any]) -> Any:
    return op.Concat(*(op.Unsqueeze(part, op.Constant(value_ints=[-1])) for part in parts), axis=-1)


COMPLEX = (
    complex_to_complex,
    complex_to_real,
    complex_exp,
    complex_angle,
    complex_log,
    complex_einsum,
    complex_bmm,
    complex_copy,
    complex_slice_scatter,
    complex_unsqueeze,
    complex_expand,
    complex_select,
)


def _complex_registered() -> AbstractContextManager[None]:
    register = ONNXRegistry.register_op

    @wraps(register)
    def registered(self: ONNXRegistry, target: Any, function: Any, is_complex: bool = False) -> None:
        register(self, target, function, is_complex or function in COMPLEX)

    return replaced(ONNXRegistry, "register_op", registered)


PATCH = LibraryPatch(
    "torch", "", "torch 2.13's custom_translation_table holds for real numbers alone", _complex_registered
)

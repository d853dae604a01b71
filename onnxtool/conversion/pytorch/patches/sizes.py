"""Functions that make a number of a dynamic size, by which torch's exporters fix it or lose track of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Any

import torch

from onnxtool.conversion.patches import Patch, replaced
from onnxtool.conversion.pytorch.patches import loop_steps
from onnxtool.conversion.pytorch.patches.size_fractions import square_root, stand_ins


def namespaces_of(module: torch.nn.Module) -> list[dict[str, Any]]:
    """Globals of the files in which the parts of a model stand."""
    kinds = {kind for part in module.modules() for kind in type(part).__mro__}
    found = [getattr(vars(kind).get("forward"), "__globals__", None) for kind in kinds]
    return list({id(names): names for names in found if names is not None}.values())


@contextmanager
def _followed(_module: torch.nn.Module, _opset: int) -> Iterator[None]:
    """Functions of Python's own, in the files of the model, and of torch's."""
    with ExitStack() as stack:
        for names in namespaces_of(_module):
            missing = {name: function for name, function in _FUNCTIONS.items() if name not in names}
            imported = {name: _unpacked for name, value in names.items() if value is _UNPACK}
            for name, function in (missing | imported | stand_ins(names)).items():
                restore = (names.__setitem__, name, names[name]) if name in names else (names.pop, name)
                stack.callback(*restore)
                names[name] = function
        stack.enter_context(replaced(math, "sqrt", square_root))
        for owner, name, function in _OF_TORCH:
            stack.enter_context(replaced(owner, name, function))
        yield


def _taken(values: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """Torch's own compares sizes in C++, where they are numbers."""
    if dim is None:
        return values.flatten().gather(0, indices.flatten())
    axis, both = dim % values.dim(), (values, indices)
    sizes = torch.broadcast_shapes(*((*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in both))
    values, indices = (t.expand(*sizes[:axis], -1, *sizes[axis + 1 :]) for t in both)
    return values.gather(dim, indices)


_SPACED, _UPPER, _LOWER, _COVARIANCE = torch.linspace, torch.triu_indices, torch.tril_indices, torch.cov
_FILL_DIAGONAL, _INVERSE_SHORT_TIME, _ONE_HOT = torch.Tensor.fill_diagonal_, torch.istft, torch.nn.functional.one_hot
_UNPACK, _MAX_POOL = torch.nn.utils.rnn.pad_packed_sequence, torch.max_pool1d


def _spaced(start: Any, end: Any, steps: Any, **options: Any) -> torch.Tensor:
    """`torch.linspace`, which takes a number for its steps: by as many as a size says, from both ends to the middle."""
    if not loop_steps.is_dynamic(steps) or any(isinstance(part, torch.Tensor) for part in (start, end)):
        return _SPACED(start, end, steps, **options)
    kind = options.get("dtype") or torch.get_default_dtype()
    at = torch.arange(steps, dtype=kind if kind.is_floating_point else None, device=options.get("device"))
    one = at.new_ones(1)
    step = one * (end - start) / (one * (steps - 1)).clamp(min=1)  # of a tensor, for torch takes a size to be 2 or more
    low = (at < steps // 2) | (at == 0)
    return torch.where(low, start + step * at, end - step * (steps - 1 - at)).to(kind)


def _inverse_short_time(spectrum: torch.Tensor, n_fft: int, *rest: Any, **named: Any) -> torch.Tensor:
    """`torch.istft`, which takes numbers for the frames and the length: frames added where they overlap."""
    names = "hop_length", "win_length", "window", "center", "normalized", "onesided", "length", "return_complex"
    given = dict(zip(names, rest, strict=False)) | named
    window, length, frames = given.get("window"), given.get("length"), spectrum.shape[-1]
    usual = given.get("onesided") is not False and not given.get("return_complex")
    if window is None or not usual or not loop_steps.is_dynamic(frames) or spectrum.dim() != 3:
        return _INVERSE_SHORT_TIME(spectrum, n_fft, *rest, **named)
    hop = given.get("hop_length") or n_fft // 4
    left, odd = divmod(n_fft - window.shape[0], 2)
    window = torch.nn.functional.pad(window, (left, left + odd))
    parts = torch.fft.irfft(spectrum.mT, n_fft, norm="ortho" if given.get("normalized") else None) * window
    weights = window.square().expand(1, frames, n_fft)
    whole, start = n_fft + hop * (frames - 1), n_fft // 2 if given.get("center", True) else 0
    end = whole - start if length is None else torch.sym_min(start + length, whole)
    added, total = (
        torch.nn.functional.fold(p.mT, (1, whole), (1, n_fft), stride=(1, hop))[:, 0, 0, start:end]
        for p in (parts, weights)
    )
    return added / total if length is None else torch.nn.functional.pad(added / total, (0, length - (end - start)))


def _triangle(own: Any, cut: Any) -> Any:
    """`torch.triu_indices` and `tril_indices`, which take numbers for their sizes."""

    def indices(row: Any, col: Any, offset: int = 0, **options: Any) -> torch.Tensor:
        if not (loop_steps.is_dynamic(row) or loop_steps.is_dynamic(col)) or options.keys() - {"device"}:
            return own(row, col, offset, **options)
        return cut(torch.ones(row, col, **options), offset).nonzero().T

    return indices


def _with_diagonal(matrix: torch.Tensor, fill_value: Any, wrap: bool = False) -> torch.Tensor:
    """`fill_diagonal_`, which goes by strides, that ONNX does not have."""
    if matrix.dim() != 2 or wrap:
        return _FILL_DIAGONAL(matrix, fill_value, wrap)
    rows, columns = (torch.arange(size, device=matrix.device) for size in matrix.shape)
    return matrix.masked_fill_(rows[:, None] == columns, fill_value)


def _covariance(values: torch.Tensor, *, correction: int = 1, **weights: Any) -> torch.Tensor:
    """`torch.cov`, which asks whether there are enough columns, and warns."""
    if any(weight is not None for weight in weights.values()) or values.is_complex():
        return _COVARIANCE(values, correction=correction, **weights)
    rows = values[None] if values.dim() < 2 else values
    rows = rows - rows.mean(1, keepdim=True)
    count = (rows.new_ones(1) * (rows.shape[1] - correction)).clamp(min=0)
    return (rows @ rows.T / count).squeeze()


def _correlation(values: torch.Tensor) -> torch.Tensor:
    """`torch.corrcoef`, by the above."""
    found = _covariance(values)
    if not found.dim():
        return found / found
    deviation = found.diagonal().sqrt()
    return (found / deviation[:, None] / deviation).clamp(-1, 1)


def _kronecker(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`torch.kron`, which multiplies sizes in C++."""
    rank = max(a.dim(), b.dim())
    a, b = (t[(None,) * (rank - t.dim())] for t in (a, b))
    outer = a.reshape([n for size in a.shape for n in (size, 1)]) * b.reshape([n for m in b.shape for n in (1, m)])
    return outer.reshape([n * m for n, m in zip(a.shape, b.shape, strict=True)])


def _unpacked(
    sequence: Any, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> Any:
    """`pad_packed_sequence`, of which torch's tracing exporter makes as many steps as were packed with the padding."""
    found, lengths = _UNPACK(sequence, batch_first, padding_value, total_length)
    if total_length is None and torch.jit.is_tracing():
        lengths = lengths.double().long()  # which the exporter makes int32 of
        found = found[:, : lengths.max()] if batch_first else found[: lengths.max()]
    return found, lengths


def _one_hot(values: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    """`one_hot`, which takes a number for its classes."""
    if not loop_steps.is_dynamic(num_classes):
        return _ONE_HOT(values, num_classes)
    return (values[..., None] == torch.arange(num_classes, device=values.device)).to(torch.int64)


def _largest(values: torch.Tensor, kernel_size: Any, *rest: Any, **named: Any) -> Any:
    """`torch.max_pool1d`, which takes a number for the length; its other form, with places, does not."""
    if not any(map(loop_steps.is_dynamic, values.shape)):
        return _MAX_POOL(values, kernel_size, *rest, **named)
    return torch.nn.functional.max_pool1d_with_indices(values, kernel_size, *rest, **named)[0]


_OF_TORCH = (
    (torch, "kron", _kronecker),
    (torch, "linspace", _spaced),
    (torch, "istft", _inverse_short_time),
    (torch, "take_along_dim", _taken),
    (torch, "triu_indices", _triangle(_UPPER, torch.triu)),
    (torch, "tril_indices", _triangle(_LOWER, torch.tril)),
    (torch, "cov", _covariance),
    (torch, "corrcoef", _correlation),
    (torch.Tensor, "take_along_dim", _taken),
    (torch.Tensor, "fill_diagonal_", _with_diagonal),
    (torch.nn.functional, "one_hot", _one_hot),
    (torch.nn.utils.rnn, "pad_packed_sequence", _unpacked),
    (torch, "max_pool1d", _largest),
)


def _length(value: Any) -> Any:
    """Of a tensor its first size, of which Python's own makes a number."""
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else len(value)


def _least(*values: Any, **options: Any) -> Any:
    """Of sizes a size, where Python's own takes one of them for good."""
    if _are_followed(values):
        return reduce(torch.sym_min, values)
    traced = torch.jit.is_tracing() and _are_traced(values)
    return reduce(torch.minimum, map(torch.as_tensor, values)) if traced else min(*values, **options)


def _most(*values: Any, **options: Any) -> Any:
    if _are_followed(values):
        return reduce(torch.sym_max, values)
    traced = torch.jit.is_tracing() and _are_traced(values)
    return reduce(torch.maximum, map(torch.as_tensor, values)) if traced else max(*values, **options)


def _are_followed(values: tuple[Any, ...]) -> bool:
    sizes = (torch.SymInt, torch.SymFloat)
    return all(isinstance(v, (int, float, *sizes)) for v in values) and any(isinstance(v, sizes) for v in values)


def _are_traced(values: tuple[Any, ...]) -> bool:
    numbers = all(isinstance(v, int) or (isinstance(v, torch.Tensor) and not v.shape) for v in values)
    return numbers and any(isinstance(v, torch.Tensor) for v in values)


def _steps(*given: Any) -> Any:
    """Of sizes so many steps as all of them have: one over the whole length; Python's own fixes a size."""
    steps = loop_steps.numbers(*given)
    if isinstance(steps, loop_steps.Dynamic):
        loop_steps.look()
        return range(*given)
    return steps


_FUNCTIONS = {"len": _length, "min": _least, "max": _most, "range": _steps}
FUNCTIONS = Patch(
    "torch", "", "torch's exporters take len, min, int, sqrt and their like of sizes for numbers", _followed
)

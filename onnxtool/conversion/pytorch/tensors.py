"""Tensors of torch and arrays of numpy, and nested results flattened to named tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

from onnxtool.errors import UnsupportedError

_NUMBERS = (bool, int, float, complex)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES: Mapping[torch.dtype, np.dtype] = {
    torch.bfloat16: _BFLOAT16,
    **{
        getattr(torch, name): np.dtype(name)
        for name in (
            "float16", "float32", "float64", "int8", "int16", "int32", "int64",
            "uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128",
        )
    },
}  # fmt: skip


def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """The numpy dtype of a torch dtype.

    Raises:
        UnsupportedError: numpy has none (quantized and float8 dtypes).
    """
    if dtype not in _DTYPES:
        raise UnsupportedError(f"tensors of {dtype} cannot be inputs or outputs of an ONNX file here.")
    return _DTYPES[dtype]


def to_torch(array: np.ndarray) -> torch.Tensor:
    """A tensor of its own (not shared) from an array; bfloat16 from ml_dtypes included."""
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(np.array(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(array, order="C"))


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The array of a tensor on any device; bfloat16 as ml_dtypes has it."""
    plain = tensor.detach().cpu().resolve_conj().contiguous()
    if plain.dtype == torch.bfloat16:
        array: np.ndarray = plain.view(torch.int16).numpy().view(_BFLOAT16)
        return array
    result: np.ndarray = plain.numpy()
    return result


def named_tensors(value: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors in a module's result, with stable names.

    A lone tensor is "output"; the parts of a tuple or list are "output_0", "output_1"; entries of a dict, named tuple
    or dataclass have their own names; deeper parts are joined with dots ("hidden.0"). None, numbers and strings are
    left out.
    """
    if isinstance(value, torch.Tensor):
        return [("output", value)]
    return [(".".join(path), tensor) for path, tensor in _walk(value, ())]


def numbers_left_out(value: Any) -> list[str]:
    """Numbers in a module's result that are no tensors, as "output_2 (int)"."""
    return [f"{'.'.join(path) or 'output'} ({type(item).__name__})" for path, item in _walk(value, (), _NUMBERS)]


def _walk(
    value: Any, path: tuple[str, ...], kinds: type | tuple[type, ...] = torch.Tensor
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, kinds):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, (*path, str(key)), kinds)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key, item in zip(value._fields, value, strict=True):
            yield from _walk(item, (*path, key), kinds)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, str(index) if path else f"output_{index}"), kinds)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for entry in dataclasses.fields(value):
            yield from _walk(getattr(value, entry.name), (*path, entry.name), kinds)

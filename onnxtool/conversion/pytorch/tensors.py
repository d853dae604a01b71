"""Tensors of torch and arrays of numpy, nested results flattened to named tensors, and what a forward takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

from onnxtool.conversion.input_plan import Dtypes, InputPlan, Parameter, signature_parameters
from onnxtool.conversion.input_plan import plan_inputs as plan_by_parameters
from onnxtool.errors import UnsupportedError
from onnxtool.model.spec import ONNX_TO_NUMPY
from onnxtool.options.convert import ConvertOptions

_NUMBERS = (bool, int, float, complex)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES: Mapping[torch.dtype, np.dtype] = {
    getattr(torch, dtype.name): dtype for dtype in ONNX_TO_NUMPY.values() if isinstance(dtype, np.dtype)
}


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


def plan_inputs(module: torch.nn.Module, options: ConvertOptions, notes: list[str]) -> InputPlan:
    """As of `input_plan`, from the signature of `forward`; in the float dtype of its weights.

    Raises:
        UsageError: as there.
    """
    dtypes = Dtypes(_floating_dtype(module), np.dtype("int64"), lambda dtype: _computed_in(module, dtype))
    return plan_by_parameters(_parameters(module), dtypes, options, notes)


def _parameters(module: torch.nn.Module) -> list[Parameter]:
    if isinstance(module, torch.jit.ScriptModule):
        arguments = module.forward.schema.arguments[1:]
        return [Parameter(a.name, not a.has_default_value(), False, False, "Tuple" in str(a.type)) for a in arguments]
    return signature_parameters(module.forward)


def _floating_dtype(module: torch.nn.Module) -> np.dtype:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return numpy_dtype(tensor.dtype)
    return np.dtype("float32")


def _computed_in(module: torch.nn.Module, dtype: np.dtype) -> np.dtype:
    """The dtype for a sample: floats are as the module's weights, whatever the sample was saved as."""
    floats = any(t.is_floating_point() for t in (*module.parameters(), *module.buffers()))
    return _floating_dtype(module) if floats and dtype.kind == "f" else dtype

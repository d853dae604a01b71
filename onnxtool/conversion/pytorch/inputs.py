"""What a module's forward takes."""

from __future__ import annotations

import numpy as np
import torch

from onnxtool.conversion.input_plan import Dtypes, InputPlan, Parameter, signature_parameters
from onnxtool.conversion.input_plan import plan_inputs as plan_by_parameters
from onnxtool.conversion.pytorch.tensors import numpy_dtype
from onnxtool.options.convert import ConvertOptions


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

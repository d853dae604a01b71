"""A torch module in float64."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from onnxtool.conversion.float64_reference import Float64Reference
from onnxtool.conversion.input_plan import InputPlan
from onnxtool.conversion.pytorch.dynamic_quantized import dynamic_layers, standard_linear
from onnxtool.conversion.pytorch.stable_order import stable_order
from onnxtool.conversion.pytorch.tensors import named_tensors, to_numpy, to_torch
from onnxtool.errors import InputError
from onnxtool.runtime.runner import Runner

_MOST_BYTES = 1 << 28  # of weights that are copied


class _Wide(TorchDispatchMode):  # type: ignore[misc]
    """Inside the block, what a module casts to float32 or makes in it (`x.float()`, `torch.tensor(0.5)`) is float64."""

    def __torch_dispatch__(self, operator: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(lambda part: torch.float64 if part is torch.float32 else part, (args, kwargs or {}))
        result = operator(*args, **kwargs)
        given = any(isinstance(part, torch.Tensor) for part in tree_leaves((args, kwargs)))
        makes = not given or operator is torch.ops.aten.lift_fresh.default  # of torch.tensor
        return tree_map(_wider, result) if makes else result


def _wider(part: Any) -> Any:
    return part.double() if isinstance(part, torch.Tensor) and part.dtype == torch.float32 else part


def in_float64(
    model: Runner, module: torch.nn.Module, plan: InputPlan, sample: Mapping[str, np.ndarray]
) -> Float64Reference | None:
    """A copy of a model that computes in float64; None for what cannot be copied, is large, or is half precision.

    Args:
        model: runs the module.
        module: with weights of float32.
        plan: how it is called.
        sample: inputs on which it runs.
    """
    tensors = [*module.parameters(), *module.buffers()]
    floats = {t.dtype for t in tensors if t.is_floating_point()}
    if isinstance(module, torch.jit.ScriptModule) or not floats <= {torch.float32}:
        return None
    if sum(t.nbytes for t in tensors) > _MOST_BYTES:
        return None
    try:
        wider = copy.deepcopy(module)
        for owner, name, layer in dynamic_layers(wider):
            owner._modules[name] = standard_linear(layer)
        doubled = wider.double().eval()
    except Exception:  # hooks and handles of other libraries cannot be copied
        return None

    def widened(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        tensors = [to_torch(np.asarray(feeds[s.name])) for s in model.inputs]
        args, kwargs = plan.call([t.double() if t.is_floating_point() else t for t in tensors])
        try:
            with torch.inference_mode(), stable_order(), _Wide():
                return [to_numpy(t) for _, t in named_tensors(doubled(*args, **kwargs))]
        except Exception as error:  # a module that asks for the type of what it is given
            raise InputError(f"the module does not run in float64: {type(error).__name__}") from error

    return Float64Reference(model, sample, widened)

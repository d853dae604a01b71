"""A torch module in float64: the same function with other roundings, which tells how far rounding moves its outputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from onnxtool.conversion.pytorch.dynamic_quantized import dynamic_layers, standard_linear
from onnxtool.conversion.pytorch.inputs import InputPlan
from onnxtool.conversion.pytorch.tensors import named_tensors, to_numpy, to_torch
from onnxtool.errors import InputError
from onnxtool.runtime.runner import Runner

_MOST_BYTES = 1 << 28  # of weights that are copied
# Of an output's root mean square: what differs by more between float32 and float64 is no matter of rounding alone.
_FARTHEST = 0.02
# The same where the two agree on the sample, so that what the code does is one: digits lost by sums far from zero.
_LOST = 0.3


class Float64Reference:
    """A Runner that computes in float64 and gives its outputs in the types of the model that it is a copy of."""

    def __init__(
        self, model: Runner, plan: InputPlan, sample: Mapping[str, np.ndarray], module: torch.nn.Module
    ) -> None:
        """Take a copy of a model.

        Args:
            model: the original.
            plan: how the module is called.
            sample: inputs on which the code of both is known to run.
            module: the copy, in float64.
        """
        self.inputs, self.outputs = model.inputs, model.outputs
        self._model, self._plan, self._sample, self._module = model, plan, sample, module
        self._is_one: bool | None = None

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass.

        Raises:
            InputError: the module does not run in float64, or gives something else than in float32: it asks for the
                type, or draws random numbers, and what it gives says nothing of rounding.
        """
        given, plain = self._widened(feeds), self._model.run(feeds)
        if not _all_alike(plain, given, _FARTHEST) and not (self._agrees() and _all_alike(plain, given, _LOST)):
            raise InputError("the module gives something else in float64 than in float32.")
        return given

    def _widened(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        tensors = [to_torch(np.asarray(feeds[s.name])) for s in self.inputs]
        args, kwargs = self._plan.call([t.double() if t.is_floating_point() else t for t in tensors])
        try:
            with torch.inference_mode():
                found = [to_numpy(t) for _, t in named_tensors(self._module(*args, **kwargs))]
        except Exception as error:  # a module with a type of its own written into it
            raise InputError(f"the module does not run in float64: {type(error).__name__}") from error
        return {
            s.name: a.astype(s.dtype) if isinstance(s.dtype, np.dtype) else a
            for s, a in zip(self.outputs, found, strict=True)
        }

    def _agrees(self) -> bool:
        """Whether the two are one on the sample."""
        if self._is_one is None:
            self._is_one = _all_alike(self._model.run(self._sample), self._widened(self._sample), _FARTHEST)
        return self._is_one


def _all_alike(plain: Mapping[str, Any], given: Mapping[str, Any], farthest: float) -> bool:
    return all(_alike(np.asarray(plain[name]), array, farthest) for name, array in given.items())


def _alike(a: np.ndarray, b: np.ndarray, farthest: float = _FARTHEST) -> bool:
    """Whether two outputs are one but for rounding, however much a network makes of it."""
    if a.shape != b.shape or a.dtype.kind not in "fc":
        return a.shape == b.shape
    with np.errstate(all="ignore"):
        both = np.isfinite(a) & np.isfinite(b)
        scale = float(np.sqrt(np.mean(np.abs(a[both].astype(np.complex128)) ** 2))) if both.any() else 0.0
        return bool((np.isfinite(a) == both).all() and (np.abs(a[both] - b[both]) <= farthest * scale).all())


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
        return Float64Reference(model, plan, sample, wider.double().eval())
    except Exception:  # hooks and handles of other libraries cannot be copied
        return None

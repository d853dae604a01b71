"""Modules of `torch.ao.quantization.quantize_dynamic` in operators that every exporter knows.

Source of the arithmetic: ATen/native/quantized/cpu/QuantUtils.h (ChooseQuantizationParams) and
qlinear_dynamic.cpp of PyTorch 2.13: an input is rounded to 0..127 over the range of all its numbers, products are
summed as integers, and the sum is scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from onnxtool.errors import UnsupportedError

_STEPS = 127.0  # reduce_range: half of the 255 steps of a byte, so that no sum of two products overflows 16 bits
_LEAST_SCALE = 6.1e-5  # SMALL_SCALE_THRESHOLD, as float32
_NO_SCALE = 0.1


class StandardLinear(torch.nn.Module):  # type: ignore[misc]
    """What a dynamically quantized linear layer computes, with weights in int8.

    Args:
        layer: a `torch.ao.nn.quantized.dynamic.Linear` of int8 or float16 weights.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        weight, bias = layer.weight(), layer.bias()
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        self.half = weight.dtype != torch.qint8
        if self.half:
            self.register_buffer("weight", weight.detach().half())
            return
        self.register_buffer("weight", weight.int_repr())
        per_channel = weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
        scale = weight.q_per_channel_scales() if per_channel else torch.tensor(weight.q_scale())
        zero = weight.q_per_channel_zero_points() if per_channel else torch.tensor(weight.q_zero_point())
        self.register_buffer("scale", scale.float())
        self.register_buffer("zero", zero.float().reshape(-1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]; in float64, where a copy of a model is to show what rounding does."""
        if self.half:
            return torch.nn.functional.linear(x, self.weight.to(x.dtype), self.bias)
        scale, zero = _range(x)
        steps = torch.clamp(torch.round(x * (1 / scale)) + zero, 0, 255) - zero
        total = torch.nn.functional.linear(steps, self.weight.to(x.dtype) - self.zero)
        result = total * (scale * self.scale)
        return result if self.bias is None else result + self.bias


def _range(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point of an input, as float32 numbers."""
    low, high = torch.clamp(x.min(), max=0.0), torch.clamp(x.max(), min=0.0)
    scale = (high.double() - low.double()) / _STEPS
    scale = torch.where(scale.float() == 0, torch.full_like(scale, _NO_SCALE), scale)
    least = torch.full_like(scale, _LEAST_SCALE).float().double()
    grown = (least.float() / scale.float()).float()
    one_sided = (low == 0) | (high == 0)
    small = scale < least
    limit = (least * _STEPS).float()
    low = torch.where(small, torch.where(one_sided, torch.where(high == 0, -limit, low), low * grown), low)
    high = torch.where(small, torch.where(one_sided, torch.where(low == 0, limit, high), high * grown), high)
    scale = torch.where(small, least, scale)
    of_low, of_high = low.double() / scale, high.double() / scale
    from_low = -of_low.abs() < _STEPS - of_high.abs()
    zero = torch.where(from_low, -of_low, _STEPS - of_high)
    return scale.float(), torch.clamp(torch.round(zero), 0, _STEPS).float()


Place = tuple[torch.nn.Module, str, torch.nn.Module]


def layers_of(module: torch.nn.Module, folders: tuple[str, ...]) -> list[Place]:
    """(module around, name, layer) of the layers whose classes lie in these modules of torch."""
    return [
        (owner, name, child)
        for owner in list(module.modules())
        for name, child in list(owner._modules.items())
        if child is not None and type(child).__module__.startswith(folders)
    ]


def dynamic_layers(module: torch.nn.Module) -> list[Place]:
    """What was quantized dynamically."""
    return layers_of(module, ("torch.ao.nn.quantized.dynamic",))


def standard_linear(layer: torch.nn.Module) -> StandardLinear:
    """What stands for a dynamically quantized layer.

    Raises:
        UnsupportedError: it is not a linear layer; ONNX has no form for others.
    """
    if type(layer).__name__ == "Linear":
        return StandardLinear(layer)
    raise UnsupportedError(
        f"{type(layer).__name__} of torch.ao.quantization.quantize_dynamic cannot be converted (linear layers can). "
        "Convert the float model, and quantize the file with onnxtool quantize."
    )


@contextmanager
def replaced_layers(
    places: Sequence[Place], standard: Callable[[torch.nn.Module], torch.nn.Module]
) -> Iterator[list[torch.nn.Module]]:
    """Inside the block, what `standard` gives for each layer is in its place."""
    made = [standard(layer) for _, _, layer in places]
    try:
        for (owner, name, _), new in zip(places, made, strict=True):
            owner._modules[name] = new
        yield made
    finally:
        for owner, name, layer in places:
            owner._modules[name] = layer


def rounding_of(outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """How far outputs may be off where a number half-way between two steps is rounded the other way, in their units.

    Half a step of an output of 127 steps: what one number inside changes there is less, since it is one of many.

    Args:
        outputs: of one run.
    """
    floats = {n: np.asarray(a, np.float64) for n, a in outputs.items() if np.asarray(a).dtype.kind == "f"}
    return {n: float(np.sqrt(np.mean(np.square(a)))) / _STEPS / 2 for n, a in floats.items() if a.size}


@contextmanager
def in_standard_operators(module: torch.nn.Module) -> Iterator[int]:
    """Inside the block, dynamically quantized linear layers of a module are `StandardLinear`; their number.

    Raises:
        UnsupportedError: it has other dynamically quantized layers.
    """
    with replaced_layers(dynamic_layers(module), standard_linear) as made:
        yield len(made)

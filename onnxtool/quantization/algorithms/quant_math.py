"""The arithmetic of quantization: scales, zero points, rounding. q = clip(round(x / scale) + zero_point)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.editing import new_initializer
from onnxtool.quantization.recipe import ActivationType, WeightType

_TINY = np.float32(1e-20)  # a scale below this overflows its own reciprocal in float32 kernels


@dataclass(frozen=True)
class QuantParams:
    """Scale and zero point; arrays of one value for each channel when `axis` is given.

    `read_scale` is the scale to read the integers back with, where it is another one than they were written with.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None = None
    read_scale: np.ndarray | None = None


def activation_params(low: float, high: float, kind: ActivationType, *, centred: bool = False) -> QuantParams:
    """Scale and zero point of an activation with values in [low, high], low <= 0 <= high.

    u8 is asymmetric over the whole range; s8 is symmetric, zero point 0, except for ranges on one side of zero,
    which use all 255 steps unless `centred`.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    bottom, top = (0, 255) if kind == "u8" else (-128, 127)
    dtype = np.uint8 if kind == "u8" else np.int8
    if kind == "s8" and (centred or low < 0 < high):
        extreme = max(-low, high)
        return QuantParams(_scale(extreme / 127), np.zeros((), dtype))
    scale = _scale((high - low) / 255)
    zero = int(np.clip(round(bottom - low / float(scale)), bottom, top))
    return QuantParams(scale, np.array(zero, dtype))


def _scale(value: float) -> np.ndarray:
    # A tensor that is always zero needs some scale; 1 keeps its zeros exact.
    return np.array(np.float32(value) if np.float32(value) > _TINY else np.float32(1.0), np.float32)


def quantize_weight(
    weight: np.ndarray, axis: int | None, kind: WeightType = "s8", *, reduced: bool = False
) -> tuple[np.ndarray, QuantParams]:
    """Symmetric integer weights; u8 ones lie about zero point 128.

    Args:
        weight: float array.
        axis: the output-channel axis for one scale per channel, None for one scale.
        kind: integer type.
        reduced: 7 bits, [-63, 63].

    Returns:
        (integers, params).
    """
    weight = np.asarray(weight, np.float32)
    limit = 63 if reduced else 127
    other = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    extreme = np.abs(weight).max(axis=other, initial=0.0)
    scale = np.asarray(extreme / np.float32(limit), np.float32)
    scale = np.where(scale > _TINY, scale, np.float32(1.0)).astype(np.float32)
    return quantize_with(weight, weight_params(scale, axis, kind), limit), weight_params(scale, axis, kind)


def weight_params(scale: np.ndarray, axis: int | None, kind: WeightType) -> QuantParams:
    """Params of symmetric weights with given scales."""
    dtype = np.int8 if kind == "s8" else np.uint8
    return QuantParams(scale, np.full(scale.shape, 0 if kind == "s8" else 128, dtype), axis)


def quantize_with(weight: np.ndarray, params: QuantParams, limit: int = 127) -> np.ndarray:
    """Round `weight` to integers under given symmetric params."""
    scale = params.scale
    if params.axis is not None:
        scale = scale.reshape([-1 if i == params.axis else 1 for i in range(weight.ndim)])
    steps = np.asarray(weight / scale)
    np.clip(np.rint(steps, out=steps), -limit, limit, out=steps)  # in place: weights may be large
    zero = int(params.zero_point.reshape(-1)[0])
    if zero:
        steps += zero
    return np.asarray(steps, params.zero_point.dtype)


def stored(graph: ir.Graph, name: str, integers: np.ndarray, params: QuantParams) -> list[ir.Value]:
    """Initializers of integers, their scale and their zero point."""
    parts = {"quantized": integers, "scale": params.scale, "zero_point": params.zero_point}
    return [new_initializer(graph, f"{name}_{part}", array) for part, array in parts.items()]


def dequantize(integers: np.ndarray, params: QuantParams) -> np.ndarray:
    """(q - zero_point) * scale, in float32."""
    scale, zero = params.scale, params.zero_point.astype(np.int32)
    if params.axis is not None:
        shape = [-1 if i == params.axis else 1 for i in range(integers.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return np.asarray((integers.astype(np.int32) - zero) * scale, np.float32)

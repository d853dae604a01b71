"""Modules that torch has quantized with fixed ranges (statically, or while training) as Q/DQ pairs.

In torch a quantized tensor carries its scale; here it is the float tensor that it stands for, and each layer that gives
one rounds to its own steps with a QuantizeLinear and a DequantizeLinear. Weights stay bytes. Graphs of torchao's
`convert_pt2e` are made of such pairs already, which the exporter knows.

Source of the arithmetic: ATen/native/quantized/cpu (qconv.cpp, qlinear.cpp, qadd.cpp) of PyTorch 2.13: integer sums are
scaled to the steps of the output, rounded half to even and held within a byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

# Registers the operators `quantized_decomposed`.
from torch.ao.quantization.fx import _decomposed  # noqa: F401

from onnxtool.conversion.pytorch.dynamic_quantized import Place, layers_of, replaced_layers
from onnxtool.errors import UnsupportedError

_STEPS = 127.0
_BYTES = {torch.quint8: (0, 255, torch.uint8), torch.qint8: (-128, 127, torch.int8)}
_PLACES = ("torch.ao.nn.quantized.modules", "torch.ao.nn.intrinsic.quantized.modules")
_ELEMENTWISE: Mapping[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "Hardswish": lambda _, x: F.hardswish(x),
    "Sigmoid": lambda _, x: torch.sigmoid(x),
    "LeakyReLU": lambda layer, x: F.leaky_relu(x, layer.negative_slope),
    "ELU": lambda layer, x: F.elu(x, layer.alpha),
}


class OnSteps(torch.nn.Module):  # type: ignore[misc]
    """Rounds to the steps of a quantized tensor: a QuantizeLinear and a DequantizeLinear."""

    def __init__(self, scale: float, zero: int, dtype: torch.dtype = torch.quint8) -> None:
        super().__init__()
        self.scale, self.zero = float(scale), int(zero)
        self.low, self.high, self.dtype = _BYTES[dtype]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The nearest value of one byte."""
        steps = torch.ops.quantized_decomposed
        told = (self.scale, self.zero, self.low, self.high, self.dtype)
        return steps.dequantize_per_tensor.default(steps.quantize_per_tensor.default(x.float(), *told), *told)


class StandardLayer(torch.nn.Module):  # type: ignore[misc]
    """A quantized convolution or linear layer: weights in int8, the result on steps of its own."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        weight, bias = layer.weight(), layer.bias()
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        self.register_buffer("weight", weight.int_repr())
        split = weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
        scale = weight.q_per_channel_scales() if split else torch.tensor([weight.q_scale()])
        zero = weight.q_per_channel_zero_points() if split else torch.tensor([weight.q_zero_point()])
        channels = self.weight.shape[0]
        self.register_buffer("scale", scale.float().expand(channels).clone())
        self.register_buffer("zero", zero.long().expand(channels).clone())
        self.steps = OnSteps(layer.scale, layer.zero_point)
        self.rectified = "ReLU" in type(layer).__name__
        self.compute = F.linear if "Linear" in type(layer).__name__ else _convolution(layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the layer gives, as floats on its steps."""
        told = (self.scale, self.zero, 0, -128, 127, torch.int8)
        weight = torch.ops.quantized_decomposed.dequantize_per_channel.default(self.weight, *told)
        found = self.compute(x, weight, self.bias)
        return torch.as_tensor(self.steps(torch.relu(found) if self.rectified else found))


Compute = Callable[[torch.Tensor, torch.Tensor, "torch.Tensor | None"], torch.Tensor]


def _convolution(layer: Any) -> Compute:
    compute = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(layer.kernel_size)]
    told = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    return lambda x, weight, bias: compute(x, weight, bias, **told)


class StandardFunctional(torch.nn.Module):  # type: ignore[misc]
    """`QFunctional`: sums and products of quantized tensors."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.steps = OnSteps(layer.scale, layer.zero_point)

    def add(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Sum."""
        return torch.as_tensor(self.steps(x + y))

    def add_relu(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Sum, and what is not negative of it."""
        return torch.as_tensor(self.steps(torch.relu(x + y)))

    def mul(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Product."""
        return torch.as_tensor(self.steps(x * y))

    def cat(self, tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
        """One behind the other."""
        return torch.as_tensor(self.steps(torch.cat(list(tensors), dim)))


class _Elementwise(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, layer: Any, function: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.settings, self.function = _settings(layer), function
        # Of a Sigmoid they have a name of their own.
        scale, zero = (getattr(layer, f"output_{n}", None) for n in ("scale", "zero_point"))
        self.steps = OnSteps(layer.scale if scale is None else scale, layer.zero_point if zero is None else zero)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.steps(self.function(self.settings, x)))


def _settings(layer: Any) -> Any:
    """What a function needs of a layer, without its quantized parameters, which cannot be exported."""
    return type("Settings", (), {n: getattr(layer, n) for n in ("negative_slope", "alpha") if hasattr(layer, n)})


def standard(layer: Any) -> torch.nn.Module:
    """What stands for a quantized layer.

    Raises:
        UnsupportedError: there is nothing that does.
    """
    name = type(layer).__name__
    if name == "Quantize":
        return OnSteps(layer.scale.item(), layer.zero_point.item(), layer.dtype)
    if name in ("DeQuantize", "Dropout"):
        return torch.nn.Identity()
    if name == "ReLU6":
        return torch.nn.ReLU6()
    if name == "QFunctional":
        return StandardFunctional(layer)
    if name in _ELEMENTWISE:
        return _Elementwise(layer, _ELEMENTWISE[name])
    zeros = getattr(layer, "padding_mode", "zeros") == "zeros" and "Transpose" not in name
    if name.startswith(("Linear", "Conv")) and name != "LinearLeakyReLU" and zeros:
        return StandardLayer(layer)
    raise UnsupportedError(
        f"{name} of torch.ao.quantization.convert cannot be converted (convolutions, linear layers, sums, products and "
        "common activations can). Convert the float model, and quantize the file with onnxtool quantize."
    )


def static_layers(module: torch.nn.Module) -> list[Place]:
    """What was quantized with fixed ranges."""
    return [p for p in layers_of(module, _PLACES) if not type(p[2]).__name__.endswith("PackedParams")]


@contextmanager
def on_standard_steps(module: torch.nn.Module) -> Iterator[list[OnSteps]]:
    """Inside the block, statically quantized layers of a module are Q/DQ pairs: those that stand for their results.

    Raises:
        UnsupportedError: it has layers that nothing stands for.
    """
    with replaced_layers(static_layers(module), standard) as made:
        yield [part for new in made for part in new.modules() if isinstance(part, OnSteps)]


def rounds_inside(module: torch.nn.Module) -> bool:
    """True for a graph that rounds to steps of its own, as `convert_pt2e` makes them."""
    if not isinstance(module, torch.fx.GraphModule):
        return False
    return any(str(node.target).startswith("quantized_decomposed.quantize") for node in module.graph.nodes)


def steps_of(run: Callable[[], Mapping[str, np.ndarray]], pairs: Sequence[OnSteps]) -> dict[str, float]:
    """How far outputs may be off where numbers half-way between two steps are rounded the other way, in their units.

    One step of the pair that gives the output; of others, one step of an output of 127 steps.

    Args:
        run: runs the module once; its outputs.
        pairs: those inside of it, where they stand for torch's own layers.
    """
    seen: list[tuple[float, np.ndarray]] = []

    def note(pair: OnSteps, _: Any, found: torch.Tensor) -> None:
        seen.append((pair.scale, found.detach().numpy().ravel()))

    hooks = [pair.register_forward_hook(note) for pair in pairs]
    try:
        outputs = {n: np.asarray(a) for n, a in run().items()}
    finally:
        for hook in hooks:
            hook.remove()
    steps = {}
    for name, array in outputs.items():
        if array.dtype.kind == "f" and array.size:
            usual = float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) / _STEPS
            last = next((scale for scale, found in reversed(seen) if np.array_equal(found, array.ravel())), usual)
            steps[name] = max(last, usual)
    return steps

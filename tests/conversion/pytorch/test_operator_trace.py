"""What a module's own code computes, as ONNX nodes: equal to the module, with its weights bit by bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from onnxtool.conversion.pytorch.recording.operator_trace import operator_trace  # noqa: E402
from onnxtool.conversion.pytorch.tensors import named_tensors, to_numpy  # noqa: E402
from onnxtool.errors import UnsupportedError  # noqa: E402
from onnxtool.model.spec import TensorSpec  # noqa: E402
from onnxtool.runtime.runner import OnnxRunner  # noqa: E402
from tests.conversion.pytorch import torch_models as models  # noqa: E402


class Computed(nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: torch.Tensor) -> object:
        return self.function(*x)


class Flat(nn.Module):  # type: ignore[misc]
    """Gives a tuple of tensors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(t for _, t in named_tensors(self.module(*x)))


class Residual(nn.Module):  # type: ignore[misc]
    """Convolutions in groups, three normalizations and a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.batch, self.group, self.layer = nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.LayerNorm(8)
        nn.init.uniform_(self.batch.running_var, 0.5, 2)
        nn.init.normal_(self.batch.running_mean)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.batch(self.first(x)))
        y = functional.max_pool2d(y + functional.silu(self.group(self.second(y))), 2)
        return self.layer(functional.adaptive_avg_pool2d(y, 1).flatten(1))


def traced(module: nn.Module, *tensors: torch.Tensor) -> tuple[ir.Model, tuple[torch.Tensor, ...]]:
    flat = Flat(module).eval()
    with torch.no_grad():
        expected = flat(*(t.clone() for t in tensors))
    inputs, outputs = (
        [TensorSpec(f"{kind}{i}", np.dtype("float32"), None) for i in range(len(given))]
        for kind, given in (("x", tensors), ("y", expected))
    )
    return operator_trace(flat, tensors, inputs, outputs), expected


def assert_agrees(module: nn.Module, *tensors: torch.Tensor) -> ir.Model:
    graph, expected = traced(module, *tensors)
    found = OnnxRunner.open(graph).run({f"x{i}": to_numpy(t) for i, t in enumerate(tensors)})
    for i, tensor in enumerate(expected):
        np.testing.assert_allclose(found[f"y{i}"], to_numpy(tensor), rtol=1e-4, atol=1e-5)
    return graph


def reals(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


MODULES = {
    "batch norm": (models.Dropped(), reals(2, 6)),
    "sizes": (models.Sizes(), reals(3, 6)),
    "written in place": (models.InPlace(), reals(2, 4)),
    "transposed convolution": (models.Strided(), reals(1, 3, 32, 64)),
    "LSTM": (models.Recurrent(), reals(2, 3, 5)),
    "GRU": (nn.GRU(5, 6, 2, batch_first=True), reals(2, 3, 5)),
    "transformer layer": (models.Attending(), reals(2, 5, 16)),
    "attention, rows without keys": (models.Weighing("bool"), reals(2, 5, 16)),
    "attention, causal": (models.Weighing("causal"), reals(2, 5, 16)),
    "attention, in groups": (models.Weighing("float", grouped=True), reals(2, 5, 16)),
    "residual": (Residual(), reals(2, 3, 16, 16)),
    "own statistics": (nn.InstanceNorm2d(3, affine=True), reals(2, 3, 4, 5)),
    "resize": (nn.Upsample(scale_factor=2, mode="bilinear"), reals(1, 2, 3, 4)),
    "one dim": (
        nn.Sequential(nn.Conv1d(2, 4, 3), nn.AvgPool1d(2), nn.ConvTranspose1d(4, 2, 3, 2, 1, 1), nn.GELU("tanh")),
        reals(2, 2, 9),
    ),
}
FUNCTIONS: dict[str, Callable[[torch.Tensor], object]] = {
    "clamp": lambda x: (x.clamp(min=-0.5), x.clamp(-0.5, 0.25), x.clamp(max=0.1), functional.hardtanh(x)),
    "parts": lambda x: (*x.split(2, 1), *x.unbind(0), x.flip(1), x[:, 1::2], x.roll(1, 1)),
    "moved": lambda x: (
        x.repeat(2, 3), functional.pad(x, (1, 2, -1, 0), value=3), x.triu(1), x.diagonal(1), x.unfold(1, 3, 1),
        functional.pad(x[None], (2, 1), mode="reflect"), functional.pad(x[None], (0, 3), mode="replicate"),
        functional.pixel_shuffle(x.reshape(1, 4, 1, 2), 2), torch.diag_embed(x), x.flip(0, 1), x[..., -1:],
        functional.interpolate(x[None, None], size=(3, 7)), functional.unfold(x[None, None], 2, padding=1),
        x[None][:, [1, 0], None, [2, 3]], x[torch.tensor([[True, False, True, True]] * 2)],
    ),
    "arithmetic": lambda x: (torch.sub(x, x * x, alpha=0.5), 2 - x, x // 0.3, x**3, 1 / (x * x + 1), x.abs().rsqrt()),
    "statistics": lambda x: (x.var(1), x.std(0), x.amax(1), x.max(1), x.sum(), x.norm(dim=1), x.logsumexp(1)),
    "choices": lambda x: (x.masked_fill(x > 0, -1), torch.where(x != 0, x, 1), (x > 0).any(1), (x < 9).all(), x.tril()),
    "taken": lambda x: (x[[1, 0]], x[[1, 0], [2, 3]], x.topk(2)[0], x.argmax(1), x.gather(1, torch.tensor([[0], [3]]))),
    "constants": lambda x: x + torch.arange(4) * torch.linspace(0, 1, 4) + torch.full_like(x, 2).sin(),
}  # fmt: skip


def write_parts(x: torch.Tensor) -> torch.Tensor:
    y = x.repeat(2, 1)
    y[1:3] += 1
    y[2:] *= 2  # overlaps what was written before
    y[:, 0] = y[:, 1]
    return y


FUNCTIONS["written parts"] = write_parts


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_written_down(name: str) -> None:
    module, *tensors = MODULES[name]
    graph = assert_agrees(module, *tensors)
    initializers = {n: v.const_value.numpy() for n, v in graph.graph.initializers.items() if v.const_value is not None}
    for parameter, tensor in module.named_parameters():
        np.testing.assert_array_equal(initializers[f"module.{parameter}"], to_numpy(tensor))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_written_down(name: str) -> None:
    assert_agrees(Computed(FUNCTIONS[name]), reals(2, 4))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x * 2 if x.sum() > 0 else x - 1, "reads a value of the data"),
        (lambda x: x * x.shape[0] + float(x[0, 0]), "reads a value of the data"),
        (lambda x: x[x > 0], "operator aten.index.Tensor has no exact form here"),
        (lambda x: x + torch.rand_like(x), "draws random numbers"),
        (lambda x: x + torch.randint(0, 5, (4,)), "draws random numbers"),
        (lambda x: functional.max_pool1d_with_indices(x, 2)[1], "no exact form"),
    ],
)
def test_what_has_no_exact_form_is_refused(function: Callable[[torch.Tensor], torch.Tensor], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        traced(Computed(function), reals(2, 4))

"""Layers that torch has quantized with fixed ranges become Q/DQ pairs that compute the same."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxtool
from onnxtool.errors import UnsupportedError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from onnxtool.conversion.pytorch.static_quantized import (  # noqa: E402
    OnSteps,
    on_standard_steps,
    rounds_inside,
    standard,
    static_layers,
    steps_of,
)

nn = torch.nn
PICTURES = torch.from_numpy(np.random.default_rng(0).standard_normal((8, 3, 12, 12)).astype(np.float32))


class Net(nn.Module):  # type: ignore[misc]
    """Convolutions with batch normalization, a sum, an activation, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        ao = torch.ao.quantization
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.gate = nn.Hardswish()
        self.sums = torch.ao.nn.quantized.FloatFunctional()
        self.last = nn.Linear(8 * 36, 5)
        self.into, self.out_of = ao.QuantStub(), ao.DeQuantStub()

    def forward(self, x: Any) -> Any:
        x = self.first(self.into(x))
        x = self.gate(self.sums.add(x, self.second(x)))
        return self.out_of(self.last(x.flatten(1)))


def trained() -> Any:
    """Quantization-aware training, two steps of it, and conversion to integers."""
    torch.manual_seed(0)
    ao, net = torch.ao.quantization, Net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.train()
        net.qconfig = ao.get_default_qat_qconfig("fbgemm")
        ao.fuse_modules_qat(net, [["first.0", "first.1", "first.2"]], inplace=True)
        ao.prepare_qat(net, inplace=True)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        for _ in range(2):
            optimizer.zero_grad()
            net(PICTURES).square().mean().backward()
            optimizer.step()
        return ao.convert(net.eval())


def test_each_layer_computes_what_torch_computes_but_for_a_step_here_and_there() -> None:
    module = trained()
    expected = module(PICTURES)
    step = module.last.scale
    with on_standard_steps(module) as pairs:
        assert len(pairs) == 6, "of the input, two convolutions, the sum, the activation, the linear layer"
        found = module(PICTURES)
    assert static_layers(module) and type(module.last).__name__ == "Linear", "the module is what it was"
    off = ((found - expected).abs() / step).detach().numpy()
    np.testing.assert_allclose(off, np.round(off), atol=1e-3)
    assert off.max() <= 1 + 1e-3 and (off > 0.5).mean() < 0.2


def test_it_converts_to_pairs_and_weights_of_one_byte(tmp_path: Path) -> None:
    report = onnxtool.convert(
        trained(), tmp_path / "out.onnx", input_shapes={"x": (8, 3, 12, 12)}, effort="quick", exporter="dynamo"
    )
    assert report.ok
    assert any("may be" in note for note in report.notes)
    graph = onnx.load(tmp_path / "out.onnx").graph
    kinds = Counter(node.op_type for node in graph.node)
    assert kinds["QuantizeLinear"] == 6 and kinds["Conv"] == 2
    bytes_of = {tuple(w.dims) for w in graph.initializer if w.data_type == onnx.TensorProto.INT8}
    assert {(8, 3, 3, 3), (8, 4, 3, 3), (5, 288)} <= bytes_of


def test_what_nothing_stands_for_is_refused_and_nothing_is_changed() -> None:
    quantized = torch.ao.nn.quantized
    module = nn.Sequential(quantized.Linear(4, 4), quantized.InstanceNorm2d(4, None, None, 1.0, 0))
    with pytest.raises(UnsupportedError, match="InstanceNorm2d"), on_standard_steps(module):
        pass
    assert [type(layer).__name__ for layer in module] == ["Linear", "InstanceNorm2d"]
    assert not rounds_inside(module)


@pytest.mark.parametrize(("name", "function"), [("Sigmoid", torch.sigmoid), ("LeakyReLU", nn.LeakyReLU(0.3))])
def test_activations_are_computed_on_floats_and_put_on_steps(name: str, function: Any) -> None:
    layer = getattr(torch.ao.nn.quantized, name)(0.02, 7, **({"negative_slope": 0.3} if name == "LeakyReLU" else {}))
    x = torch.linspace(-2, 2, 50)
    given = torch.quantize_per_tensor(x, 0.03, 60, torch.quint8)
    found = standard(layer)(given.dequantize())
    assert (found - layer(given).dequantize()).abs().max() <= 0.02 + 1e-6
    assert (found - function(given.dequantize()).clamp(-7 * 0.02, 248 * 0.02)).abs().max() <= 0.011


def test_graphs_of_pairs_are_known_and_an_exported_program_in_memory_converts(tmp_path: Path) -> None:
    class Rounded(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            told = (0.1, 3, 0, 255, torch.uint8)
            steps = torch.ops.quantized_decomposed
            return steps.dequantize_per_tensor(steps.quantize_per_tensor(x, *told), *told) * 2

    program = torch.export.export(Rounded(), (torch.zeros(4, 3),))
    assert rounds_inside(program.module())
    assert onnxtool.convert(program, tmp_path / "out.onnx", effort="quick").ok
    graph = onnx.load(tmp_path / "out.onnx").graph
    assert [n.op_type for n in graph.node] == ["QuantizeLinear", "DequantizeLinear", "Mul"]


def test_outputs_may_be_a_step_off() -> None:
    pair = OnSteps(0.5, 0)
    x = torch.tensor([3.0, 2.9])
    given = {"a": np.array([3.0, -3.0], np.float32), "empty": np.zeros(0, np.float32), "i": np.ones(2, int)}
    found = steps_of(lambda: {**given, "stepped": pair(x).numpy()}, [pair])
    assert found == {"a": pytest.approx(3 / 127), "stepped": 0.5}
    assert not pair._forward_hooks

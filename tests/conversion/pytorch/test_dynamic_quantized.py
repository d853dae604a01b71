"""Dynamically quantized layers convert with the arithmetic that they have; what has no such form is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxtool
from onnxtool.errors import UnsupportedError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from onnxtool.conversion.pytorch.dynamic_quantized import (  # noqa: E402
    StandardLinear,
    dynamic_layers,
    in_standard_operators,
    rounding_of,
)

RANDOM = np.random.default_rng(0)


def quantized(*layers: Any, kinds: Any = None, **options: Any) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.nn.Sequential(*(layer() for layer in layers)).eval()
        return torch.ao.quantization.quantize_dynamic(module, kinds or {torch.nn.Linear}, **options)


def test_the_arithmetic_is_that_of_torch() -> None:
    layer = quantized(lambda: torch.nn.Linear(40, 7))[0]
    standard = StandardLinear(layer)
    for turn in range(60):
        x = torch.from_numpy(RANDOM.standard_normal((4, 40)).astype(np.float32)) * 10.0 ** RANDOM.uniform(-8, 3)
        x = (x, x.abs(), -x.abs(), x * 0, x + 3)[turn % 5]
        plain = layer(x)
        assert torch.allclose(standard(x), plain, rtol=1e-5, atol=1e-6 * float(plain.abs().max()) + 1e-9), turn


def test_it_converts_with_weights_of_one_byte(tmp_path: Path) -> None:
    module = quantized(lambda: torch.nn.Linear(64, 200), torch.nn.ReLU, lambda: torch.nn.Linear(200, 3))
    report = onnxtool.convert(module, tmp_path / "out.onnx", input_shapes={"input": ("batch", 64)}, effort="quick")
    assert report.ok
    assert any("2 dynamically quantized" in note for note in report.notes)
    weights = onnx.load(tmp_path / "out.onnx").graph.initializer
    # The exporter computes what hangs on small constants alone.
    assert [tuple(w.dims) for w in weights if w.data_type == onnx.TensorProto.INT8] == [(200, 64)]
    assert type(module[0]).__name__ == "Linear"
    assert dynamic_layers(module)


def test_recurrent_layers_are_refused_and_nothing_is_changed() -> None:
    module = quantized(
        lambda: torch.nn.Linear(8, 8), lambda: torch.nn.LSTM(8, 4), kinds={torch.nn.Linear, torch.nn.LSTM}
    )
    before = list(module)
    with (
        pytest.raises(UnsupportedError, match="LSTM of torch"),
        in_standard_operators(module),
    ):
        pass
    assert list(module) == before


def test_rounding_is_half_a_step_of_an_output() -> None:
    found = rounding_of({"y": np.full((2, 3), 127.0, np.float32), "i": np.ones(3, np.int64)})
    assert found == {"y": pytest.approx(0.5)}

"""What is written for another machine: TensorRT's form, which no CPU kernel needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.errors import UsageError
from onnxtool.lint.rules.quantized_forms import tensorrt_faults
from onnxtool.model.file import ModelFile
from onnxtool.quantization.quantize import quantize
from tests.quantization.quant_models import build, weights

Save = Callable[[onnx.ModelProto], Path]


def hard_swish_proto() -> onnx.ModelProto:
    """A HardSigmoid is carried on the CPU by a saturation, which needs a zero point."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], name="first"),
        node("HardSwish", ["c0"], ["h"], name="activation"),
        node("Conv", ["h", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], name="second"),
        node("Relu", ["c1"], ["y"], name="last"),
    ]
    arrays = {"w0": weights(8, 3, 3, 3), "b0": weights(8), "w1": weights(4, 8, 3, 3), "b1": weights(4)}
    return build(nodes, arrays, {"x": ["n", 3, 16, 16]}, {"y": ["n", 4, 16, 16]})


@pytest.mark.parametrize("mode", ["auto", "static"])
@pytest.mark.parametrize("kind", ["residual", "hard_swish"])
def test_tensorrt_gets_zero_points_of_zero_and_float_biases(
    mode: Any, kind: str, residual: onnx.ModelProto, residual_data: dict[str, np.ndarray], save: Save, tmp_path: Path
) -> None:
    source = save(residual if kind == "residual" else hard_swish_proto())
    report = quantize(source, tmp_path / "q.onnx", mode=mode, data=residual_data, target="tensorrt")
    assert report.ok and report.output is not None and report.latency is None
    view = ModelFile(report.output).view
    assert tensorrt_faults(view) == {}
    stored = [t for t in view.proto.graph.initializer if t.data_type in (TensorProto.INT8, TensorProto.UINT8)]
    assert stored and not any(numpy_helper.to_array(t).any() for t in stored if t.name.endswith("zero_point"))
    assert not [t.name for t in view.proto.graph.initializer if t.data_type == TensorProto.INT32]
    assert not [n.op_type for n in view.nodes if n.domain == "com.microsoft"]
    assert sum(n.op_type == "QuantizeLinear" for n in view.nodes) >= 2
    assert report.fidelity is not None and report.fidelity.sqnr_db > 18
    assert any("TensorRT was not run" in warning for warning in report.warnings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "dynamic"}, "goes with --mode auto or static, not dynamic"),
        ({"mode": "auto"}, "needs --data"),
        ({"mode": "static", "compact": 8, "data": {"x": np.zeros((4, 3, 16, 16), np.float32)}}, "without --fuse"),
        ({"mode": "static", "target": "vnni", "data": {"x": np.zeros((4, 3, 16, 16), np.float32)}}, "goes with auto"),
    ],
)
def test_says_what_does_not_go_with_tensorrt(
    settings: dict[str, Any], message: str, residual: onnx.ModelProto, save: Save, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        quantize(save(residual), tmp_path / "q.onnx", **{"target": "tensorrt", **settings})
    assert not (tmp_path / "q.onnx").exists()

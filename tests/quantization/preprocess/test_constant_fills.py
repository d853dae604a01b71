"""Weights that a ConstantOfShape makes are quantized like others, and the file stays small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.errors import UnsupportedError
from onnxtool.model import io
from onnxtool.quantization.preprocess.constant_fills import has_filled
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.quantization.quantize import quantize
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.kernels import count_kernels
from tests.quantization.quant_models import integer_kernels

SHAPES = {"w0": (32, 3, 3, 3), "b0": (32,), "w1": (64, 32 * 8 * 8), "b1": (64,)}
FILLS = {"w0": 0.05, "b0": -0.1, "w1": 0.01, "b1": 0.5}


def filled_proto(*, linear: bool = True) -> onnx.ModelProto:
    """Conv, Relu, Flatten, Gemm, as in the onnx package's "light" models: opset 9, all weights from shapes."""
    names = list(SHAPES) if linear else ["w0", "b0"]
    nodes = [
        helper.make_node(
            "ConstantOfShape", [f"{n}_shape"], [n], value=numpy_helper.from_array(np.array([FILLS[n]], np.float32))
        )
        for n in names
    ]
    nodes += [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r" if linear else "y"]),
    ]
    if linear:
        nodes += [
            helper.make_node("Flatten", ["r"], ["f"]),
            helper.make_node("Gemm", ["f", "w1", "b1"], ["y"], transB=1),
        ]
    shapes = [numpy_helper.from_array(np.array(SHAPES[n], np.int64), f"{n}_shape") for n in names]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])]
    inputs += [
        helper.make_tensor_value_info(s.name, TensorProto.INT64, [len(s.int64_data) or s.dims[0]]) for s in shapes
    ]
    result = ["n", 64] if linear else ["n", 32, 8, 8]
    graph = helper.make_graph(
        nodes, "light", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)], shapes
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3)
    onnx.checker.check_model(model)
    return model


DATA = {"x": np.random.default_rng(8).uniform(0, 1, (16, 3, 8, 8)).astype(np.float32)}


def reference(x: np.ndarray) -> np.ndarray:
    """The same by hand: every weight of a layer is one number, so that layers are sums."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = sum(padded[:, :, i : i + 8, j : j + 8] for i in range(3) for j in range(3)).sum(axis=1)
    hidden = np.maximum(sums * FILLS["w0"] + FILLS["b0"], 0)
    total = hidden.reshape(len(x), -1).sum(axis=1, keepdims=True) * 32
    return np.broadcast_to(total * FILLS["w1"] + FILLS["b1"], (len(x), 64))


@pytest.mark.parametrize("mode", ["static", "dynamic", "int8", "int4", "float16"])
def test_every_mode_takes_them_and_the_file_stays_small(tmp_path: Path, save: Any, mode: Any) -> None:
    source, target = save(filled_proto()), tmp_path / "out.onnx"

    report = quantize(source, target, mode=mode, data=DATA if mode == "static" else None)

    assert report.ok
    assert target.stat().st_size < 12_000  # the weights would take over 500 000 bytes as float, 130 000 as int8
    runner = OnnxRunner.open(target)
    wide = np.float16 if mode == "float16" else np.float32
    found = runner.run({"x": DATA["x"].astype(wide)})["y"].astype(np.float32)
    np.testing.assert_allclose(found, reference(DATA["x"]), rtol=0.02)
    if mode != "float16":
        assert integer_kernels(count_kernels(target)) >= 1


def test_weights_take_no_memory_before_quantizing() -> None:
    prepared = prepare(io.from_proto(filled_proto()))

    assert has_filled(prepared)
    assert len(io.to_proto(prepared).SerializeToString()) < 4000


def test_modes_for_linear_layers_say_where_convolutions_belong(tmp_path: Path, save: Any) -> None:
    source = save(filled_proto(linear=False))

    with pytest.raises(UnsupportedError, match=r"no MatMul or Gemm .* 1 Conv nodes are for --mode static"):
        quantize(source, tmp_path / "out.onnx", mode="dynamic")
    assert not (tmp_path / "out.onnx").exists()

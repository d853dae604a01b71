"""The ONNX runner and its errors."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT, SessionOptions, create_session


def one_node(op: str, kind: int, *, domain: str = "", opset: int = 20, **attributes: object) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], domain=domain, **attributes)
    value = [helper.make_tensor_value_info(n, kind, ["n", 3]) for n in ("x", "y")]
    graph = helper.make_graph([node], "one", value[:1], value[1:])
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_runs_a_file_bytes_a_proto_and_an_ir_model_alike(digits_onnx: Path) -> None:
    image = np.random.default_rng(0).random((3, 1, 8, 8), dtype=np.float32)
    sources = [digits_onnx, digits_onnx.read_bytes(), io.read_proto(digits_onnx), io.load(digits_onnx)]
    results = [OnnxRunner.open(s, EXACT).run({"image": image})["logits"] for s in sources]
    assert results[0].shape == (3, 10)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_specs_name_dynamic_dims(digits_onnx: Path) -> None:
    runner = OnnxRunner.open(digits_onnx)
    assert str(runner.inputs[0].info()) == "image: float32[batch, 1, 8, 8]"
    assert str(runner.outputs[0].info()) == "logits: float32[batch, 10]"


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "no 'image'"),
        ({"picture": np.zeros((1, 1, 8, 8), np.float32)}, "has 'picture'"),
        ({"image": np.zeros((1, 1, 8, 8), np.float64)}, r"float64 in the data; the model takes image: float32\[batch"),
        ({"image": np.zeros((1, 8, 8), np.float32)}, "shape"),
        ({"image": np.zeros((1, 3, 8, 8), np.float32)}, "shape"),
    ],
)
def test_says_what_the_model_takes(digits_onnx: Path, feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OnnxRunner.open(digits_onnx).run(feeds)


def test_bfloat16_in_and_out() -> None:
    runner = OnnxRunner.open(one_node("Identity", TensorProto.BFLOAT16))
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    result = runner.run({"x": x})["y"]
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(result, x)


def test_unknown_operator_is_unsupported_and_a_bad_graph_is_bad_input(relu_proto: onnx.ModelProto) -> None:
    with pytest.raises(UnsupportedError):
        create_session(one_node("Frobnicate", TensorProto.FLOAT, domain="my.ops"))
    relu_proto.graph.node[1].input[0] = "nowhere"
    with pytest.raises(InputError, match="refuses"):
        create_session(relu_proto)


def test_unknown_provider_and_library(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this ONNX Runtime has"):
        create_session(relu_proto, SessionOptions(provider="abacus"))
    with pytest.raises(UsageError, match="no such file"):
        create_session(relu_proto, SessionOptions(custom_op_libraries=(tmp_path / "none.so",)))


def test_external_data_of_an_ir_model_is_found(tmp_path: Path, relu_proto: onnx.ModelProto) -> None:
    weight = np.array([1.0, -1.0, 0.5, 0.25, -2.0, 3.0], dtype="<f4")
    x = np.ones((1, 3), np.float32)
    onnx.save(relu_proto, tmp_path / "plain.onnx")
    expected = OnnxRunner.open(tmp_path / "plain.onnx").run({"x": x})["y"]
    (tmp_path / "w.bin").write_bytes(weight.tobytes())
    tensor = relu_proto.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "m.onnx").write_bytes(relu_proto.SerializeToString())
    np.testing.assert_array_equal(OnnxRunner.open(io.load(tmp_path / "m.onnx")).run({"x": x})["y"], expected)

"""float16: half the size, and what overflows stays float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtool
from onnxtool.model import io
from onnxtool.quantization.algorithms.float16 import make_float16
from onnxtool.quantization.preprocess.prepare import prepare
from onnxtool.runtime.runner import OnnxRunner
from tests.quantization.quant_models import build, weights


def converted(proto: onnx.ModelProto, **options: object) -> tuple[onnx.ModelProto, list[str]]:
    model = prepare(io.from_proto(proto))
    kept = make_float16(model, **options)  # type: ignore[arg-type]
    result = io.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    return result, kept


@pytest.mark.parametrize("keep_io", [False, True])
def test_a_transformer_in_half_precision(
    transformer: onnx.ModelProto, transformer_data: dict[str, np.ndarray], keep_io: bool
) -> None:
    model, kept = converted(transformer, keep_io=keep_io)
    assert kept == []
    wanted = np.dtype("float32" if keep_io else "float16")
    runner = OnnxRunner.open(model)
    assert [s.dtype for s in (*runner.inputs, *runner.outputs)] == [wanted, wanted]
    assert [o.name for o in runner.outputs] == ["y"]
    expected = OnnxRunner.open(transformer).run(transformer_data)["y"]
    got = runner.run({"x": transformer_data["x"].astype(wanted)})["y"]
    np.testing.assert_allclose(got.astype(np.float32), expected, atol=0.02)
    assert {t.data_type for t in model.graph.initializer} <= {TensorProto.FLOAT16, TensorProto.INT64}


def test_weights_beyond_half_precision_stay_single() -> None:
    nodes = [
        helper.make_node("Min", ["x", "huge"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["y"]),
    ]
    arrays = {"huge": np.array([1e6], np.float32), "w": weights(4, 4)}
    proto = build(nodes, arrays, {"x": ["n", 4]}, {"y": ["n", 4]})
    model, kept = converted(proto, keep_io=True)
    assert len(kept) == 1
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    expected = OnnxRunner.open(proto).run({"x": x})["y"]
    np.testing.assert_allclose(OnnxRunner.open(model).run({"x": x})["y"], expected, atol=0.01)


def test_activations_that_overflow_on_the_data_stay_single(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Log", ["e"], ["l"]),
        helper.make_node("MatMul", ["l", "w"], ["y"]),
    ]
    proto = build(nodes, {"w": weights(4, 4)}, {"x": ["n", 4]}, {"y": ["n", 4]})
    io.save(io.from_proto(proto), tmp_path / "m.onnx")
    data = {"x": np.linspace(0, 15, 64, dtype=np.float32).reshape(16, 4)}
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "h.onnx", mode="float16", data=data, keep_io=True)
    assert report.fidelity.sqnr_db > 50, "exp(15) is beyond float16"


def test_infinity_of_a_mask_is_half_precisions_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Greater", ["x", "one"], ["hidden"]),
        helper.make_node("Where", ["hidden", "never", "x"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("MatMul", ["shares", "w"], ["y"]),
    ]
    arrays = {"one": np.array(1, np.float32), "never": np.array(-np.inf, np.float32), "w": weights(4, 4)}
    io.save(io.from_proto(build(nodes, arrays, {"x": ["n", 4]}, {"y": ["n", 4]})), tmp_path / "m.onnx")
    data = {"x": np.linspace(-1, 1.4, 64, dtype=np.float32).reshape(4, 16).T}
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "h.onnx", mode="float16", data=data)
    assert report.fidelity.sqnr_db > 50
    casts = [n for n in onnx.load(tmp_path / "h.onnx").graph.node if n.op_type == "Cast"]
    assert not casts, "nothing stays float32"


def test_half_the_size_and_the_same_answers(fixtures: Path, digits_onnx: Path, tmp_path: Path) -> None:
    report = onnxtool.quantize(
        digits_onnx,
        tmp_path / "h.onnx",
        mode="float16",
        data=fixtures / "calib.npz",
        eval_data=fixtures / "eval.npz",
        labels="label",
    )
    assert report.size_ratio < 0.52
    assert report.metric.drop == 0
    assert report.fidelity.sqnr_db > 50


def test_a_branch_sees_single_precision() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["a", "a"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["a"], ["f"])],
        "else",
        [],
        [helper.make_tensor_value_info("f", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=inner, else_branch=other),
    ]
    proto = build(nodes, {"w": weights(4, 4), "zero": np.float32(0)}, {"x": ["n", 4]}, {"y": ["n", 4]})
    model, kept = converted(proto, keep_io=True)
    assert len(kept) == 1
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    expected = OnnxRunner.open(proto).run({"x": x})["y"]
    np.testing.assert_allclose(OnnxRunner.open(model).run({"x": x})["y"], expected, atol=0.02)


@pytest.mark.parametrize("opset", [17, 20])
def test_operators_that_are_not_defined_for_half_precision_stay_single(opset: int, tmp_path: Path) -> None:
    """IsInf takes float16 from opset 20 on; before, the node beside it must not be narrowed without a Cast."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("IsInf", ["h"], ["infinite"]),
        node("Where", ["infinite", "zero", "h"], ["y"]),
    ]
    arrays = {"w": weights(8, 8), "zero": np.float32(0)}
    model = build(nodes, arrays, {"x": ["n", 8]}, {"y": ["n", 8]}, opset=opset)
    io.save(io.from_proto(model), tmp_path / "m.onnx")
    report = onnxtool.quantize(tmp_path / "m.onnx", tmp_path / "q.onnx", mode="float16")
    assert report.ok
    (test,) = [n for n in onnx.load(tmp_path / "q.onnx").graph.node if n.op_type == "IsInf"]
    assert test.input[0].endswith("_single") is (opset < 20)

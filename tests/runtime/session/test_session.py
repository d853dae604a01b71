"""What the runtime says, made readable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxtool.errors import InputError
from onnxtool.runtime import cpu
from onnxtool.runtime.session.session import SessionOptions, Spinning, create_session, first_line

CASES = {
    "[ONNXRuntimeError] : 1 : FAIL : Load model from a failed:/onnxruntime_src/onnxruntime/core/graph/load.h:46 void "
    "onnxruntime::Validate(const std::unordered_map<std::basic_string<char>, int>&, bool, const std::string&, int) "
    "Opset 9999 is unknown": "Load model from a failed:Opset 9999 is unknown",
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code. Name:'r' Status Message: "
    "/onnxruntime_src/onnxruntime/core/reshape_helper.h:45 onnxruntime::ReshapeHelper::ReshapeHelper(const "
    "onnxruntime::TensorShape&, onnxruntime::TensorShapeVector&, bool) sizes differ": (
        "Non-zero status code. Name:'r' Status Message: sizes differ"
    ),
    "plain\n  words": "plain words",
    "": "ValueError",
}


@pytest.mark.parametrize("text", CASES)
def test_leaves_out_source_positions_and_codes(text: str) -> None:
    assert first_line(ValueError(text)) == CASES[text]


def test_a_model_that_the_runtime_refuses_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (string[N] x) => (bool[N] y) { y = RegexFullMatch (x) }'
    model = onnx.parser.parse_model(text)
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("pattern", b"\x81(["))
    with pytest.raises(InputError):
        create_session(model.SerializeToString())
    assert capfd.readouterr().out == ""


def test_weights_taken_from_memory_may_be_unused() -> None:
    weights = {n: np.full((1024, 1024), v, np.float32) for n, v in (("used", 0.5), ("unused", 2.0))}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "used"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1024])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1024])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = ir.from_proto(proto)
    for value in model.graph.initializers.values():
        assert value.const_value is not None
        value.const_value = ir.Tensor(value.const_value.numpy(), name=value.name)  # as passes make them
    (result,) = create_session(model).run(None, {"x": np.ones((1, 1024), np.float32)})
    assert (result == 512).all()


@pytest.mark.parametrize("layout", ["C", "F"])
def test_weights_taken_from_memory_may_be_transposed_views(layout: str) -> None:
    model = ir.from_proto(
        onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 17]> g (float[1,1024] x) => (float[1,2048] y) '
            "<float[1] w = {0.0}> { y = MatMul(x, w) }"
        )
    )
    weight = np.random.default_rng(0).integers(-3, 4, (1024, 2048)).astype(np.float32)
    value = model.graph.initializers["w"]
    value.const_value = ir.Tensor(np.asarray(weight, order=layout), name="w")  # type: ignore[call-overload]
    value.shape = ir.Shape(weight.shape)
    (result,) = create_session(model).run(None, {"x": np.ones((1, 1024), np.float32)})
    np.testing.assert_array_equal(result, weight.sum(axis=0, keepdims=True))


def test_without_folding_a_transposed_weight_is_not_copied(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["x", "t"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["a", "b", 64])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["a", "b", 32])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    shapes = {}
    for fold in (True, False):
        path = tmp_path / f"{fold}.onnx"
        session = create_session(model, SessionOptions(fold=fold, optimized_path=path))
        (stored,) = onnx.load(path).graph.initializer
        shapes[fold] = tuple(stored.dims)
        x = np.ones((2, 3, 64), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weight.T, rtol=1e-4, atol=1e-5)
    assert shapes == {True: (64, 32), False: (32, 64)}


@pytest.mark.parametrize(
    ("spinning", "load", "busy", "stopped"),
    [
        ("never", False, "0", None),
        ("runs", True, None, "1"),
        ("always", True, None, None),
        ("auto", True, "0", None),
        ("auto", False, None, "1"),
    ],
)
def test_threads_wait_busily_as_asked(
    spinning: Spinning,
    load: bool,
    busy: str | None,
    stopped: str | None,
    digits_onnx: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries: dict[str, str] = {}
    monkeypatch.setattr(ort.SessionOptions, "add_session_config_entry", lambda _, k, v: entries.update({k: v}))
    monkeypatch.setattr(cpu.os, "getloadavg", lambda: (1000.0 if load else 0.0, 0.0, 0.0))
    create_session(digits_onnx, SessionOptions(spinning=spinning))
    assert entries.get("session.intra_op.allow_spinning") == busy
    assert entries.get("session.force_spinning_stop") == stopped


def test_a_setting_of_the_user_counts_more_than_the_default(digits_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries: dict[str, str] = {}
    monkeypatch.setattr(ort.SessionOptions, "add_session_config_entry", lambda _, k, v: entries.update({k: v}))
    create_session(digits_onnx, SessionOptions(settings=(("session.intra_op.allow_spinning", "1"),)))
    assert entries["session.intra_op.allow_spinning"] == "1"


def test_a_session_keeps_no_copy_of_its_file(digits_onnx: Path) -> None:
    session = create_session(digits_onnx.read_bytes(), SessionOptions())
    assert session._model_bytes is None and session.get_inputs()

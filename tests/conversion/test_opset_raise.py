"""Raising the opset: only where the operators keep their meaning."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from onnxtool.conversion.opset import raise_opset
from onnxtool.model import io
from onnxtool.runtime.runner import OnnxRunner


def model_of(
    nodes: list[onnx.NodeProto], opset: int, initializers: list[onnx.TensorProto] | None = None
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", None] if not initializers else [None])],
        initializers or [],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=7)


X = np.array([[1.0, -2.0, 3.0], [0.5, 0.0, -4.0]], np.float32)


def test_widened_operators_rise_and_compute_the_same() -> None:
    proto = model_of([helper.make_node("Mul", ["x", "x"], ["h"]), helper.make_node("Identity", ["h"], ["y"])], 9)
    raised = raise_opset(io.from_proto(proto), 21)
    assert raised.opset_imports[""] == 21
    assert raised.ir_version >= 10
    onnx.checker.check_model(io.to_proto(raised), full_check=True)
    np.testing.assert_array_equal(OnnxRunner.open(raised).run({"x": X})["y"], X * X)


def test_an_operator_that_changed_its_meaning_keeps_its_opset_and_says_so() -> None:
    # Before opset 13, Softmax flattens to two dims; ReduceSum has its axes as an attribute.
    proto = model_of([helper.make_node("ReduceSum", ["x"], ["y"], axes=[1], keepdims=1)], 11)
    notes: list[str] = []
    model = io.from_proto(proto)
    raised = raise_opset(model, 21, notes)
    assert raised is model
    assert raised.opset_imports[""] == 11
    assert notes and "opset 11, not 21" in notes[0]


def test_only_other_domains_need_no_adapter() -> None:
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.0], scale=[2.0])
    proto = model_of([node], 1)
    raised = raise_opset(io.from_proto(proto), 20)
    assert raised.opset_imports[""] == 20
    np.testing.assert_array_equal(OnnxRunner.open(raised).run({"x": X})["y"], 2 * X)


def test_from_18_on_the_adapters_are_used() -> None:
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [-1])
    proto = model_of([helper.make_node("Reshape", ["x", "shape"], ["y"])], 18, [shape])
    raised = raise_opset(io.from_proto(proto), 21)
    assert raised.opset_imports[""] == 21
    np.testing.assert_array_equal(OnnxRunner.open(raised).run({"x": X})["y"], X.reshape(-1))


def test_a_newer_model_is_left_alone() -> None:
    model = io.from_proto(model_of([helper.make_node("Relu", ["x"], ["y"])], 20))
    assert raise_opset(model, 18) is model

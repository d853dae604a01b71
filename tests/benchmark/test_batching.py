"""When requests may be joined into one run."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.benchmark.batching import choose_batch
from onnxtool.runtime.runner import OnnxRunner


@pytest.fixture
def runner(relu_proto: onnx.ModelProto) -> OnnxRunner:
    return OnnxRunner.open(relu_proto)


def test_rows_that_depend_on_each_other_are_never_joined() -> None:
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"], axis=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    choice = choose_batch(OnnxRunner.open(model), model, concurrency=1, seconds=0.01)
    assert choice.size == 1 and "mixes the rows" in choice.reason


def test_a_fixed_batch_is_never_joined(relu_proto: onnx.ModelProto) -> None:
    relu_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    choice = choose_batch(OnnxRunner.open(relu_proto), relu_proto, concurrency=1)
    assert choice.size == 1 and "fixed" in choice.reason


def test_a_choice_is_one_of_what_was_measured(runner: OnnxRunner, relu_proto: onnx.ModelProto) -> None:
    choice = choose_batch(runner, relu_proto, concurrency=1, seconds=0.05)
    assert choice.gain is not None
    assert (choice.size > 1) == (choice.gain >= 1.2)
    assert ("certified" in choice.reason) == (choice.size > 1)

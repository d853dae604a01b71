"""Large lists in attributes go past onnx_ir's conversion, and nothing is different for it."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnxtool.model import io
from onnxtool.model.io import set_aside


@pytest.fixture
def forest() -> onnx.ModelProto:
    """Two nodes with short and long lists of each kind."""
    nodes = [
        helper.make_node("Made", ["x"], ["y"], domain="here", numbers=list(range(20_000)), few=[1, 2], text=["a"] * 3),
        helper.make_node("Made", ["y"], ["z"], domain="here", values=[0.1 * i for i in range(10_000)], scale=[0.5]),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None]) for n in "xz"]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("here", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=opsets)


def test_the_same_model_comes_out(forest: onnx.ModelProto) -> None:
    before = forest.SerializeToString(deterministic=True)
    model = io.from_proto(forest)
    assert forest.SerializeToString(deterministic=True) == before
    assert io.to_proto(model) == ir.to_proto(ir.from_proto(forest))
    assert io.to_proto(model.clone()) == io.to_proto(model)


def test_lists_are_what_onnx_ir_gives(forest: onnx.ModelProto) -> None:
    first, second = io.from_proto(forest).graph
    assert first.attributes["numbers"].as_ints() == tuple(range(20_000))
    assert not first.attributes["numbers"].is_ref()
    plain = list(ir.from_proto(forest).graph)
    assert second.attributes["values"].as_floats() == plain[1].attributes["values"].as_floats()
    assert second.attributes["values"] == plain[1].attributes["values"]


def test_only_long_lists_are_set_aside(forest: onnx.ModelProto) -> None:
    with set_aside.large_lists(forest) as found:
        assert [(place, a.name) for place, a in found] == [(0, "numbers"), (1, "values")]

"""Graphs that are none."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from onnx import helper

from onnxtool.errors import InputError
from onnxtool.model.safety.structure import verify_structure

Change = Callable[[onnx.ModelProto], object]


def function(name: str, calls: str) -> onnx.FunctionProto:
    return helper.make_function(
        "local", name, ["a"], ["c"], [helper.make_node(calls, ["a"], ["c"], domain="local")], []
    )


def subgraph(reads: str) -> onnx.NodeProto:
    branch = helper.make_graph(
        [helper.make_node("Neg", [reads], ["n"])], "branch", [], [helper.make_tensor_value_info("n", 1, None)]
    )
    return helper.make_node("If", ["c"], ["z"], name="if", then_branch=branch, else_branch=branch)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: m.graph.node[1].input.__setitem__(0, "gone"), "node 'Relu' of graph 'relu' reads 'gone'"),
        (lambda m: m.graph.node.reverse(), "reads 'h', which nothing before it makes"),
        (lambda m: m.graph.node[0].output.__setitem__(0, "other"), "reads 'h'"),
        (lambda m: m.graph.node[1].output.__setitem__(0, "h"), "makes 'h' a second time"),
        (lambda m: setattr(m.graph.node[1], "op_type", ""), "has no operator"),
        (lambda m: m.graph.node[1].ClearField("input"), "node 'Relu' of graph 'relu' has 0 inputs; Relu takes 1 to 1"),
        (lambda m: m.graph.node[1].input.append("x"), "has 2 inputs; Relu takes 1 to 1"),
        (lambda m: setattr(m.graph.node[1], "op_type", "Concat"), "lacks the attribute 'axis'"),
        (lambda m: setattr(m.graph.output[0], "name", "gone"), "output 'gone' of graph 'relu' is made by nothing"),
        (
            lambda m: m.graph.initializer.append(m.graph.initializer[0]),
            "initializer 'w' of graph 'relu' is there twice",
        ),
        (lambda m: m.graph.node.append(subgraph("gone")), "graph 'branch' reads 'gone'"),
        (lambda m: m.functions.append(function("F", "F")), "function 'F' calls itself"),
        (lambda m: m.functions.extend([function("F", "G"), function("G", "F")]), "calls itself"),
    ],
)
def test_refuses_what_is_no_graph(relu_proto: onnx.ModelProto, damage: Change, message: str) -> None:
    if "gone" in message and "branch" in message:
        relu_proto.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    damage(relu_proto)
    with pytest.raises(InputError, match=message.replace("'", ".")):
        verify_structure(relu_proto)


def test_accepts_captures_optional_inputs_and_chains_of_functions(relu_proto: onnx.ModelProto) -> None:
    relu_proto.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    relu_proto.graph.node.append(subgraph("h"))
    relu_proto.graph.node.append(helper.make_node("Clip", ["h", "", "w"], ["k"]))
    relu_proto.functions.extend(function(f"F{i}", f"F{i + 1}") for i in range(3000))
    verify_structure(relu_proto)

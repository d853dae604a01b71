"""Graphs that are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

import onnxtool
from onnxtool.errors import InputError
from onnxtool.model import io
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
        (lambda m: m.graph.node[1].output.__setitem__(0, "h"), "'h' is produced twice"),
        (lambda m: setattr(m.graph.node[1], "op_type", ""), "has no operator"),
        (lambda m: m.graph.node[1].ClearField("input"), "node 'Relu' of graph 'relu' has 0 inputs; Relu takes 1 to 1"),
        (lambda m: m.graph.node[1].input.append("x"), "has 2 inputs; Relu takes 1 to 1"),
        (lambda m: setattr(m.graph.node[1], "op_type", "Concat"), "lacks the attribute 'axis'"),
        (lambda m: m.graph.node[1].attribute.add(name="alpha", f=1.0), "its attribute 'alpha' has no type"),
        (
            lambda m: m.graph.node.add(op_type="Own", domain="own").attribute.add(name="a", i=1),
            "its attribute 'a' has no type",
        ),
        (
            lambda m: setattr(m.graph.output[0], "name", "gone"),
            "output 'gone' of graph 'relu' is not produced by any node",
        ),
        (lambda m: m.graph.input.add(), "input 1 of graph 'relu' has no name"),
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


def constant(**attributes: object) -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


@pytest.mark.parametrize("attributes", [{"value_float": 1.0}, {"value_ints": [1, 2]}, {"value_string": "a"}])
def test_a_constant_holds_one_thing(attributes: dict[str, object]) -> None:
    verify_structure(constant(**attributes))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "has 0 attributes"),
        ({"value_float": 1.0, "value_int": 1}, "has 2 attributes"),
        ({"value_float": 1}, "cannot hold a Constant's value|has the wrong type"),
        ({"other": 1.0}, "cannot hold a Constant's value"),
    ],
)
def test_a_constant_of_none_or_two_things_is_none(attributes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        verify_structure(constant(**attributes))


def test_operators_are_held_against_the_opset_that_is_imported(relu_proto: onnx.ModelProto) -> None:
    # Since opset 13 the axes of ReduceSum are an input.
    node = helper.make_node("ReduceSum", ["x", "h"], ["s"])
    relu_proto.graph.node.append(node)
    verify_structure(relu_proto)
    relu_proto.opset_import[0].version = 11
    with pytest.raises(InputError, match="ReduceSum takes 1 to 1"):
        verify_structure(relu_proto)
    relu_proto.opset_import[0].domain = node.domain = "ai.onnx"
    with pytest.raises(InputError, match="ReduceSum takes 1 to 1"):
        verify_structure(relu_proto)
    node.domain = "own"
    relu_proto.graph.node[2].domain = "own"
    verify_structure(relu_proto)  # an operator that nobody knows


@pytest.mark.parametrize("place", ["input", "output"])
def test_what_is_there_twice_is_named(relu_proto: onnx.ModelProto, place: str) -> None:
    values = getattr(relu_proto.graph, place)
    values.insert(0, helper.make_tensor_value_info("once", 1, None))
    if place == "output":
        relu_proto.graph.node.append(helper.make_node("Neg", ["x"], ["once"]))
    values.append(values[1])
    name = values[1].name
    with pytest.raises(InputError, match=f"{place} '{name}' of graph 'relu' is there twice"):
        verify_structure(relu_proto)


def test_functions_that_share_one_are_no_circle(relu_proto: onnx.ModelProto) -> None:
    relu_proto.functions.extend([function("A", "C"), function("B", "C"), function("C", "Outside")])
    verify_structure(relu_proto)


def test_a_node_on_a_device_without_a_name_is_refused(relu_proto: onnx.ModelProto) -> None:
    relu_proto.graph.node[0].device_configurations.add(configuration_id="gpu")
    verify_structure(relu_proto)
    relu_proto.graph.node[0].device_configurations.add()
    with pytest.raises(InputError, match="device without a name"):
        verify_structure(relu_proto)


def test_an_input_that_an_operator_needs_is_not_left_out(tmp_path: Path) -> None:
    """ONNX Runtime's Max of integers ends the process otherwise."""
    text = """<ir_version: 9, opset_import: ["" : 13]> g (int64[2] x, float[3] z) => (int64[2] y, float[3] c)
        { y = Max(x) c = Clip(z) }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[1].input.extend(["", ""])
    onnx.save(model, tmp_path / "m.onnx")
    onnxtool.run(tmp_path / "m.onnx")
    model.graph.node[0].input.append("")
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(InputError, match="node 'Max' leaves out input 1, which Max needs"):
        onnxtool.run(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", [1 << 40, -1, 99])
def test_a_type_that_is_none_is_refused(kind: int, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Cast<to = 1>(x) }'
    )
    onnx.save(proto, tmp_path / "m.onnx")
    io.load(tmp_path / "m.onnx")
    proto.graph.node[0].attribute[0].i = kind
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(InputError, match=f"node 'Cast': {kind} in 'to' is no data type"):
        io.load(tmp_path / "m.onnx")

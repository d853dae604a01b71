"""Which nodes draw random numbers, in all places where nodes stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from onnxtool.model.model_view import ModelView
from onnxtool.model.randomness import random_operators

NOISE = helper.make_node("RandomNormalLike", ["x"], ["r"])
ADD = helper.make_node("Add", ["x", "r"], ["y"])


def model(*nodes: onnx.NodeProto, functions: tuple[onnx.FunctionProto, ...] = ()) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, 1, ["n", 4]) for n in "xy")
    constants = {"ratio": np.float32(0.5), "yes": np.bool_(True), "no": np.bool_(False)}
    weights = [numpy_helper.from_array(np.array(v), n) for n, v in constants.items()]
    mode = helper.make_tensor_value_info("mode", 9, [])
    graph = helper.make_graph(list(nodes), "g", [x, mode], [y], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)


def branches(inner: list[onnx.NodeProto]) -> onnx.NodeProto:
    out = [helper.make_tensor_value_info("b", 1, ["n", 4])]
    plain = helper.make_graph([helper.make_node("Identity", ["x"], ["b"])], "plain", [], out)
    return helper.make_node(
        "If", ["mode"], ["y"], then_branch=plain, else_branch=helper.make_graph(inner, "e", [], out)
    )


FUNCTION = helper.make_function(
    "own", "Noise", ["x"], ["y"], [NOISE, ADD], [helper.make_opsetid("", 17)]
)  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "functions", "found"),
    [
        ([NOISE, ADD], (), ("RandomNormalLike",)),
        ([helper.make_node("Bernoulli", ["x"], ["y"])], (), ("Bernoulli",)),
        ([branches([NOISE, helper.make_node("Add", ["x", "r"], ["b"])])], (), ("RandomNormalLike",)),
        ([helper.make_node("Noise", ["x"], ["y"], domain="own")], (FUNCTION,), ("RandomNormalLike",)),
        ([helper.make_node("Dropout", ["x", "ratio", "yes"], ["y"])], (), ("Dropout",)),
        ([helper.make_node("Dropout", ["x", "ratio", "mode"], ["y"])], (), ("Dropout",)),
        ([helper.make_node("Dropout", ["x", "ratio", "no"], ["y"])], (), ()),
        ([helper.make_node("Dropout", ["x", "ratio", ""], ["y"])], (), ()),
        ([helper.make_node("Dropout", ["x"], ["y"])], (), ()),
        ([helper.make_node("Bernoulli", ["x"], ["y"], domain="own")], (), ()),
    ],
)
def test_what_draws_is_found_wherever_it_stands(
    nodes: list[onnx.NodeProto], functions: tuple[onnx.FunctionProto, ...], found: tuple[str, ...]
) -> None:
    proto = model(*nodes, functions=functions)
    assert random_operators(ir.from_proto(proto)) == found
    view = ModelView(Path("m.onnx"), proto)
    assert tuple(n.op_type for n in view.random_nodes) == found

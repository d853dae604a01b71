"""What passes take nodes out with."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.registry import describe_passes
from tests.optimization.conftest import model_from


def _model(text: str) -> tuple[ir.Model, list[ir.Node], PassContext]:
    model = ir.from_proto(model_from(f"g (float[2] x) => (float[2] y) {{ {text} }}"))
    return model, list(model.graph), PassContext(model)


def test_a_bypassed_node_is_gone_and_its_readers_read_the_value() -> None:
    model, (first, second, last), context = _model("a = Neg(x) b = Neg(a) y = Relu(b)")

    assert context.bypass(second, first.inputs[0])
    assert second.graph is None
    assert last.inputs[0] is model.graph.inputs[0]
    assert [n.op_type for n in model.graph] == ["Neg", "Relu"]


def test_a_bypassed_graph_output_keeps_its_name() -> None:
    model, (first, second), context = _model("a = Neg(x) y = Identity(a)")

    assert context.bypass(second, first.outputs[0])
    assert [n.op_type for n in model.graph] == ["Neg"]
    assert [v.name for v in model.graph.outputs] == ["y"] == [v.name for v in first.outputs]


def test_a_node_between_an_input_and_an_output_stays() -> None:
    model, (only,), context = _model("y = Identity(x)")

    assert not context.bypass(only, only.inputs[0])
    assert list(model.graph) == [only]


def test_a_node_whose_other_output_is_read_stays() -> None:
    model, (split, last), context = _model("a, b = Split <axis = 0, num_outputs = 2> (x) y = Concat <axis = 0> (a, b)")

    assert context.bypass(split, model.graph.inputs[0])
    assert split.graph is model.graph
    assert list(last.inputs) == [model.graph.inputs[0], split.outputs[1]]


@pytest.mark.parametrize("info", [p for p in describe_passes() if p.origin == "onnxtool"], ids=lambda info: info.name)
def test_a_pass_opens_with_its_algebra(info) -> None:
    assert " -> " in info.description

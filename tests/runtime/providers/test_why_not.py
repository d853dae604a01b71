"""Why a node was not taken: it is offered alone and in other forms. The provider is stood in for."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from onnxtool.runtime.providers import why_not as module
from onnxtool.runtime.providers.why_not import why_not
from onnxtool.runtime.session.session import SessionOptions

CPU = "CPUExecutionProvider"


class Session:
    """Tells that the CPU took the nodes that `refuses` says so of."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model

    def get_provider_graph_assignment_info(self) -> list[Any]:
        names = [n for n in self.model.graph.node if self.refuses(self.model, n)]
        part = type("Part", (), {"ep_name": CPU, "get_nodes": lambda _: names})()
        return [part]

    refuses: Any = None


def asked(
    monkeypatch: pytest.MonkeyPatch, refuses: Any, kind: str = "float", shape: Any = (2, 3), declared: Any = ("n", 3)
) -> tuple[str, bool]:
    number = getattr(TensorProto, {"float": "FLOAT", "double": "DOUBLE", "int64": "INT64"}[kind])
    node = helper.make_node("Neg", ["x"], ["y"], "neg")
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", number, declared)],
        [helper.make_tensor_value_info("y", number, declared)],
    )
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    told = [{kind: list(shape)}]
    event = {
        "cat": "Node",
        "name": "neg_kernel_time",
        "args": {"op_name": "Neg", "input_type_shape": told, "output_type_shape": told},
    }
    monkeypatch.setattr(Session, "refuses", staticmethod(refuses))
    monkeypatch.setattr(module, "create_session", lambda model, _: Session(model))
    return why_not(source, [node], [event], SessionOptions("npu"))["neg"]


def fixed(model: onnx.ModelProto) -> bool:
    return all(d.HasField("dim_value") for d in model.graph.input[0].type.tensor_type.shape.dim)


def test_an_operator_that_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, fallback = asked(monkeypatch, lambda *_: True)
    assert (reason, fallback) == ("'npu' does not run Neg as it stands here (float)", True)


def test_a_type_that_it_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(model: onnx.ModelProto, _: object) -> bool:
        return model.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE

    assert asked(monkeypatch, refuses, "double") == ("'npu' takes Neg in float, not in double", True)


def test_sizes_that_are_not_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, fallback = asked(monkeypatch, lambda model, _: not fixed(model))
    assert "fixed sizes only" in reason
    assert fallback


def test_a_node_that_it_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, fallback = asked(monkeypatch, lambda *_: False, declared=(2, 3))
    assert "alone, but not here" in reason
    assert fallback


def test_arithmetic_on_sizes_is_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    reason, fallback = asked(monkeypatch, lambda *_: True, "int64", (3,), (3,))
    assert "arithmetic on sizes" in reason
    assert not fallback
    assert asked(monkeypatch, lambda *_: True, "int64", (2, 3), (2, 3))[1]


def test_a_node_that_never_ran_is_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node("Neg", ["x"], ["y"], "neg")
    graph = helper.make_graph([node], "g", [], [])
    assert not why_not(helper.make_model(graph), [node], [], SessionOptions("npu"))["neg"][1]

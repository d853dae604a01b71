"""Every node of a file is accounted for. The CPU alone is needed; a compiling provider is stood in for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.report.measurement.placement import Placement
from onnxtool.runtime.providers import placement as module
from onnxtool.runtime.providers.placement import placement
from onnxtool.runtime.session.session import SessionOptions

CPU = "CPUExecutionProvider"
FEEDS = {"x": np.ones((2, 4), np.float32)}


def saved(tmp_path: Path, nodes: list[Any], output: str = "y") -> Path:
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [weight],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def states(found: Placement) -> dict[str, tuple[str, str]]:
    return {n.node: (n.provider, n.state) for n in found.nodes}


def test_nodes_that_run_are_fused_or_folded_are_told_apart(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Exp", ["w"], ["wt"], "exponential"),
        helper.make_node("Gemm", ["x", "wt"], ["g"], "product"),
        helper.make_node("Relu", ["g"], ["r"], "relu"),
        helper.make_node("Neg", ["r"], ["y"]),
    ]
    found = placement(saved(tmp_path, nodes), FEEDS, SessionOptions(threads=1))
    assert states(found) == {
        "exponential": ("", "folded"),
        "product": (CPU, "runs"),
        "relu": (CPU, "fused"),
        "y": (CPU, "runs"),
    }
    (share,) = found.shares
    assert (share.provider, share.flops_share) == (CPU, 1.0)
    assert share.time_share == pytest.approx(1.0)
    assert not found.fallbacks
    assert (found.copies, found.crossings) == (0, 0)


def test_nodes_of_branches_are_counted_whether_they_run_or_not(tmp_path: Path) -> None:
    branches = [
        helper.make_graph(
            [helper.make_node(op, ["x"], [f"{op}_out"], op.lower())],
            op,
            [],
            [helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, None)],
        )
        for op in ("Relu", "Neg")
    ]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], "sum", keepdims=0),
        helper.make_node("Cast", ["sum"], ["truth"], "cast", to=TensorProto.BOOL),
        helper.make_node("If", ["truth"], ["y"], "if", then_branch=branches[0], else_branch=branches[1]),
    ]
    found = placement(saved(tmp_path, nodes), FEEDS, SessionOptions(threads=1))
    assert {n.node for n in found.nodes} == {"sum", "cast", "if", "relu", "neg"}
    assert all(n.provider == CPU for n in found.nodes)


def test_nodes_with_one_name_are_told_apart(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a"], "n"), helper.make_node("Abs", ["a"], ["y"], "n")]
    found = placement(saved(tmp_path, nodes), FEEDS, SessionOptions(threads=1))
    assert [n.operator for n in found.nodes] == ["Neg", "Abs"]
    assert all(n.state == "runs" for n in found.nodes)


def event(name: str, operator: str, provider: str, micros: float = 10) -> dict[str, Any]:
    return {
        "cat": "Node",
        "name": f"{name}_kernel_time",
        "dur": micros,
        "args": {"op_name": operator, "provider": provider},
    }


RUN = {"cat": "Session", "name": "model_run", "dur": 1}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that compiled 'a' and 'b' into one kernel, while 'c' fell back and 'd' was replaced on the way."""
    one_run = [
        event("Npu_1_0", "Npu_1", "NpuExecutionProvider", 30),
        event("Memcpy", "MemcpyToHost", CPU, 5),
        event("c_token_7", "Neg", CPU, 10),
    ]
    one_run[0]["args"]["op_name"] = "NpuExecutionProvider_1"
    taken = {"a": "NpuExecutionProvider", "b": "NpuExecutionProvider", "c": CPU}
    ran = module._Ran([*one_run, RUN, *one_run, RUN], taken, {"a", "b"}, None)
    monkeypatch.setattr(module, "_run", lambda *_: ran)
    monkeypatch.setattr(module, "requested_providers", lambda _: ("NpuExecutionProvider",))
    monkeypatch.setattr(module, "why_not", lambda _s, nodes, *_: {n.name: ("not taken", True) for n in nodes})


@pytest.mark.usefixtures("compiled")
def test_what_a_provider_compiled_and_what_fell_back(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], "a"),
        helper.make_node("Abs", ["t"], ["u"], "b"),
        helper.make_node("Neg", ["u"], ["v"], "c"),
        helper.make_node("Sqrt", ["v"], ["y"], "d"),
    ]
    found = placement(saved(tmp_path, nodes), FEEDS, SessionOptions("npu"))
    npu = "NpuExecutionProvider"
    assert states(found) == {"a": (npu, "compiled"), "b": (npu, "compiled"), "c": (CPU, "runs"), "d": (CPU, "fused")}
    assert [n.node for n in found.fallbacks] == ["c", "d"]
    shares = {s.provider: s for s in found.shares}
    assert (shares[npu].nodes, shares[npu].time_share, shares[npu].flops_share) == (2, 0.75, 1.0)
    assert shares[CPU].seconds == pytest.approx(10e-6)
    assert (found.copies, found.copy_seconds) == (1, pytest.approx(5e-6))
    assert found.crossings == 1

"""The profiler's events as times of nodes and operators."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxtool.errors import UsageError
from onnxtool.report.measurement.profile import Peaks
from onnxtool.runtime.timing.node_costs import NodeCost
from onnxtool.runtime.timing.profile import profile, summarise_events


def event(name: str, operator: str, microseconds: int, category: str = "Node") -> dict[str, object]:
    return {"cat": category, "name": f"{name}_kernel_time", "dur": microseconds, "args": {"op_name": operator}}


def test_medians_shares_and_operators() -> None:
    events = [event("session", "", 10**6, "Session")]
    for run in range(13):
        slow = 1000 if run < 3 else 30  # the first runs are warm-up
        events += [event("a", "Conv", slow), event("b", "Conv", 50), event("fused c", "Gemm", 20)]
    costs = {
        ("a", "Conv"): NodeCost(("conv",), 10**6, 2 * 10**6, 3000),
        ("fused c", "Gemm"): NodeCost(("matmul", "add"), 5, 10, 40),
    }
    found = summarise_events("m.onnx", events, costs, Peaks(gflops=100, gbs=1))
    assert found.runs == 10
    assert [(n.node, round(n.seconds * 1e6)) for n in found.nodes] == [("b", 50), ("a", 30), ("fused c", 20)]
    assert [(o.operator, o.nodes, round(o.share, 3)) for o in found.operators] == [("Conv", 2, 0.8), ("Gemm", 1, 0.2)]
    assert found.nodes[1].gflops == pytest.approx(2 * 1e6 / 30e-6 / 1e9)
    assert found.nodes[1].gbs == pytest.approx(3000 / 30e-6 / 1e9)
    assert (found.nodes[2].macs, found.nodes[2].originals) == (5, ("matmul", "add"))
    # 2 million operations take 20 us at the peak, 3000 bytes 3 us; 10 operations next to nothing, 40 bytes 0.04 us.
    assert [(n.bound, n.attained) for n in found.nodes] == [
        ("", None),
        ("compute", pytest.approx(20 / 30)),
        ("memory", pytest.approx(0.04 / 20)),
    ]
    assert (found.operators[0].flops, found.operators[0].bytes) == (2 * 10**6, 3000)


def test_a_node_in_a_loop_counts_with_all_its_turns() -> None:
    events = []
    for _ in range(6):
        events += [event("loop", "Loop", 100), *(event("body", "Add", 10) for _ in range(4))]
    found = summarise_events("m.onnx", events, {("body", "Add"): NodeCost((), None, 7, 8)})
    assert {n.node: (n.flops, n.bytes) for n in found.nodes} == {"loop": (None, None), "body": (28, 32)}
    assert {n.node: round(n.seconds * 1e6) for n in found.nodes} == {"loop": 100, "body": 40}


def test_what_runs_inside_a_node_is_not_its_own_time() -> None:
    events = []
    for run in range(5):
        start = 1000 * run
        holder = {**event("choice", "If", 100), "ts": start}
        events += [{**event("inner", "Add", 30), "ts": start + 10}, {**event("inner2", "Mul", 40), "ts": start + 50}]
        events += [holder, {**event("after", "Add", 20), "ts": start + 100}]
    found = summarise_events("m.onnx", events, {})
    assert {n.node: round(n.seconds * 1e6) for n in found.nodes} == {
        "choice": 30,
        "inner": 30,
        "inner2": 40,
        "after": 20,
    }


def test_nothing_to_tell() -> None:
    assert summarise_events("m.onnx", [], {}).nodes == ()


def test_real_model_and_trace(digits_onnx: Path, tmp_path: Path) -> None:
    feeds = {"image": np.zeros((2, 1, 8, 8), np.float32)}
    trace = tmp_path / "trace.json"
    found = profile(digits_onnx, feeds, runs=5, trace=trace)
    assert found.runs == 5
    assert sum(n.share for n in found.nodes) == pytest.approx(1)
    convolution = next(n for n in found.nodes if "node_conv2d_1" in n.originals)
    assert convolution.macs == 2 * 64 * 64 * 32 * 9
    assert convolution.flops == 2 * convolution.macs
    told = [e["args"] for e in json.loads(trace.read_text()) if "original_nodes" in e.get("args", {})]
    assert any(a["original_nodes"] == list(convolution.originals) and a["flops"] == convolution.flops for a in told)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["trace.json"]


def test_trace_that_cannot_be_written(relu_proto: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(relu_proto, tmp_path / "m.onnx")
    feeds = {"x": np.zeros((1, 3), np.float32)}
    with pytest.raises(UsageError, match="--trace"):
        profile(tmp_path / "m.onnx", feeds, runs=1, trace=tmp_path / "no" / "t.json")

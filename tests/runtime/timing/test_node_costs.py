"""The runtime's nodes: what they were in the file, and what they compute and move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.report.measurement.profile import NodeTime
from onnxtool.runtime.session.session import OptimizationLevel, SessionOptions
from onnxtool.runtime.timing.profile import measure_peaks, profile


def weight(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(np.random.default_rng(0).standard_normal(shape, np.float32), name)


def written(
    path: Path, nodes: list[onnx.NodeProto], weights: list[TensorProto], dims: list[object], opsets: dict[str, int]
) -> Path:
    graph = helper.make_graph(
        nodes,
        "costs",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


def ran(path: Path, *shape: int, level: OptimizationLevel = "all") -> dict[tuple[str, ...], NodeTime]:
    feeds = {"x": np.random.default_rng(1).standard_normal(shape, np.float32)}
    found = profile(path, feeds, SessionOptions(threads=1, optimization=level), runs=2)
    return {n.originals: n for n in found.nodes}


def test_a_fused_convolution_does_the_work_of_three(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "s"], ["m"], "scale"),
        helper.make_node("Relu", ["m"], ["y"], "relu"),
    ]
    path = written(
        tmp_path / "m.onnx", nodes, [weight("w", 16, 8, 3, 3), weight("s", 1, 16, 1, 1)], [1, 8, 6, 6], {"": 17}
    )
    found = ran(path, 1, 8, 6, 6)
    own = [k for k in found if k]
    assert [set(k) for k in own] == [{"conv", "scale", "relu"}]
    assert own[0][0] == "conv"  # the one that computes most stands first
    assert found[own[0]].macs == 16 * 8 * 9 * 36
    assert found[own[0]].flops == 2 * 16 * 8 * 9 * 36


def test_every_node_once_without_fusions(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("Add", ["m", "b"], ["a"], "add"),
        helper.make_node("Transpose", ["a"], ["t"]),
        helper.make_node("Softmax", ["t"], ["y"], "softmax"),
    ]
    path = written(tmp_path / "m.onnx", nodes, [weight("w", 8, 5), weight("b", 5)], ["n", 8], {"": 17})
    found = ran(path, 3, 8, level="off")
    # Unnamed nodes are called after their output; every input and output is moved once.
    assert {k: (n.flops, n.bytes) for k, n in found.items()} == {
        ("matmul",): (2 * 3 * 8 * 5, 4 * (24 + 40 + 15)),
        ("add",): (15, 4 * (15 + 5 + 15)),
        ("t",): (None, 4 * 30),
        ("softmax",): (75, 4 * 30),
    }
    assert found[("t",)].intensity is None
    assert found[("add",)].intensity == pytest.approx(15 / 140)


def test_layout_changes_of_the_runtime_have_no_original(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Softmax", ["c"], ["y"], "softmax"),
    ]
    path = written(tmp_path / "m.onnx", nodes, [weight("w", 16, 16, 3, 3)], [1, 16, 6, 6], {"": 17})
    feeds = {"x": np.zeros((1, 16, 6, 6), np.float32)}
    found = profile(path, feeds, SessionOptions(threads=1), runs=2)
    assert sorted(o for n in found.nodes for o in n.originals) == ["conv", "softmax"]
    assert all(not n.originals for n in found.nodes if n.operator in ("ReorderInput", "ReorderOutput"))


def test_a_name_that_begins_like_another_is_not_mistaken(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "linear"),
        helper.make_node("MatMul", ["a", "w"], ["b"], "linear_1"),
        helper.make_node("Transpose", ["b"], ["y"], "linear_1_turned"),
    ]
    path = written(tmp_path / "m.onnx", nodes, [weight("w", 4, 4)], [2, 4], {"": 17})
    assert set(ran(path, 2, 4, level="off")) == {("linear",), ("linear_1",), ("linear_1_turned",)}


@pytest.mark.parametrize(
    ("operator", "attributes", "shapes", "macs"),
    [
        ("FusedMatMul", {"transB": 1}, {"w": (7, 8)}, 3 * 8 * 7),
        ("FusedGemm", {"activation": "Relu"}, {"w": (8, 7), "b": (7,)}, 3 * 8 * 7),
        ("MatMulNBits", {"K": 8, "N": 7, "bits": 4, "block_size": 16}, {}, 3 * 8 * 7),
    ],
)
def test_operators_of_the_runtime_are_counted(
    operator: str, attributes: dict[str, object], shapes: dict[str, tuple[int, ...]], macs: int, tmp_path: Path
) -> None:
    weights = [weight(n, *s) for n, s in shapes.items()]
    if operator == "MatMulNBits":
        packed = np.random.default_rng(0).integers(0, 255, (7, 1, 8), np.uint8)
        weights = [numpy_helper.from_array(packed, "w"), weight("s", 7)]
    names = ["x", *(w.name for w in weights)]
    node = helper.make_node(operator, names, ["y"], "one", domain="com.microsoft", **attributes)
    path = written(tmp_path / "m.onnx", [node], weights, [3, 8], {"": 17, "com.microsoft": 1})
    found = ran(path, 3, 8, level="off")[("one",)]
    assert (found.macs, found.flops) == (macs, 2 * macs)


def test_attention_is_counted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Attention", ["x", "w", "b"], ["y"], "attend", domain="com.microsoft", num_heads=2)]
    path = written(
        tmp_path / "m.onnx", nodes, [weight("w", 8, 24), weight("b", 24)], [2, 5, 8], {"": 17, "com.microsoft": 1}
    )
    # Query, key and value out of a weight, the scores, and their product with the values.
    assert ran(path, 2, 5, 8)[("attend",)].macs == 2 * 5 * 8 * 24 + 2 * (2 * 5 * 5 * 8)


def test_nodes_of_a_loop_count_every_turn(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "state"], ["grown"], "inner"),
            helper.make_node("Identity", ["going"], ["still"], "same"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("grown", TensorProto.FLOAT, [2, 3]),
        ],
    )
    turns = numpy_helper.from_array(np.int64(5), "turns")
    nodes = [helper.make_node("Loop", ["turns", "", "x"], ["y"], "loop", body=body)]
    path = written(tmp_path / "m.onnx", nodes, [turns], [2, 3], {"": 17})
    assert ran(path, 2, 3, level="off")[("inner",)].flops == 5 * 6


def test_peaks_are_those_of_a_machine() -> None:
    peaks = measure_peaks(SessionOptions(threads=1))
    assert 0.1 < peaks.gflops < 1e5
    assert 0.1 < peaks.gbs < 1e4

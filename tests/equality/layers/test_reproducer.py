"""compare --bisect: the part that differs stands alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtool.equality.compare import compare
from onnxtool.errors import UsageError


def branchy(weight: float, *, fused: bool) -> onnx.ModelProto:
    """x -> Neg -> If(reads the result from outside) -> MatMul (+ Add, or as one Gemm) -> Relu."""

    def branch(name: str, operator: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(operator, ["n"], [name])], name, [], [out])

    w = np.full((4, 4), 0.5, np.float32)
    w[1, 2] = weight
    nodes = [
        helper.make_node("Neg", ["x"], ["n"], name="neg"),
        helper.make_node("If", ["c"], ["i"], name="if", then_branch=branch("t", "Abs"), else_branch=branch("e", "Exp")),
    ]
    if fused:
        nodes.append(helper.make_node("Gemm", ["i", "w", "b"], ["a"], name="gemm"))
    else:
        nodes.append(helper.make_node("MatMul", ["i", "w"], ["m"], name="matmul"))
        nodes.append(helper.make_node("Add", ["m", "b"], ["a"], name="add"))
    nodes.append(helper.make_node("Relu", ["a"], ["y"], name="relu"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]), helper.make_tensor_value_info("c", 9, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.ones(4, np.float32), "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("fused", [False, True])
def test_the_part_shows_the_difference_alone(fused: bool, tmp_path: Path) -> None:
    onnx.save(branchy(0.5, fused=False), tmp_path / "a.onnx")
    onnx.save(branchy(0.9, fused=fused), tmp_path / "b.onnx")
    report = compare(tmp_path / "a.onnx", tmp_path / "b.onnx", bisect=tmp_path / "part")
    assert report.layers is not None
    found = report.layers.reproducer
    assert found is not None
    assert found.differs
    assert (found.nodes_a, found.nodes_b) == ((2, 1) if fused else (1, 1))
    parts = [onnx.load(tmp_path / "part" / f"{name}.onnx") for name in "ab"]
    assert [n.op_type for n in parts[1].graph.node] == (["Gemm"] if fused else ["MatMul"])
    inputs = dict(np.load(tmp_path / "part" / "inputs.npz"))
    assert list(inputs) == ["i"]
    results = [ort.InferenceSession(p.SerializeToString()).run(None, inputs)[0] for p in parts]
    assert not np.allclose(*results)
    again = compare(tmp_path / "part" / "a.onnx", tmp_path / "part" / "b.onnx", data=tmp_path / "part" / "inputs.npz")
    assert not again.ok


def test_nodes_that_capture_tensors_get_them_as_inputs(tmp_path: Path) -> None:
    onnx.save(branchy(0.5, fused=False), tmp_path / "a.onnx")
    other = branchy(0.5, fused=False)
    other.graph.node[1].attribute[0].g.node[0].op_type = "Floor"
    other.graph.node[1].attribute[1].g.node[0].op_type = "Floor"
    onnx.save(other, tmp_path / "b.onnx")
    report = compare(tmp_path / "a.onnx", tmp_path / "b.onnx", bisect=tmp_path / "part")
    assert report.layers is not None
    found = report.layers.reproducer
    assert found is not None
    assert found.differs
    assert sorted(np.load(tmp_path / "part" / "inputs.npz")) == ["c", "n"]


def test_equal_models_leave_nothing(digits_onnx: Path, tmp_path: Path) -> None:
    report = compare(digits_onnx, digits_onnx, bisect=tmp_path / "part")
    assert report.layers is not None
    assert report.layers.reproducer is None
    assert not (tmp_path / "part").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    onnx.save(branchy(0.5, fused=False), tmp_path / "a.onnx")
    onnx.save(branchy(0.9, fused=False), tmp_path / "b.onnx")
    with pytest.raises(UsageError, match="is a file"):
        compare(tmp_path / "a.onnx", tmp_path / "b.onnx", bisect=tmp_path / "a.onnx")

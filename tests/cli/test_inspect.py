"""The inspect command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import onnx
from onnx import TensorProto, helper

Command = Callable[..., CompletedProcess[str]]


def test_anatomy_in_80_columns(onnxtool: Command, digits_onnx: Path) -> None:
    done = onnxtool("inspect", digits_onnx, env={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    for text in ("image: float32[batch, 1, 8, 8]", "BatchNormalization", "head.1.weight", "122 k", "MACs"):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_nodes_and_json(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    done = onnxtool("inspect", digits_onnx, "--nodes", "--json", tmp_path / "r.json")
    assert "node_conv2d" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["schema"] == "onnxtool/inspect/1"
    assert len(report["nodes"]) == report["node_count"] == 37


def test_shape_for_an_unknown_input_exits_2(onnxtool: Command, digits_onnx: Path) -> None:
    done = onnxtool("inspect", digits_onnx, "--input-shape", "picture:1,1,8,8")
    assert done.returncode == 2
    assert "picture" in done.stderr


def test_compute_that_cannot_be_counted_is_unknown_and_not_zero(onnxtool: Command, tmp_path: Path) -> None:
    # The rank of what a function of another domain gives is not known, so neither is the work of the product.
    nodes = [
        helper.make_node("Mystery", ["x"], ["h"], domain="of.nobody"),
        helper.make_node("MatMul", ["h", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("w", TensorProto.FLOAT, [4, 4], [0.0] * 16)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("of.nobody", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
    done = onnxtool("inspect", tmp_path / "m.onnx")
    assert "unknown: the shapes of 1 nodes are not known" in done.stdout and "0 MACs" not in done.stdout

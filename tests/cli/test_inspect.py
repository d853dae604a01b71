"""The inspect command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

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

"""compare --layers, --golden, --record, --tolerance on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import onnx
import pytest
from onnx import numpy_helper

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def damaged(digits_onnx: Path, tmp_path: Path) -> Path:
    """The digits model with one wrong element in its second convolution."""
    model = onnx.load(digits_onnx)
    tensor = next(t for t in model.graph.initializer if t.name == "features.1.0.weight")
    values = numpy_helper.to_array(tensor).copy()
    values[0, 0, 0, 0] += 1
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, tmp_path / "damaged.onnx")
    return tmp_path / "damaged.onnx"


def test_layers_names_the_node_in_80_columns(
    onnxtool: Command, digits_onnx: Path, damaged: Path, tmp_path: Path
) -> None:
    out, summary = tmp_path / "r.json", tmp_path / "r.md"
    files = ("--json", out, "--markdown", summary)
    done = onnxtool("compare", digits_onnx, damaged, "--layers", *files, env={"COLUMNS": "80"})
    assert done.returncode == 1, done.stderr
    assert "first wrong tensor: conv2d_1" in done.stdout
    assert "node_conv2d_1" in done.stdout
    report = json.loads(out.read_text())
    assert report["layers"]["culprit"]["suspects"][0]["node"] == "node_conv2d_1"
    told = summary.read_text()
    assert "**first wrong tensor:** conv2d\\_1" in told
    assert re.search(r"Conv node\\_conv2d\\_1 .*, which reads changed features\.1\.0\.weight", told)
    assert "worst at" in told


def test_record_then_golden(onnxtool: Command, digits_onnx: Path, damaged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gold"
    assert onnxtool("compare", digits_onnx, "--record", folder).returncode == 0
    assert onnxtool("compare", digits_onnx, "--golden", folder).returncode == 0
    done = onnxtool("compare", damaged, "--golden", folder, "--junit", tmp_path / "r.xml")
    assert done.returncode == 1
    assert "outside tolerance" in (tmp_path / "r.xml").read_text()
    loose = onnxtool("compare", damaged, "--golden", folder, "--tolerance", "logits:10,100")
    assert loose.returncode == 0, loose.stdout
    assert "1 output by its own tolerance" in loose.stdout


def test_usage(onnxtool: Command, digits_onnx: Path, tmp_path: Path) -> None:
    assert onnxtool("compare", digits_onnx).returncode == 2
    assert onnxtool("compare", digits_onnx, digits_onnx, "--golden", tmp_path).returncode == 2
    assert onnxtool("compare", digits_onnx, digits_onnx, "--tolerance", "logits").returncode == 2
    done = onnxtool("compare", digits_onnx, "--golden", tmp_path)
    assert done.returncode == 3
    assert "golden.json" in done.stderr

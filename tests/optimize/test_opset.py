"""Other opset versions."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import onnxtool
from onnxtool.errors import UnsupportedError, UsageError


def model(path: Path, text: str, opset: int, ir_version: int = 8) -> Path:
    onnx.save(onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{text}'), path)
    return path


REDUCE = "g (float[b, 4] x) => (float[b, 1] y) { y = ReduceMean <axes = [1]> (x) }"


def test_upgrades_and_compares(tmp_path: Path) -> None:
    source, out = model(tmp_path / "m.onnx", REDUCE, 13), tmp_path / "o.onnx"

    report = onnxtool.optimize(source, out, opset=20, bench=False)

    assert report.ok
    assert onnx.load(out).opset_import[0].version == 20
    assert len(onnx.load(out).graph.node[0].input) == 2


def test_downgrades_and_compares(tmp_path: Path) -> None:
    text = "g (float[b, 4] x) => (float[b, 4] y) { y = LeakyRelu <alpha = 0.1> (x) }"
    source, out = model(tmp_path / "m.onnx", text, 18), tmp_path / "o.onnx"

    assert onnxtool.optimize(source, out, opset=13, bench=False).ok
    assert onnx.load(out).opset_import[0].version == 13


def test_names_the_operator_that_cannot_be_converted(tmp_path: Path) -> None:
    text = "g (float[b, 4] x) => (float[b, 4] y) { y = Gelu (x) }"
    source, out = model(tmp_path / "m.onnx", text, 20, 9), tmp_path / "o.onnx"

    with pytest.raises(UnsupportedError, match="Gelu"):
        onnxtool.optimize(source, out, opset=13, bench=False)
    assert not out.exists()


def test_refuses_unknown_versions(tmp_path: Path) -> None:
    source = model(tmp_path / "m.onnx", REDUCE, 13)
    with pytest.raises(UsageError, match="knows 7 to"):
        onnxtool.optimize(source, tmp_path / "o.onnx", opset=999, bench=False)

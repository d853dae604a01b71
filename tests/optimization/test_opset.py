"""Other opset versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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


def test_names_the_operator_and_not_a_part_of_the_message(tmp_path: Path) -> None:
    # The converter speaks of Relu, in a source file of its own whose name has "Conv" in it.
    text = "g (float[b, 1, 4, 4] x) => (float[b, 1, 2, 2] y) { c = Conv (x, w) y = Relu (c) }"
    source = model(tmp_path / "m.onnx", text, 20, 9)
    proto = onnx.load(source)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w"))
    onnx.save(proto, source)

    with pytest.raises(UnsupportedError, match="at Relu: No Adapter From Version 14 for Relu"):
        onnxtool.optimize(source, tmp_path / "o.onnx", opset=11, bench=False)


def test_constants_are_no_obstacle(tmp_path: Path) -> None:
    # The converter has no adapter for Constant from opset 12 to 11.
    text = "g (float[b, 4] x) => (float[b, 4] y) { c = Constant <value_float = 2.0> () y = Mul (x, c) }"
    source, out = model(tmp_path / "m.onnx", text, 12, 7), tmp_path / "o.onnx"

    assert onnxtool.optimize(source, out, opset=11, bench=False).ok
    assert onnx.load(out).opset_import[0].version == 11

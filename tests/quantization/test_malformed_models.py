"""Models that break a pass before the runtime has refused them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnxtool.errors import InputError, UnsupportedError
from onnxtool.quantization import inputs
from onnxtool.quantization.quantize import quantize


def _save(path: Path, operator: str) -> Path:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[N, 4] x) => (float[N, 4] y) {{ y = {operator} (x) }}'
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def _broken(*_: object, **__: object) -> None:
    raise ValueError("None is not a valid DataType")


def test_a_pass_that_fails_on_a_bad_model_is_the_models_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "prepare", _broken)
    with pytest.raises((InputError, UnsupportedError), match="Not"):
        quantize(_save(tmp_path / "bad.onnx", "Not"), tmp_path / "q.onnx", mode="dynamic")


def test_a_pass_that_fails_on_a_good_model_is_our_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "prepare", _broken)
    with pytest.raises(ValueError, match="DataType"):
        quantize(_save(tmp_path / "good.onnx", "Relu"), tmp_path / "q.onnx", mode="dynamic")

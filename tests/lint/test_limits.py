"""The limits of check grow with the external data, not with the .onnx file alone."""

from __future__ import annotations

from pathlib import Path

from onnxtool.lint.stages import _Examination
from onnxtool.model import io


def test_external_data_counts(tmp_path: Path, digits_onnx: Path) -> None:
    path = tmp_path / "m.onnx"
    io.save(io.load(digits_onnx), path, external=True)
    assert _Examination(path, io.read_proto(path)).size == io.total_bytes(path) > 400_000
    assert _Examination(digits_onnx, io.read_proto(digits_onnx)).size == digits_onnx.stat().st_size

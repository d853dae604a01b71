"""Bytes of weights are the same wherever they lie, and reading them maps nothing."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.errors import InputError
from onnxtool.model.io import tensor_bytes

ARRAYS = {
    "float32": np.random.default_rng(0).standard_normal((3, 500)).astype(np.float32),
    "odd int4": np.arange(-400, 401).astype(ml_dtypes.int4),
    "bfloat16": np.arange(1000, dtype=np.float32).astype(ml_dtypes.bfloat16),
    "one": np.array(7, np.int8),
    "none": np.zeros((0, 3), np.float64),
}


def outside(array: np.ndarray, folder: Path, lost: int = 0) -> ir.ExternalTensor:
    """The array in external data, behind 100 other bytes; `lost` bytes are cut off at the end."""
    tensor = ir.Tensor(array)
    content = b"\xff" * 100 + tensor.tobytes()
    (folder / "data").write_bytes(content[: len(content) - lost])
    return ir.ExternalTensor("data", 100, tensor.nbytes, tensor.dtype, shape=tensor.shape, name="t", base_dir=folder)


@pytest.mark.parametrize("array", ARRAYS.values(), ids=list(ARRAYS))
def test_inside_and_outside_are_alike(array: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_bytes, "_CHUNK", 128)
    whole = ir.Tensor(array).tobytes()
    for tensor in (ir.Tensor(array), outside(array, tmp_path)):
        assert b"".join(tensor_bytes.pieces(tensor)) == whole
        first, last = tensor_bytes.ends(tensor, 300)
        assert first == whole[:300]
        assert last == whole[-300:]
        assert not isinstance(tensor, ir.ExternalTensor) or tensor.raw is None  # not mapped


def test_a_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    tensor = outside(ARRAYS["float32"], tmp_path, lost=1)
    with pytest.raises(InputError, match="cut off"):
        list(tensor_bytes.pieces(tensor))
    with pytest.raises(InputError, match="cut off"):
        tensor_bytes.ends(tensor, 64)

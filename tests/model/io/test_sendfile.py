"""Weights from one file to another without going through the memory of the process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.model.io.tensor_bytes import sendable

COUNT = 1 << 19


@pytest.fixture
def source(tmp_path: Path) -> tuple[np.ndarray, ir.ExternalTensor]:
    array = np.random.default_rng(0).normal(size=COUNT).astype(np.float32)
    (tmp_path / "w.data").write_bytes(b"#" * 64 + array.tobytes() + b"rest")
    tensor = ir.ExternalTensor(
        "w.data", 64, array.nbytes, ir.DataType.FLOAT, shape=ir.Shape([COUNT]), name="w", base_dir=tmp_path
    )
    return array, tensor


def written(tensor: ir.TensorProtocol, path: Path) -> bytes:
    with open(path, "wb") as file:
        file.write(b"before")
        tensor.tofile(file)
        file.write(b"after")
    return path.read_bytes()


def test_the_part_of_the_file_is_copied(source, tmp_path: Path) -> None:
    array, tensor = source
    sent = sendable(tensor)
    assert sent is not tensor
    assert written(sent, tmp_path / "out") == b"before" + array.tobytes() + b"after"
    assert (sent.name, sent.dtype, sent.shape) == (tensor.name, tensor.dtype, tensor.shape)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
def test_where_the_system_cannot_send(source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    array, tensor = source

    def refuse(*_: int) -> int:
        raise OSError(code, "no")

    monkeypatch.setattr(os, "sendfile", refuse, raising=False)
    assert written(sendable(tensor), tmp_path / "out") == b"before" + array.tobytes() + b"after"


def test_a_full_disk_is_an_error(source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "sendfile", full, raising=False)
    with pytest.raises(OSError, match="full"):
        written(sendable(source[1]), tmp_path / "out")


def test_a_file_that_has_become_shorter_is_an_error(source, tmp_path: Path) -> None:
    os.truncate(tmp_path / "w.data", 1000)
    with pytest.raises((OSError, ValueError)):
        written(sendable(source[1]), tmp_path / "out")


def test_small_and_loaded_tensors_are_left_alone() -> None:
    tensor = ir.tensor(np.zeros(4, np.float32))
    assert sendable(tensor) is tensor

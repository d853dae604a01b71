"""Sparse initializers are read as dense ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxtool.errors import InputError, ResourceError
from onnxtool.model import io


def write(path: Path, indices: np.ndarray, dims: tuple[int, ...]) -> Path:
    text = "g (float[4] x) => (float[4] y) { y = Identity (x) }"
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}')
    values = numpy_helper.from_array(np.array([1.5, -2.0], np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), dims)
    proto.graph.sparse_initializer.append(sparse)
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("indices", [np.array([1, 5]), np.array([[0, 1], [1, 2]])])
def test_both_ways_to_write_indices(tmp_path: Path, indices: np.ndarray) -> None:
    tensor = io.load(write(tmp_path / "m.onnx", indices, (2, 3))).graph.initializers["w"].const_value

    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), np.array([[0, 1.5, 0], [0, 0, -2]], np.float32))


@pytest.mark.parametrize("indices", [np.array([1, 6]), np.array([-1, 2]), np.array([[0, 1], [2, 0]])])
def test_indices_outside_the_dims(tmp_path: Path, indices: np.ndarray) -> None:
    with pytest.raises(InputError, match="indices"):
        io.load(write(tmp_path / "m.onnx", indices, (2, 3)))


def test_too_large_to_be_written_out(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="too large"):
        io.load(write(tmp_path / "m.onnx", np.array([0, 1]), (1 << 20, 1 << 20)))

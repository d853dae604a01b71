"""Sparse initializers are read as dense ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxtool.errors import InputError, ResourceError
from onnxtool.model import io
from onnxtool.model.safety import tensors as sparse_tensors
from onnxtool.model.safety.tensors import make_dense


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


def dense(values: np.ndarray, indices: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    sparse = onnx.SparseTensorProto(dims=dims)
    sparse.values.CopyFrom(numpy_helper.from_array(values, "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(indices, "i"))
    proto = helper.make_model(helper.make_graph([], "g", [], []))
    proto.graph.sparse_initializer.append(sparse)
    make_dense(proto)
    assert not proto.graph.sparse_initializer
    return numpy_helper.to_array(proto.graph.initializer[0])


def test_nothing_and_dims_of_zero_are_dense_too() -> None:
    none = np.zeros(0, np.float32)
    assert dense(none, np.zeros(0, np.int64), (3,)).tolist() == [0, 0, 0]
    assert dense(none, np.zeros((0, 2), np.int64), (2, 2)).tolist() == [[0, 0], [0, 0]]
    assert dense(none, np.zeros(0, np.int64), (0,)).tolist() == []
    assert dense(np.float32([7]), np.array([0]), (1,)).tolist() == [7]


@pytest.mark.parametrize(
    ("values", "indices", "dims", "error"),
    [
        ([1.0], [0], (-1, -1), ResourceError),
        ([1.0], [0], (4, -1), ResourceError),
        ([1.0, 2.0], [0], (4,), InputError),
        ([[1.0]], [[0]], (4,), InputError),
        ([1.0], [-1], (4,), InputError),
    ],
)
def test_what_is_no_sparse_tensor_is_refused(
    values: list[float], indices: list[int], dims: tuple[int, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        dense(np.float32(values), np.array(indices), dims)


def test_what_is_written_out_is_limited_in_bytes_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_tensors, "_MOST_BYTES", 64)
    one = np.float32([1.0])
    assert dense(one, np.array([0]), (16,)).nbytes == 64
    with pytest.raises(ResourceError):
        dense(one, np.array([0]), (17,))
    two = helper.make_model(helper.make_graph([], "g", [], []))
    for _ in range(2):
        sparse = onnx.SparseTensorProto(dims=[9])
        sparse.values.CopyFrom(numpy_helper.from_array(one, "w"))
        sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0]), "i"))
        two.graph.sparse_initializer.append(sparse)
    with pytest.raises(ResourceError):
        make_dense(two)

"""Sparse initializers, which onnx_ir leaves out: they become dense ones."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.errors import InputError, ResourceError
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import graphs

_MOST_BYTES = 1 << 30


def make_dense(proto: onnx.ModelProto) -> None:
    """Turn the sparse initializers of the main graph and its subgraphs into dense ones, in place.

    Raises:
        InputError: indices that do not fit the dims.
        ResourceError: they would take more than a gigabyte.
    """
    left = _MOST_BYTES
    for graph in graphs(proto, DEFAULT):
        for sparse in graph.sparse_initializer:
            dense = _dense(sparse, left)
            left -= dense.nbytes
            graph.initializer.append(numpy_helper.from_array(dense, sparse.values.name))
        graph.ClearField("sparse_initializer")


def _dense(sparse: onnx.SparseTensorProto, limit: int) -> np.ndarray:
    name, dims = sparse.values.name, tuple(sparse.dims)
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    if any(d < 0 for d in dims) or math.prod(dims) * values.itemsize > limit:
        raise ResourceError(f"the sparse initializer {name!r} of {list(dims)} is too large to be written out.")
    dense = np.zeros(dims, values.dtype)
    try:
        if indices.ndim == 2:
            place = np.ravel_multi_index(tuple(indices.T), dims) if len(values) else indices.reshape(-1)
        else:
            place = indices
        if values.ndim != 1 or place.shape != values.shape or (len(place) and place.min() < 0):
            raise ValueError
        dense.reshape(-1)[place] = values
    except (IndexError, ValueError, TypeError) as error:
        raise InputError(
            f"the sparse initializer {name!r} has indices that do not fit its dims {list(dims)}."
        ) from error
    return dense

"""Every tensor of a ModelProto: whether its bytes are really there, and sparse ones made dense."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxtool.errors import InputError, ResourceError, UnsafeError
from onnxtool.model.proto_nodes import all_nodes, inner_graphs
from onnxtool.model.safety.limits import DEFAULT, Limits

# Less than a byte: INT2, UINT4, FLOAT4E2M1, ...; numpy gives each of them a byte.
_SMALL = re.compile(r"(?:U?INT|FLOAT)([1-7])(?!\d)")
_BITS: dict[int, int] = {
    code: int(small[1]) if (small := _SMALL.match(name)) else helper.tensor_dtype_to_np_dtype(code).itemsize * 8
    for name, code in onnx.TensorProto.DataType.items()
    if name not in ("UNDEFINED", "STRING")
}
_KNOWN_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
_COMPLEX = (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128)
_ALL_FIELDS = frozenset(map(helper.tensor_dtype_to_field, _KNOWN_TYPES))
_LARGE = 1 << 32  # bytes
_LEAST_STORED = 1000  # one byte in so many is there; a file system that compresses weights gets nowhere near
_MANY = 1 << 62  # nodes; past every limit
_MAX_RANK = 64  # of numpy, and so of all that holds arrays here


@dataclass(frozen=True)
class ExternalRef:
    """Where a tensor's bytes lie outside the model file."""

    location: str
    offset: int
    length: int | None


def graphs(model: onnx.ModelProto, limits: Limits) -> Iterator[onnx.GraphProto]:
    """The main graph and all subgraphs, those of functions included.

    Raises:
        ResourceError: nested deeper, or more nodes, than the limits allow.
    """
    nodes_seen = 0
    pending: list[tuple[onnx.GraphProto | onnx.FunctionProto, int]] = [(model.graph, 0)]
    pending += [(f, 0) for f in model.functions]
    while pending:
        graph, depth = pending.pop()
        if depth > limits.max_depth:
            raise ResourceError(f"subgraphs are nested deeper than {limits.max_depth}.")
        nodes_seen += len(graph.node)
        if nodes_seen > limits.max_nodes:
            raise ResourceError(f"the model has more than {limits.max_nodes} nodes.")
        if isinstance(graph, onnx.GraphProto):
            yield graph
        for node in graph.node:
            pending += [(inner, depth + 1) for inner in inner_graphs(node)]


def verify_expansion(model: onnx.ModelProto, limits: Limits) -> None:
    """Refuse functions that call functions until a few lines stand for billions of nodes: whoever puts their bodies in
    place of the calls (the runtime, shape inference) would never end.

    Functions that call themselves are counted as if they did not; `structure.verify_structure` refuses them.

    Raises:
        ResourceError: more nodes than the limits allow, once every call is its function's body.
    """
    if not model.functions:
        return
    calls = {(f.domain, f.name, f.overload): f for f in model.functions}
    sizes: dict[tuple[str, str, str], int] = {}
    pending = list(calls)
    open_calls: set[tuple[str, str, str]] = set()
    while pending:  # without recursion: a chain of functions may be longer than Python's stack
        key = pending[-1]
        if key in sizes:
            pending.pop()
            continue
        callees = [c for c in map(_callee, all_nodes(calls[key].node)) if c in calls]
        waiting = [c for c in callees if c not in sizes and c not in open_calls]
        open_calls.add(key)
        if waiting:
            pending += waiting
            continue
        sizes[key] = min(sum(1 for _ in all_nodes(calls[key].node)) + sum(sizes.get(c, 0) for c in callees), _MANY)
        open_calls.discard(key)
        pending.pop()
    total = sum(sizes.get(_callee(node), 1) for node in all_nodes(model.graph.node))
    if total > limits.max_nodes:
        raise ResourceError(
            f"its functions stand for more than {limits.max_nodes} nodes, once every call is its function's body."
        )


def _callee(node: onnx.NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def all_tensors(model: onnx.ModelProto, limits: Limits) -> Iterator[onnx.TensorProto]:
    """Every tensor: initializers (sparse ones too) and node attributes, in all graphs and functions."""
    for graph in graphs(model, limits):
        yield from graph.initializer
    yield from other_tensors(model, limits)


def other_tensors(model: onnx.ModelProto, limits: Limits) -> Iterator[onnx.TensorProto]:
    """Every tensor that is not a plain initializer: sparse ones and those in node attributes."""
    holders: list[onnx.GraphProto | onnx.FunctionProto] = [*graphs(model, limits), *model.functions]
    for holder in holders:
        if isinstance(holder, onnx.GraphProto):
            for sparse in holder.sparse_initializer:
                yield sparse.values
                yield sparse.indices
        for node in holder.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                if attribute.HasField("sparse_tensor"):
                    yield attribute.sparse_tensor.values
                    yield attribute.sparse_tensor.indices
                yield from attribute.tensors


def declared_bytes(tensor: onnx.TensorProto) -> int | None:
    """Bytes that the dims and dtype call for; None for strings and unknown types."""
    bits = _BITS.get(tensor.data_type)
    return None if bits is None else (math.prod(tensor.dims) * bits + 7) // 8


def external_ref(tensor: onnx.TensorProto) -> ExternalRef | None:
    """Read the external-data entry of a tensor; None when its bytes are in the file.

    Raises:
        InputError: the entry has no location or its numbers are not numbers.
    """
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return None
    entries = {e.key: e.value for e in tensor.external_data}
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else None
    except ValueError as error:
        raise InputError(f"tensor {tensor.name!r}: external data offset or length is not a number.") from error
    if not entries.get("location") or offset < 0 or (length is not None and length < 0):
        raise InputError(f"tensor {tensor.name!r}: external data has no location, or a negative offset or length.")
    return ExternalRef(entries["location"], offset, length)


def resolve_inside(folder: Path, location: str) -> Path:
    """The file that an external-data location names, which must be a regular file inside the model's folder.

    Raises:
        UnsafeError: absolute path, `..`, a link that leads out, a second hard link, a device or a pipe.
        InputError: no such file.
    """
    if "\0" in location or os.path.isabs(location) or "\\" in location or ".." in Path(location).parts:
        raise UnsafeError(f"external data {location!r} points out of the model's folder, which is refused.")
    root = folder.resolve()
    path = root / location
    try:
        resolved = path.resolve(strict=True)
        info = resolved.stat()
    except (OSError, RuntimeError) as error:
        raise InputError(f"external data file {location!r} is missing from the model's folder.") from error
    if not resolved.is_relative_to(root):
        raise UnsafeError(f"external data {location!r} leads out of the model's folder, which is refused.")
    if not stat.S_ISREG(info.st_mode):
        raise UnsafeError(f"external data {location!r} is not a regular file, which is refused.")
    if info.st_nlink > 1:
        raise UnsafeError(
            f"external data {location!r} is a hard link, so it may be a file of another folder. Copy it, then retry."
        )
    return resolved


def _verify_inline(tensor: onnx.TensorProto, declared: int | None) -> None:
    """Hold dims against what the file holds.

    A typed field has an entry for each element; for two where they have 4 bits, for four where they have 2.
    """
    filled = [name for name in _ALL_FIELDS if len(getattr(tensor, name))]
    if tensor.HasField("raw_data"):
        if filled:
            raise InputError(f"tensor {tensor.name!r} holds its values twice; the file is damaged.")
        if declared is not None and len(tensor.raw_data) != declared:
            raise InputError(
                f"tensor {tensor.name!r} calls for {declared} bytes but holds {len(tensor.raw_data)}; "
                "the file is damaged."
            )
        return
    field = helper.tensor_dtype_to_field(tensor.data_type)
    together = max(8 // _BITS.get(tensor.data_type, 8), 1)
    called_for = -(-math.prod(tensor.dims) // together) * (2 if tensor.data_type in _COMPLEX else 1)
    present = len(getattr(tensor, field))
    if any(name != field for name in filled):
        raise InputError(f"tensor {tensor.name!r} holds values of another type than it declares; the file is damaged.")
    if present != called_for:
        raise InputError(
            f"tensor {tensor.name!r} calls for {called_for} values but holds {present}; the file is damaged."
        )


def _is_holes(path: Path, needed: int) -> bool:
    """Whether gigabytes of weights lie where the file system stores next to nothing: reading them would give zeros for
    hours.
    """
    if needed < _LARGE:
        return False
    blocks = getattr(path.stat(), "st_blocks", None)  # POSIX counts them in 512 bytes; Windows has no such count
    return blocks is not None and blocks * 512 * _LEAST_STORED < needed


def verify_tensors(model: onnx.ModelProto, folder: Path | None, limits: Limits) -> list[Path]:
    """Hold each tensor's declared size against the bytes that are really there, before anything is read.

    Without a folder external data is not looked for.

    Returns:
        The external data files, each once.

    Raises:
        InputError: negative dims, too many of them, or fewer or other bytes than the dims call for.
        UnsafeError: external data outside the folder.
        ResourceError: more external data than the limits allow.
    """
    sizes: dict[str, tuple[Path, int]] = {}
    needed: dict[str, int] = {}
    external_total = 0
    for tensor in all_tensors(model, limits):
        if any(d < 0 for d in tensor.dims):
            raise InputError(f"tensor {tensor.name!r} has a negative dim.")
        if len(tensor.dims) > _MAX_RANK:
            raise InputError(f"tensor {tensor.name!r} has {len(tensor.dims)} dims; an array can have {_MAX_RANK}.")
        if tensor.data_type not in _KNOWN_TYPES:
            raise InputError(f"tensor {tensor.name!r} has no known element type ({tensor.data_type}).")
        declared = declared_bytes(tensor)
        reference = external_ref(tensor)
        if reference is None:
            _verify_inline(tensor, declared)
            continue
        if folder is None:
            continue
        if reference.location not in sizes:
            path = resolve_inside(folder, reference.location)
            sizes[reference.location] = (path, path.stat().st_size)
        needed[reference.location] = needed.get(reference.location, 0) + (declared or 0)
        available = sizes[reference.location][1] - reference.offset
        length = declared if reference.length is None else reference.length
        if declared is not None and length != declared:
            raise InputError(f"tensor {tensor.name!r} calls for {declared} bytes; its external data has {length}.")
        if length is None or length > available:
            raise InputError(
                f"tensor {tensor.name!r} reaches past the end of external data file {reference.location!r}."
            )
        external_total += length
        if external_total > limits.max_external_bytes:
            raise ResourceError(f"the external data is larger than {limits.max_external_bytes} bytes.")
    for location, total in needed.items():
        if _is_holes(sizes[location][0], total):
            raise InputError(
                f"external data file {location!r} is nearly all holes: the {total} bytes of weights that the model "
                "has there were never written to it."
            )
    return [path for path, _ in sizes.values()]


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

"""Large models whose weights stay in their file until somebody reads them.

Protobuf copies every weight when it parses a message. Here the message is parsed without them: what is parsed says of
each large weight where in the same file it lies, as external data does.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError

from onnxtool.model.io.serialize import tag

if TYPE_CHECKING:
    import onnx_ir as ir

# Below this, reading all of it takes no time worth saving.
WORTHWHILE = 1 << 26
_LARGE = 1 << 12
_INSIDE = "onnxtool.inside"
# Field numbers of onnx.proto.
_GRAPH_OF_MODEL, _INITIALIZER_OF_GRAPH, _RAW_DATA_OF_TENSOR, _PLACES_OF_TENSOR = 7, 5, 9, (13, 14)
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5


class _OddError(Exception):
    """The message is not written as every writer does it, or it is damaged."""


def read_without_weights(path: Path) -> onnx.ModelProto | None:
    """The model with references into its own file in place of large weights.

    None where that is not worth it (a small file), not possible (a link: external data must lie in the model's folder)
    or not certain (a damaged file): it is then to be read as a whole, with the right words for what is wrong.
    """
    try:
        info = os.lstat(path)
        if info.st_size < WORTHWHILE or info.st_nlink > 1 or path.is_symlink() or not path.is_file():
            return None
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            model: onnx.ModelProto = onnx.ModelProto.FromString(_light_model(content, path.name))
            return model
    except (OSError, ValueError, IndexError, DecodeError, _OddError):
        return None


def read_without_graph(path: Path) -> onnx.ModelProto | None:
    """What stands beside the graph: versions, operator sets, metadata; None where the file does not let it be read."""
    try:
        if not path.is_file():
            return None
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            fields = _fields(content, 0, len(content))
            pieces = [content[start:end] for number, _, start, _, end in fields if number != _GRAPH_OF_MODEL]
            model: onnx.ModelProto = onnx.ModelProto.FromString(b"".join(pieces))
            return model
    except (OSError, ValueError, IndexError, DecodeError, _OddError):
        return None


def mark_inside(model: ir.Model, name: str) -> None:
    """Remember of each weight that it lies in the model file (called `name`) itself."""
    import onnx_ir as ir

    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor) and value.const_value.location == name:
            value.const_value.meta[_INSIDE] = True


def is_external(tensor: ir.TensorProtocol | None) -> bool:
    """True for a weight in external data; not for one that `read_without_weights` left in the model file."""
    import onnx_ir as ir

    return isinstance(tensor, ir.ExternalTensor) and _INSIDE not in tensor.meta


def _light_model(content: mmap.mmap, name: str) -> bytes:
    pieces: list[bytes] = []
    for number, kind, start, body, end in _fields(content, 0, len(content)):
        if number != _GRAPH_OF_MODEL:
            pieces.append(content[start:end])
            continue
        if kind != _LENGTH_DELIMITED:
            raise _OddError
        graph = _light_graph(content, body, end, name)
        pieces += [tag(_GRAPH_OF_MODEL, len(graph)), graph]
    return b"".join(pieces)


def _light_graph(content: mmap.mmap, begin: int, finish: int, name: str) -> bytes:
    pieces: list[bytes] = []
    copied = begin
    for number, kind, start, body, end in _fields(content, begin, finish):
        if number != _INITIALIZER_OF_GRAPH or kind != _LENGTH_DELIMITED or end - body < _LARGE:
            continue
        tensor = _light_tensor(content, body, end, name)
        if tensor is not None:
            pieces += [content[copied:start], tag(_INITIALIZER_OF_GRAPH, len(tensor)), tensor]
            copied = end
    return b"".join([*pieces, content[copied:finish]])


def _light_tensor(content: mmap.mmap, begin: int, finish: int, name: str) -> bytes | None:
    """The tensor without its values and with the place of these; None when they are no raw bytes, or few."""
    kept: list[bytes] = []
    place: tuple[int, int] | None = None
    for number, kind, start, body, end in _fields(content, begin, finish):
        if number in _PLACES_OF_TENSOR:
            return None
        if number != _RAW_DATA_OF_TENSOR:
            kept.append(content[start:end])
        elif kind != _LENGTH_DELIMITED:
            raise _OddError
        else:
            place = body, end - body  # of several, protobuf too takes the last
    if place is None or place[1] < _LARGE:
        return None
    header = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", name), ("offset", str(place[0])), ("length", str(place[1]))):
        header.external_data.add(key=key, value=value)
    return b"".join(kept) + bytes(header.SerializeToString())


def _fields(content: mmap.mmap, begin: int, finish: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, wire type, start, start of the value, and end of each field of a message."""
    at = begin
    while at < finish:
        key, body = _varint(content, at)
        kind = key & 7
        if kind == _VARINT:
            _, end = _varint(content, body)
        elif kind == _LENGTH_DELIMITED:
            length, body = _varint(content, body)
            end = body + length
        elif kind in (_FIXED64, _FIXED32):
            end = body + (8 if kind == _FIXED64 else 4)
        else:
            raise _OddError
        if end > finish:
            raise _OddError
        yield key >> 3, kind, at, body, end
        at = end


def _varint(content: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise _OddError

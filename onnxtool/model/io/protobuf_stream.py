"""A model as one protobuf message, piece by piece: its large weights are never in memory twice.

Protobuf itself builds the message as objects and then as bytes, which is two copies of the weights beside those of
the model. The bytes here are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from onnxtool.errors import ResourceError
from onnxtool.model.io import tensor_bytes
from onnxtool.model.io.serialize import to_proto

if TYPE_CHECKING:
    import onnx_ir as ir

# Smaller weights are left to protobuf.
_LARGE = 1 << 16
# Field numbers of onnx.proto, and the wire type of whatever has a length.
_GRAPH_OF_MODEL, _INITIALIZER_OF_GRAPH, _RAW_DATA_OF_TENSOR, _LENGTH_DELIMITED = 7, 5, 9, 2
_LIMIT = (1 << 31) - 1


def serialized_pieces(model: ir.Model) -> Iterator[bytes]:
    """The message in pieces, external weights brought in; together they are what `SerializeToString` would give.

    Raises:
        ResourceError: larger than the 2 GB at which protobuf ends.
        InputError: the file of external weights is shorter than the model says.
    """
    before, parts, after = _taken_apart(model)
    yield before
    for part in parts:
        yield part.before
        if part.tensor is not None:
            yield from tensor_bytes.pieces(part.tensor)
        yield part.after
    yield after


def to_bytes(model: ir.Model) -> bytes:
    """The message of `serialized_pieces` as a whole; raises as that does."""
    return b"".join(serialized_pieces(model))


def serialized_size(model: ir.Model) -> int:
    """Bytes of the message of `serialized_pieces`; large weights are not read.

    Raises:
        ResourceError: as there.
    """
    before, parts, after = _taken_apart(model)
    return len(before) + sum(part.size for part in parts) + len(after)


def _taken_apart(model: ir.Model) -> tuple[bytes, list[_Initializer], bytes]:
    """What stands before the initializers, these, and what stands behind; the first is all where none is large."""
    large = {
        name: value.const_value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
        and value.const_value.nbytes >= _LARGE
        and value.const_value.dtype.name != "STRING"
    }
    proto = _without(model, large)
    if not large:
        return bytes(proto.SerializeToString()), [], b""
    before, after = _around(proto, _GRAPH_OF_MODEL)
    graph_before, graph_after = _around(proto.graph, _INITIALIZER_OF_GRAPH)
    parts = [_initializer(t, large.get(t.name)) for t in proto.graph.initializer]
    total = len(graph_before) + len(graph_after) + sum(part.size for part in parts)
    if total > _LIMIT:
        raise ResourceError("the model is larger than the 2 GB that fit into one file; its weights must be external.")
    return before + tag(_GRAPH_OF_MODEL, total) + graph_before, parts, graph_after + after


@dataclass(frozen=True)
class _Initializer:
    """What stands before and after a tensor's values, and the tensor; None where `before` holds the values too."""

    before: bytes
    tensor: ir.TensorProtocol | None = None
    after: bytes = b""

    @property
    def size(self) -> int:
        return len(self.before) + len(self.after) + (0 if self.tensor is None else self.tensor.nbytes)


def _initializer(proto: onnx.TensorProto, tensor: ir.TensorProtocol | None) -> _Initializer:
    if tensor is None:
        return _Initializer(tag(_INITIALIZER_OF_GRAPH, proto.ByteSize()) + proto.SerializeToString())
    before, after = _around(_header(proto.name, tensor), _RAW_DATA_OF_TENSOR)
    before += tag(_RAW_DATA_OF_TENSOR, tensor.nbytes)
    length = len(before) + tensor.nbytes + len(after)
    return _Initializer(tag(_INITIALIZER_OF_GRAPH, length) + before, tensor, after)


def _without(model: ir.Model, large: dict[str, ir.TensorProtocol]) -> onnx.ModelProto:
    """The model with an empty tensor in place of each large one; external ones of subgraphs are brought in."""
    import onnx_ir as ir

    empty = ir.tensor([0]).numpy()[:0]
    kept: list[tuple[ir.Value, ir.TensorProtocol | None]] = []
    try:
        for graph in model.graphs():
            for name, value in graph.initializers.items():
                tensor = value.const_value
                if graph is model.graph and name in large:
                    kept.append((value, tensor))
                    value.const_value = ir.Tensor(empty, name=name)
                elif isinstance(tensor, ir.ExternalTensor):
                    kept.append((value, tensor))
                    value.const_value = ir.Tensor(tensor.numpy(), name=tensor.name)
        return to_proto(model)
    finally:
        for value, tensor in kept:
            value.const_value = tensor


def _around(message: onnx.ModelProto | onnx.GraphProto | onnx.TensorProto, number: int) -> tuple[bytes, bytes]:
    """The bytes of the fields before the one with this number, and of those after it."""
    sides = type(message)(), type(message)()
    for side in sides:
        side.CopyFrom(message)
    for field in message.DESCRIPTOR.fields:
        if field.number >= number:
            sides[0].ClearField(field.name)
        if field.number <= number:
            sides[1].ClearField(field.name)
    return bytes(sides[0].SerializeToString()), bytes(sides[1].SerializeToString())


def _header(name: str, tensor: ir.TensorProtocol) -> onnx.TensorProto:
    """A tensor without its values."""
    header = onnx.TensorProto(name=name, data_type=tensor.dtype.value, dims=tensor.shape.numpy())
    if tensor.doc_string:
        header.doc_string = tensor.doc_string
    for key, value in sorted(tensor.metadata_props.items()):
        header.metadata_props.add(key=key, value=value)
    return header


def tag(number: int, length: int) -> bytes:
    """What stands in front of a field with a length: its key, and the length, both as varints."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(length)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)

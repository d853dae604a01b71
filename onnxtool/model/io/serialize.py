"""A model to protobuf: as it is, piece by piece, or with the large weights in a data file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from onnxtool.errors import ResourceError
from onnxtool.model.io import set_aside, tensor_bytes
from onnxtool.model.io.tensor_bytes import sendable
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import all_tensors

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


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as protobuf; external tensors stay references."""
    import onnx_ir as ir

    return set_aside.restore(model, ir.to_proto(model))


def take_in_small(model: ir.Model) -> None:
    """Read, in place, the tensors that `externalized` leaves in the model where they lie in the source's data file.

    Exporters put tensors of a few bytes into it too. Their references would point into a file that is not there, or,
    where the new data file bears the old one's name, to other bytes of it.
    """
    import onnx_ir as ir

    moved = {id(value) for value in large_initializers(model)}
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if id(value) not in moved and isinstance(tensor, ir.ExternalTensor):
                value.const_value = ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)


def externalized(model: ir.Model, groups: Sequence[tuple[Sequence[ir.Value], Path]]) -> onnx.ModelProto:
    """Write initializers to data files, one after the other, and give the model that refers to them.

    Args:
        model: unchanged afterwards.
        groups: initializers, and the file that they go into.
    """
    originals = [(value, value.const_value) for values, _ in groups for value in values]
    try:
        for values, data in groups:
            _move(values, data)
        return to_proto(model)
    finally:
        for value, original in originals:
            value.const_value = original


def rename_data(proto: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Let references to data files name other ones."""
    for tensor in all_tensors(proto, DEFAULT):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names.get(entry.value, entry.value)


def move_out(model: ir.Model, data: Path) -> None:
    """Write the large weights to `data` and leave references in the model, in place: frees the memory they took."""
    _move(large_initializers(model), data)


def _move(values: Sequence[ir.Value], data: Path) -> None:
    import onnx_ir as ir

    tensors = [sendable(v.const_value) for v in values if v.const_value is not None]
    external = ir.external_data.convert_tensors_to_external(tensors, data.parent, data.name)
    for value, tensor in zip(values, external, strict=True):
        value.const_value = tensor


def bytes_in(model: ir.Model, data: Path) -> int:
    """How many bytes of `data` the model's weights refer to."""
    import onnx_ir as ir

    seen = {
        (tensor.offset, tensor.length)
        for graph in model.graphs()
        for value in graph.initializers.values()
        if isinstance(tensor := value.const_value, ir.ExternalTensor) and Path(tensor.path).name == data.name
    }
    return sum(length or 0 for _, length in seen)


def large_initializers(model: ir.Model) -> list[ir.Value]:
    """Initializers worth a place in a data file; the smallest stay in the model."""
    return [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.nbytes > 256 and value.const_value.dtype.name != "STRING"
    ]


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers of all graphs."""
    return sum(
        v.const_value.nbytes for g in model.graphs() for v in g.initializers.values() if v.const_value is not None
    )

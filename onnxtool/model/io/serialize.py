"""A model to protobuf: as it is, or with the large weights in a data file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from onnxtool.model.io import map_types
from onnxtool.model.io.tensor_bytes import sendable
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import all_tensors

if TYPE_CHECKING:
    import onnx_ir as ir


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as protobuf; external tensors stay references."""
    import onnx_ir as ir

    return map_types.restore(model, ir.to_proto(model))


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

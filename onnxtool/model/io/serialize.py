"""A model to protobuf: as it is, or with the large weights in a data file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from onnxtool.model.io import map_types
from onnxtool.model.io.sendfile import sendable

if TYPE_CHECKING:
    import onnx_ir as ir


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as protobuf; external tensors stay references."""
    import onnx_ir as ir

    return map_types.restore(model, ir.to_proto(model))


def to_bytes(model: ir.Model) -> bytes:
    """The model serialized with all of its weights, those in external data too."""
    import onnx_ir as ir

    outside = [
        v for g in model.graphs() for v in g.initializers.values() if isinstance(v.const_value, ir.ExternalTensor)
    ]
    references = [value.const_value for value in outside]
    try:
        for value, tensor in zip(outside, references, strict=True):
            assert tensor is not None
            value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)
        return bytes(to_proto(model).SerializeToString())
    finally:
        for value, tensor in zip(outside, references, strict=True):
            value.const_value = tensor


def take_in_the_rest(model: ir.Model) -> None:
    """Read what `externalized` leaves in the model where it still lies in the source's data file, in place.

    Exporters put tensors of a few bytes, and those of Constant nodes, into it too. Their references would point into a
    file that is not there, or, where the new data file bears the old one's name, to other bytes of it.
    """
    import onnx_ir as ir

    moved = {id(value) for value in large_initializers(model)}
    for graph in model.graphs():
        for value in graph.initializers.values():
            if id(value) not in moved and isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = _in_memory(value.const_value)
        for node in graph:
            _take_in_attributes(node)
    for function in model.functions.values():
        for node in function:
            _take_in_attributes(node)


def _take_in_attributes(node: ir.Node) -> None:
    import onnx_ir as ir

    for name, attribute in list(node.attributes.items()):
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
            node.attributes.add(ir.AttrTensor(name, _in_memory(attribute.value)))
        elif attribute.type == ir.AttributeType.TENSORS:
            tensors = [_in_memory(t) if isinstance(t, ir.ExternalTensor) else t for t in attribute.value]
            node.attributes.add(ir.AttrTensors(name, tensors))


def _in_memory(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    import onnx_ir as ir

    return ir.Tensor(tensor.numpy().copy(), dtype=tensor.dtype, name=tensor.name)


def externalized(model: ir.Model, data: Path) -> onnx.ModelProto:
    """Write the large weights to `data`, one after the other, and give the model that refers to them."""
    import onnx_ir as ir

    values = large_initializers(model)
    originals = [value.const_value for value in values]
    external = ir.external_data.convert_tensors_to_external(
        [sendable(t) for t in originals if t is not None], data.parent, data.name
    )
    try:
        for value, tensor in zip(values, external, strict=True):
            value.const_value = tensor
        return to_proto(model)
    finally:
        for value, original in zip(values, originals, strict=True):
            value.const_value = original


def move_out(model: ir.Model, data: Path) -> None:
    """Write the large weights to `data` and leave references in the model, in place: frees the memory they took."""
    import onnx_ir as ir

    values = large_initializers(model)
    external = ir.external_data.convert_tensors_to_external(
        [sendable(v.const_value) for v in values if v.const_value is not None], data.parent, data.name
    )
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

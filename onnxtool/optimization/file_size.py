"""How large the file will be, and constants that take a node in order to take no room."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import is_op, walk
from onnxtool.optimization.type_inference import light_proto

_REPEATING = ("ConstantOfShape", "Expand")


def message_bytes(model: ir.Model, *, shapes: bool = False) -> int:
    """Bytes of the model as one file; large weights are counted and not copied.

    Args:
        model: to measure.
        shapes: those of intermediate values are written too, as in files that come from elsewhere.
    """
    proto, heavy = light_proto(model)
    # Reading a file gives initializers a shape of their own beside that of the tensor, and it would be written.
    weights = {tensor.name for tensor in proto.graph.initializer}
    listed = [info for info in proto.graph.value_info if shapes and info.name not in weights]
    proto.graph.ClearField("value_info")
    proto.graph.value_info.extend(listed)
    # What can be overridden is left out of the message, and counted without its header.
    return int(proto.ByteSize()) + heavy + sum(_header(v) for v in model.graph.initializers.values())


def _header(value: ir.Value) -> int:
    """Bytes of an initializer that is also an input, beside its values; negative where these are written shorter."""
    tensor = value.const_value
    if tensor is None or not value.is_graph_input() or not isinstance(tensor, ir.serde.TensorProtoTensor):
        return 0
    return int(tensor.raw.ByteSize()) - tensor.nbytes


def may_repeat(model: ir.Model) -> bool:
    """Whether any node could become one of `repeated_constants`."""
    return any(is_op(node, *_REPEATING) for node in walk(model.graph))


def repeated_constants(model: ir.Model) -> list[ir.Node]:
    """The ConstantOfShape and Expand nodes whose inputs are initializers."""
    return [
        node
        for node in walk(model.graph)
        if is_op(node, *_REPEATING)
        and all(v is not None and v.const_value is not None and not v.is_graph_input() for v in node.inputs)
    ]

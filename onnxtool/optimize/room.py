"""How large the file will be, and constants that take a node in order to take no room."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.optimize.inference import light_proto
from onnxtool.optimize.nodes import is_op, walk

_REPEATING = ("ConstantOfShape", "Expand")


def message_bytes(model: ir.Model) -> int:
    """Bytes of the model as one file, without inferred shapes; large weights are counted and not copied."""
    proto, heavy = light_proto(model)
    proto.graph.ClearField("value_info")
    return int(proto.ByteSize()) + heavy


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

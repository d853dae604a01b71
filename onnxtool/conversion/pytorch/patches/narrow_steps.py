"""Steps in bfloat16 inside a model in float32 (Falcon's alibi), for which the runtime has no kernels on the CPU."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.conversion.patches import Patch
from onnxtool.model.ir.queries import all_nodes

_NARROW, _WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT


def widen(model: ir.Model) -> int:
    """Compute in float32, rounded after each step, as torch does.

    Args:
        model: as torch.export's exporter left it; changed in place, unless its own inputs or outputs are bfloat16.

    Returns:
        How many steps were changed.
    """
    found = [n for n in all_nodes(model) if n.op_type not in ("Cast", "Constant") and _is_narrow(*n.inputs, *n.outputs)]
    if not found or _is_narrow(*model.graph.inputs, *model.graph.outputs):
        return 0
    for node in found:
        graph = node.graph
        assert graph is not None
        for place, value in enumerate(node.inputs):
            if _is_narrow(value):
                cast = _cast(value, _WIDE, f"{node.name}_wide_{place}")
                node.replace_input_with(place, cast.outputs[0])
                graph.insert_before(node, cast)
        for value in node.outputs:
            if _is_narrow(value):
                cast = _cast(value, _NARROW, f"{value.name}_rounded")
                uses = [(user, place) for user, place in value.uses() if user is not cast]
                for user, place in uses:
                    user.replace_input_with(place, cast.outputs[0])
                graph.insert_after(node, cast)
                value.type = ir.TensorType(_WIDE)
    return len(found)


def _is_narrow(*values: ir.Value | None) -> bool:
    return any(value is not None and value.dtype == _NARROW for value in values)


def _cast(value: ir.Value | None, to: ir.DataType, name: str) -> ir.Node:
    cast = ir.node("Cast", [value], {"to": to}, name=name)
    cast.outputs[0].name, cast.outputs[0].type = f"{name}_value", ir.TensorType(to)
    cast.outputs[0].shape = value.shape if value is not None else None
    return cast


PATCH = Patch("onnxruntime", "", "the runtime has no kernels for bfloat16 on the CPU", widen)

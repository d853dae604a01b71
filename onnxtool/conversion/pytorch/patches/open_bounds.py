"""Bounds on one side: ONNX's Clip takes the largest number of the type for the other one, and makes it of infinity."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.conversion.patches import Patch
from onnxtool.model.ir.queries import all_nodes


def keep_infinities(model: ir.Model) -> int:
    """Write Max or Min for each Clip of floats with one bound, as torch clamps: of a masked score, minus infinity.

    Args:
        model: as an exporter of torch left it, at opset 12 or newer; changed in place.

    Returns:
        How many were changed.
    """
    changed = 0
    for node in [n for n in all_nodes(model) if n.op_type == "Clip" and n.domain == ""]:
        bounds = {operator: bound for operator, bound in zip(("Max", "Min"), node.inputs[1:], strict=False) if bound}
        kind = next((v.dtype for v in (node.inputs[0], *bounds.values()) if v is not None and v.dtype), None)
        if len(bounds) != 1 or kind is None or not kind.is_floating_point():
            continue
        ((node.op_type, bound),) = bounds.items()
        node.resize_inputs(2)
        node.replace_input_with(1, bound)
        changed += 1
    return changed


PATCH = Patch("torch", "2.14", "torch 2.13 writes Clip for clamp of one bound", keep_infinities)

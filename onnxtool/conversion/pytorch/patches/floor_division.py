"""Floor division of sizes: torch.export's exporter writes Div, which cuts off, where Python rounds down."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.conversion.patches import Patch
from onnxtool.model.ir.queries import all_nodes, constant_array

# What hands a size on, or makes another of sizes.
_SIZES = frozenset(
    ["Squeeze", "Unsqueeze", "Reshape", "Identity", "Cast", "Gather", "Slice", "Concat", "Add", "Mul", "Div", "Mod",
     "Max", "Min", "Shape", "Size"]
)  # fmt: skip


def round_down(model: ir.Model) -> int:
    """Make divisions of sizes round down where what is divided may be below zero: `(height - 5) // 2`, `-(-n // 3)`.

    Args:
        model: as torch.export's exporter left it; changed in place.

    Returns:
        How many were changed.
    """
    found = [n for n in all_nodes(model) if n.op_type == "Div" and (n.name or "").startswith("node_floordiv")]
    changed = 0
    for node in found:
        divided, by = node.inputs
        if divided is None or by is None or node.graph is None or not _may_be_negative(divided):
            continue
        rest = ir.node("Mod", [divided, by], name=f"{node.name}_rest")
        whole = ir.node("Sub", [divided, rest.outputs[0]], name=f"{node.name}_whole")
        for made in (rest, whole):
            made.outputs[0].name = f"{made.name}_value"
            made.outputs[0].type, made.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
        node.graph.insert_before(node, [rest, whole])
        node.replace_input_with(0, whole.outputs[0])
        changed += 1
    return changed


def _may_be_negative(value: ir.Value) -> bool:
    """Whether anything is taken away on the way from sizes to a number."""
    pending, seen = [value], {id(value)}
    while pending:
        current = pending.pop()
        array = constant_array(current)
        if array is not None:
            if array.dtype.kind != "i" or bool((array < 0).any()):
                return True
            continue
        node = current.producer()
        if node is None or node.op_type not in _SIZES:
            return True
        if node.op_type in ("Shape", "Size"):
            continue
        # Where a reshape goes to, or a slice begins, says nothing of the numbers.
        inputs = (
            node.inputs[:1] if node.op_type in ("Squeeze", "Unsqueeze", "Reshape", "Gather", "Slice") else node.inputs
        )
        for before in inputs:
            if before is not None and id(before) not in seen:
                seen.add(id(before))
                pending.append(before)
    return False


PATCH = Patch("torch", "2.14", "torch 2.13 writes Div, which cuts off, for // of sizes", round_down)

"""The runtime's own operators: their domain, and putting one into a graph."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnxtool.model.operators.value_facts import Sizes, set_sizes
from onnxtool.optimization.pass_context import PassContext

MICROSOFT = "com.microsoft"


def insert_fused(
    context: PassContext,
    before: ir.Node,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Sequence[ir.Attr],
    base: str,
    sizes: Sizes,
) -> ir.Value:
    """Put a float operator of the runtime's in front of a node and give its output, whose dims nobody else infers."""
    context.model.opset_imports.setdefault(MICROSOFT, 1)
    made = context.insert(before, op_type, inputs, attributes, base=base, domain=MICROSOFT)
    made.dtype = ir.DataType.FLOAT
    set_sizes(made, sizes)
    return made

"""An onnxtool pass that removes double negations."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.extension import Level, PassContext


class RemoveDoubleNegation:
    """Neg(Neg(x)) becomes x."""

    name = "remove-double-negation"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Let users of the second Neg read what the first one reads; dead code does the rest."""
        count = 0
        for node in context.nodes(model, "Neg"):
            before = node.inputs[0].producer() if node.inputs[0] is not None else None
            if before is not None and before.op_type == "Neg" and before.domain == "" and before.inputs[0] is not None:
                count += context.bypass(node, before.inputs[0])
        return count

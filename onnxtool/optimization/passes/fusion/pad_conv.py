"""Pad in front of convolutions and pooling."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op, producer
from onnxtool.model.operators.value_facts import rank_of, static_shape
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext

# Taps along one dim, from which on the Pad stays: it costs next to nothing beside such a kernel, and the runtime's
# blocked kernels take 1.5 to 2 times as long over padded edges (onnxruntime 1.31, 64 taps; on integers: 1.1).
_LONG = 16


class FusePadConv(NodeRewrite):
    """Conv(Pad(x, 0)) -> Conv(x, pads), unless the kernel is long."""

    # Not for MaxPool, whose own padding is minus infinity: the runtime fuses that at load and gives wrong values.
    name = "fuse-pad-conv"
    level = Level.EXTENDED
    operators = ("Conv",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Only constant-mode pads of spatial dims by zeros."""
        pad = producer(node.inputs[0], "Pad")
        if pad is None or attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return 0
        extra, rank = zero_pads(pad, context), rank_of(pad.inputs[0])
        if extra is None or rank is None or len(extra) != 2 * rank:
            return 0
        begin, end = extra[:rank], extra[rank:]
        if any(begin[:2]) or any(end[:2]) or min(extra) < 0 or _is_long(node):
            return 0
        spatial = rank - 2
        own = attribute(node, "pads", (0,) * (2 * spatial))
        total = [a + b for a, b in zip(own, [*begin[2:], *end[2:]], strict=True)]
        kept = [a for name, a in node.attributes.items() if name not in ("pads", "auto_pad")]
        context.replace_op(node, "Conv", [pad.inputs[0], *node.inputs[1:]], [*kept, ir.AttrInt64s("pads", total)])
        return 1


def _is_long(conv: ir.Node) -> bool:
    shape = static_shape(conv.inputs[1])
    return max(attribute(conv, "kernel_shape", (shape or (1, 1, 1))[2:]), default=1) >= _LONG


def zero_pads(pad: ir.Node, context: PassContext) -> list[int] | None:
    """The pads of a Pad that adds zeros, over all dims; None for any other Pad."""
    if not is_op(pad, "Pad") or attribute(pad, "mode", "constant") != "constant":
        return None
    if context.opset < 11:
        pads = attribute(pad, "pads", attribute(pad, "paddings"))
        return list(pads) if pads is not None and attribute(pad, "value", 0.0) == 0 else None
    array = context.array(pad.inputs[1], limit=64)
    if array is None or (len(pad.inputs) > 3 and pad.inputs[3] is not None):
        return None
    if len(pad.inputs) > 2 and pad.inputs[2] is not None:
        fill = context.array(pad.inputs[2], limit=1)
        if fill is None or fill.size != 1 or fill.reshape(-1)[0] != 0:
            return None
    return [int(p) for p in array]

"""Query, key and value that come stacked out of one projection, taken apart before the heads are."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.model.operators.value_facts import Sizes, integers, set_sizes, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.operator_chains import permutation

_STACKED = [2, 0, 3, 1, 4]  # [batch, length, 3, heads, width] -> [3, batch, heads, length, width]


class SplitStackedHeads(NodeRewrite):
    """Gather(Transpose(Reshape(x, [.., 3, heads, width])), i) -> heads of Split(x)[i]: attention finds them."""

    # timm's and PaddleOCR's transformers have their projections so. By itself this is two nodes more and no faster.
    name = "split-stacked-heads"
    level = Level.ALL
    operators = ("Transpose",)

    def rewrite(self, turn: ir.Node, context: PassContext) -> int:
        """Start from the Transpose; each third must be taken once."""
        reshape = producer(turn.inputs[0], "Reshape")
        if reshape is None or permutation(turn) != _STACKED or sole_use(reshape.outputs[0]) is not turn:
            return 0
        source, sizes = reshape.inputs[0], sizes_of(reshape.outputs[0])
        thirds = _thirds(turn)
        if source is None or sizes is None or thirds is None or sizes[2] != 3:
            return 0
        heads, width = sizes[3], sizes[4]
        if not isinstance(heads, int) or not isinstance(width, int):
            return 0
        if sizes_of(source) == (*sizes[:2], 3 * heads * width):
            _split(source, turn, thirds, (*sizes[:2], heads, width), context)
            return 1
        return 0


def _thirds(turn: ir.Node) -> list[ir.Node] | None:
    """The Gathers of query, key and value, in this order."""
    found: dict[int, ir.Node] = {}
    for use in turn.outputs[0].uses():
        node = use.node
        index = integers(node.inputs[1]) if node.op_type == "Gather" and use.idx == 0 else None
        if index is None or len(index) != 1 or sizes_of(node.inputs[1]) != () or attribute(node, "axis", 0) != 0:
            return None
        found[index[0] % 3] = node
    alone = not turn.outputs[0].is_graph_output() and len(turn.outputs[0].uses()) == 3
    return [found[i] for i in range(3)] if alone and len(found) == 3 else None


def _split(source: ir.Value, turn: ir.Node, thirds: list[ir.Node], sizes: Sizes, context: PassContext) -> None:
    heads, width = sizes[2], sizes[3]
    base, total = source.name or "projection", int(heads) * int(width)  # type: ignore[arg-type]
    parts = [ir.Value(name=context.unique(f"{base}_part"), type=source.type) for _ in range(3)]
    inputs: list[ir.Value | None] = [source]
    settings = [ir.AttrInt64("axis", 2)]
    if context.opset >= 13:
        inputs.append(context.initializer(np.array([total] * 3, np.int64), f"{base}_widths"))
    else:
        settings.append(ir.AttrInt64s("split", [total] * 3))
    assert turn.graph is not None
    turn.graph.insert_before(turn, ir.Node("", "Split", inputs, settings, outputs=parts, name=parts[0].name))
    shape = context.initializer(np.array([0, 0, heads, width], np.int64), f"{base}_heads")
    for part, gather in zip(parts, thirds, strict=True):
        set_sizes(part, (*sizes[:2], total))
        apart = context.insert(turn, "Reshape", [part, shape], base=f"{part.name}_heads")
        apart.type = source.type
        set_sizes(apart, sizes)
        context.replace_op(gather, "Transpose", [apart], [ir.AttrInt64s("perm", [0, 2, 1, 3])])

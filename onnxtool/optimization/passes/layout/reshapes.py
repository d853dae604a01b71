"""Reshape, Flatten, Squeeze and Unsqueeze: all of them only rename dims, so a chain of them is one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op
from onnxtool.model.operators.symbolic_dims import Expr
from onnxtool.model.operators.value_facts import Size, Sizes, elements_of, integers, sizes_of
from onnxtool.optimization.pass_base import Level, NodeRewrite
from onnxtool.optimization.pass_context import PassContext


def can_read(reader: ir.Node, old: ir.Value, sizes: Sizes) -> bool:
    """Whether a node gives the same when it reads the same elements with other dims: a reshape, or a Shape of some."""
    if is_op(reader, "Shape"):
        return _range_in(reader, old, sizes) is not None
    wanted = sizes_of(reader.outputs[0])
    if not is_op(reader, *RESHAPES) or wanted is None:
        return False
    return reshape_target(sizes, wanted) is not None or _spelt_out(reader)


def _spelt_out(reader: ir.Node) -> bool:
    """A Reshape to given dims: none of them is copied from the dim at its place."""
    items = elements_of(reader.inputs[1]) if is_op(reader, "Reshape") else None
    return items is not None and items.complete and 0 not in items.elements


def _range_in(shape: ir.Node, old: ir.Value, sizes: Sizes) -> tuple[int, int] | None:
    """Where the dims that a Shape gives stand in others."""
    before = sizes_of(old)
    if before is None:
        return None
    wanted: tuple[Size, ...] = before[attribute(shape, "start", 0) : attribute(shape, "end", len(before))]
    for start in range(len(sizes) - len(wanted) + 1):
        if sizes[start : start + len(wanted)] == wanted:
            whole = len(wanted) == len(sizes)
            return (
                None if not wanted or (not whole and "start" not in shape.attributes) else (start, start + len(wanted))
            )
    return None


def let_read(readers: list[ir.Node], old: ir.Value, new: ir.Value, sizes: Sizes, context: PassContext) -> None:
    """Let nodes that `can_read` it read `new` in place of `old`.

    Args:
        readers: the nodes, which read `old` as their first input.
        old: what they read now.
        new: the same elements with other dims.
        sizes: these dims.
        context: of the run.
    """
    for reader in readers:
        if is_op(reader, "Shape"):
            start, end = _range_in(reader, old, sizes) or (0, len(sizes))
            partly = (start, end) != (0, len(sizes))
            attributes = [ir.AttrInt64("start", start), ir.AttrInt64("end", end)] if partly else []
            context.replace_op(reader, "Shape", [new], attributes)
            continue
        wanted = sizes_of(reader.outputs[0])
        target = reshape_target(sizes, wanted) if wanted is not None else None
        if target is None:
            reader.replace_input_with(0, new)
        else:
            become_reshape(reader, new, target, context)


RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


class SimplifyReshapes(NodeRewrite):
    """Reshape(Reshape(x, s), t) -> Reshape(x, t), or x; a computed t -> a constant one."""

    # onnxscript merges two Reshapes only, and sets allowzero below opset 14, where it does not exist.
    name = "simplify-reshapes"
    level = Level.BASIC
    operators = RESHAPES

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Look from the last of a chain up to its sources, the farthest first."""
        wanted = sizes_of(node.outputs[0])
        if wanted is None or node.inputs[0] is None:
            return 0
        chain = list(sources(node))
        for source in reversed(chain):
            if sizes_of(source) == wanted and context.bypass(node, source):
                return 1
        fixed = not is_op(node, "Reshape") or integers(node.inputs[1]) is not None
        refuses_empty = any(_refuses_empty(n) for n in _reshaping(node))
        for source in reversed(chain if not fixed else chain[1:]):
            target = reshape_target(sizes_of(source), wanted, refuses_empty=refuses_empty)
            if target is not None:
                become_reshape(node, source, target, context)
                return 1
        return 0


def become_reshape(node: ir.Node, source: ir.Value, target: list[int], context: PassContext) -> None:
    """Turn a node into the Reshape of `source` to a constant target shape."""
    shape = context.initializer(np.array(target, np.int64), f"{node.outputs[0].name}_shape")
    context.replace_op(node, "Reshape", [source, shape])


def sources(node: ir.Node) -> Iterator[ir.Value]:
    """What a reshape reads, then what the reshape before it reads, and so on."""
    current: ir.Node | None = node
    while current is not None and is_op(current, *RESHAPES) and current.inputs[0] is not None:
        yield current.inputs[0]
        current = current.inputs[0].producer()


def _reshaping(node: ir.Node) -> Iterator[ir.Node]:
    """A reshape, the one before it, and so on."""
    current: ir.Node | None = node
    while current is not None and is_op(current, *RESHAPES) and current.inputs[0] is not None:
        yield current
        current = current.inputs[0].producer()


def _refuses_empty(node: ir.Node) -> bool:
    """Whether a Reshape has a target that the runtime refuses for an empty batch: a copied first dim beside a -1."""
    target = integers(node.inputs[1]) if is_op(node, "Reshape") and len(node.inputs) > 1 else None
    return target is not None and -1 in target and target[0] == 0


def reshape_target(source: Sizes | None, wanted: Sizes, *, refuses_empty: bool = False) -> list[int] | None:
    """A constant target shape for Reshape that gives `wanted` from `source` at every size; None when there is none.

    0 copies the dim at the same place, one -1 stands for whatever remains. What remains of an empty batch is not
    determined, and the runtime refuses it: -1 does not go with a copied first dim.

    Args:
        source: the dims before.
        wanted: the dims after.
        refuses_empty: the model refuses an empty batch anyway.
    """
    if any(d == 0 for d in wanted):
        return None  # 0 would copy
    open_dims = 0
    target = []
    for index, dim in enumerate(wanted):
        if not isinstance(dim, Expr):
            target.append(dim)
        elif source is not None and index < len(source) and source[index] == dim:
            target.append(0)
        else:
            open_dims += 1
            target.append(-1)
    if open_dims == 0 and source is not None and len(source) > len(wanted) > 2 and target[1] == 0:
        # -1 says the same as 0 here. It keeps the runtime from seeing that attention's result has the shape of its
        # input, whereupon it would fuse SkipLayerNormalization, at 1.15 times the latency of a transformer.
        target[0 if target[0] == 0 else 1] = -1
        return target
    if open_dims == 1 and target[0] == 0 and not refuses_empty:
        return None
    return target if open_dims <= 1 else None

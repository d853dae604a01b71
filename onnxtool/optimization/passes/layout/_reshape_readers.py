"""Reshapes, and Shapes of some dims, that can just as well read the same elements with other dims."""

from __future__ import annotations

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, is_op
from onnxtool.model.operators.value_facts import Size, Sizes, elements_of, sizes_of
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.layout.reshapes import RESHAPES, become_reshape, reshape_target


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

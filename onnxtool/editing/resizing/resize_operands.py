"""Operands that have to be as large as what is dynamic now: broadcast, enlarged, or refused as baked."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.editing.resizing.positions import Axes, continued, counting
from onnxtool.editing.resizing.resize_context import BakedSizeError, Resizing, node_label
from onnxtool.model.ir.queries import producer
from onnxtool.model.operators.symbolic_dims import Expr
from onnxtool.model.operators.value_facts import Size, elements_of, set_sizes, sizes_of

_MOST = 1 << 24  # elements of a constant that is searched for repetition


def enlarge(state: Resizing, node: ir.Node, index: int, axis: int, wanted: Size, *, counted: bool = False) -> None:
    """Make an operand as large as `wanted` along an axis, where it has to be and is not.

    Args:
        state: the attempt.
        node: what reads the operand.
        index: of the operand.
        axis: counted from the front.
        wanted: the size.
        counted: whole numbers 0, 1, ... are indices of the dim, and go on counting.

    Raises:
        BakedSizeError: the operand has the old size, and its rows differ.
    """
    value = node.inputs[index]
    sizes = sizes_of(value)
    if value is None or sizes is None or axis >= len(sizes) or sizes[axis] == wanted or isinstance(sizes[axis], Expr):
        return
    old = state.old.number(wanted)
    if sizes[axis] != old:
        return
    if _repeat_whole(state, node, index, axis, wanted):
        return
    if counted and (made := counting(state, node, value, axis, wanted)) is not None:
        node.replace_input_with(index, made)
        state.note(node, f"{value.name!r} counts to {wanted}")
        return
    row = value if sizes[axis] == 1 else _row(state, node, value, axis)
    if row is None:
        follow(state, node, index, {axis: wanted})
        return
    target = [1] * len(sizes)
    shape = state.vector([*target[:axis], wanted, *target[axis + 1 :]], node, f"{value.name}_size")
    _expand(state, node, index, row, shape, value)
    state.note(node, f"{value.name!r} is repeated {wanted} times")


def shrink(state: Resizing, node: ir.Node, index: int, axes: Axes) -> None:
    """Give an operand of the old sizes the size 1 along axes, so that it broadcasts, or have it follow the new ones.

    Raises:
        BakedSizeError: its rows differ, and nothing says how they go on.
    """
    followed = {}
    for axis, wanted in axes.items():
        if _repeat_whole(state, node, index, axis, wanted):
            continue
        value = node.inputs[index]
        assert value is not None
        row = _row(state, node, value, axis)
        if row is None:
            followed[axis] = wanted
        else:
            node.replace_input_with(index, row)
            state.note(node, f"{value.name!r} is the same in every row, so one is kept")
    if followed:
        follow(state, node, index, followed)


def follow(state: Resizing, node: ir.Node, index: int, axes: Axes) -> None:
    """Have an operand go on along axes.

    Raises:
        BakedSizeError: nothing says how.
        GoesOnError: it is made of constants that do.
    """
    value = node.inputs[index]
    assert value is not None
    made = continued(state, node, index, axes)
    if made is None:
        what = "the weight" if value.const_value is not None else "the tensor"
        size, wanted = next(((sizes_of(value) or ())[axis], wanted) for axis, wanted in axes.items())
        raise BakedSizeError(
            f"{node_label(node)} reads {what} {value.name!r}, which is made for the size {size} "
            f"where {wanted} is needed now."
        )
    node.replace_input_with(index, made)
    state.note(node, f"{value.name!r} goes on to {', '.join(map(str, axes.values()))}")


def _repeat_whole(state: Resizing, node: ir.Node, index: int, axis: int, wanted: Size) -> bool:
    """An operand with k rows where k rows for each of the batch are needed: the same ones for each.

    With a batch of 1 nothing told them from rows for the whole batch. Rows of the batch lie one after the other, or,
    as an alternative, in turn. False when this is not such a case.
    """
    value = node.inputs[index]
    sizes = sizes_of(value)
    if value is None or sizes is None or not isinstance(wanted, Expr) or node.graph is not state.model.graph:
        return False
    parts = state.old.factors(wanted, state.old.number(wanted))
    rest = state.old.rest(wanted, parts)
    if len(parts) != 1 or parts[0][1] != 1 or not isinstance(rest, int) or rest < 2 or sizes[axis] != rest:
        return False
    in_turn = state.choose(node, 2) == 1
    at = axis + 1 if in_turn else axis
    shape = [*sizes[:at], 1, *sizes[at:]]
    if not all(isinstance(d, int) for d in shape):
        return False
    apart = state.insert(
        "Reshape", [value, state.vector(shape, node, f"{value.name}_apart")], [], f"{value.name}_apart"
    )
    many = state.vector([parts[0][0] if i == at else 1 for i in range(len(shape))], node, f"{value.name}_times")
    repeated = state.insert("Expand", [apart, many], [], f"{value.name}_repeated")
    target = [-1 if i == axis else d for i, d in enumerate(sizes)]
    made = state.insert(
        "Reshape", [repeated, state.vector(target, node, f"{value.name}_rows")], [], f"{value.name}_rows"
    )
    for step in (apart, repeated, made):
        step.type = value.type
    set_sizes(made, [wanted if i == axis else d for i, d in enumerate(sizes)])
    node.replace_input_with(index, made)
    state.note(node, f"{value.name!r} is the same for each of the batch")
    return True


def _row(state: Resizing, node: ir.Node, value: ir.Value, axis: int) -> ir.Value | None:
    """One row of an operand whose rows are all the same; None when they are not, or it cannot be said."""
    array = state.array(value)
    if array is not None and array.size <= _MOST:
        first = np.take(array, [0], axis)
        if not np.array_equal(array, np.broadcast_to(first, array.shape), equal_nan=array.dtype.kind == "f"):
            return None
        row = state.context.initializer(first, f"{value.name}_row")
        set_sizes(row, first.shape)
        return row
    made = producer(value if node.graph is state.model.graph else None, "Expand", "ConstantOfShape", "Tile")
    shape = made.inputs[0 if made.op_type == "ConstantOfShape" else 1] if made is not None else None
    items = elements_of(shape)
    sizes = sizes_of(value) or ()
    if made is not None and items is not None and items.complete and len(items.elements) == len(sizes):
        data = made.inputs[0]
        repeated = made.op_type != "Tile" or (sizes_of(data) or (0,))[axis] == 1
        data_size = (sizes_of(data) or ())[axis - len(sizes) :] if made.op_type == "Expand" else ()
        if data is not None and data_size and data_size[0] != 1:  # it repeats along other axes
            data = _row(state, node, data, axis - len(sizes) + len(sizes_of(data) or ()))
        if repeated and data is not None:
            target = [1 if i == axis else e for i, e in enumerate(items.elements)]
            vector = state.vector([t for t in target if t is not None], node, f"{value.name}_shape")
            inputs = [vector] if made.op_type == "ConstantOfShape" else [data, vector]
            row = state.insert(made.op_type, inputs, list(made.attributes.values()), f"{value.name}_row")
            row.type = value.type
            set_sizes(row, [1 if i == axis else d for i, d in enumerate(sizes)])
            return row
    return None


def _expand(state: Resizing, node: ir.Node, index: int, row: ir.Value, shape: ir.Value, value: ir.Value) -> None:
    inner = node.graph is not state.model.graph
    context = state.context
    before = node if inner else state.position
    assert before is not None
    made = context.insert(before, "Expand", [row, shape], [], base=f"{value.name}_repeated")
    made.type = value.type
    elements, sizes = elements_of(shape), sizes_of(row)
    if elements is not None and sizes is not None:
        set_sizes(made, [e if e != 1 and e is not None else s for e, s in zip(elements.elements, sizes, strict=True)])
    node.replace_input_with(index, made)

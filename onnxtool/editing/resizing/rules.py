"""What each operator needs when a dim of its input becomes dynamic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from onnxtool.editing.resizing import targets
from onnxtool.editing.resizing.resize_context import Resizing
from onnxtool.editing.resizing.resize_operands import enlarge, shrink
from onnxtool.model.ir.queries import attribute, constant_array
from onnxtool.model.operators.layout_rules import axes_of
from onnxtool.model.operators.symbolic_dims import Expr
from onnxtool.model.operators.table import named
from onnxtool.model.operators.value_facts import Size, integers, set_sizes, sizes_of

Rule = Callable[[Resizing, ir.Node], None]


def _broadcast(state: Resizing, node: ir.Node) -> None:
    """Operands with the old size where another one has the new size."""
    _align(state, node, range(len(node.inputs)), 0)


def _align(state: Resizing, node: ir.Node, operands: Sequence[int], skipped: int) -> None:
    shapes = [sizes_of(node.inputs[i]) for i in operands]
    if any(s is None for s in shapes):
        return
    known = [s for s in shapes if s is not None]
    old_sized: dict[int, dict[int, Size]] = {index: {} for index in operands}
    for position in range(1 + skipped, max((len(s) for s in known), default=0) + 1):
        dims = [s[-position] if len(s) >= position else 1 for s in known]
        wanted = next((d for d in dims if state.old.changes(d)), None)
        if not isinstance(wanted, Expr):
            continue
        for index, dim, sizes in zip(operands, dims, known, strict=True):
            if isinstance(dim, int) and dim != 1 and dim == state.old.number(wanted):
                old_sized[index][len(sizes) - position] = wanted
    for index, axes in old_sized.items():
        shrink(state, node, index, axes)


def _gemm(state: Resizing, node: ir.Node) -> None:
    """A bias with one row for each of the batch."""
    data = sizes_of(node.inputs[0])
    bias = sizes_of(node.inputs[2]) if len(node.inputs) > 2 else None
    if not data or not bias or len(bias) != 2:
        return
    rows = data[1 if attribute(node, "transA", 0) else 0]
    if isinstance(rows, Expr) and isinstance(bias[0], int) and bias[0] != 1 and state.old.changes(rows):
        shrink(state, node, 2, {0: rows})


def _concat(state: Resizing, node: ir.Node) -> None:
    """All parts have the same size in every dim but one."""
    shapes = [sizes_of(v) for v in node.inputs]
    if any(s is None for s in shapes) or len({len(s) for s in shapes if s is not None}) != 1:
        return
    known = [s for s in shapes if s is not None]
    joined = attribute(node, "axis", 1) % len(known[0]) if known[0] else 0
    indexing = any(u.node.op_type in ("GatherND", "ScatterND") for u in node.outputs[0].uses())
    changed = [next((s[axis] for s in known if state.old.changes(s[axis])), None) for axis in range(len(known[0]))]
    larger = [(axis, wanted) for axis, wanted in enumerate(changed) if axis != joined and wanted is not None]
    # A size of 1 is repeated last: what has many rows is looked into for what they are made of.
    for axis, wanted in sorted(larger, key=lambda pair: state.old.number(pair[1]) == 1):
        for index in range(len(node.inputs)):
            enlarge(state, node, index, axis, wanted, counted=indexing)


def _same_dims(*pairs: tuple[int, int, int, int]) -> Rule:
    """Operands whose dim follows that of another: (other, its axis, operand, its axis)."""

    def rule(state: Resizing, node: ir.Node) -> None:
        for other, axis, operand, own in pairs:
            sizes = sizes_of(node.inputs[other]) if other < len(node.inputs) else None
            if sizes and operand < len(node.inputs) and node.inputs[operand] is not None and axis < len(sizes):
                wanted = sizes[axis]
                if state.old.changes(wanted):
                    enlarge(state, node, operand, own, wanted)

    return rule


def _recurrent(state: Resizing, node: ir.Node) -> None:
    batch = 0 if attribute(node, "layout", 0) else 1
    _same_dims((0, batch, 4, 0), (0, batch, 5, batch), (0, batch, 6, batch))(state, node)


def _reverse_sequence(state: Resizing, node: ir.Node) -> None:
    """One length for each of the batch."""
    _same_dims((0, attribute(node, "batch_axis", 1), 1, 0))(state, node)


def _gather_elements(state: Resizing, node: ir.Node) -> None:
    data, indices = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
    if data is None or indices is None or len(data) != len(indices):
        return
    joined = attribute(node, "axis", 0) % len(data)
    for axis in range(len(data)):
        if axis != joined and state.old.changes(data[axis]):
            enlarge(state, node, 1, axis, data[axis])
        elif axis != joined and state.old.changes(indices[axis]):
            enlarge(state, node, 0, axis, indices[axis])
    if node.op_type == "ScatterElements":
        for axis in range(len(data)):
            wanted = (sizes_of(node.inputs[1]) or indices)[axis]
            if state.old.changes(wanted):
                enlarge(state, node, 2, axis, wanted)


def _nd_indices(state: Resizing, node: ir.Node) -> None:
    """Constant indices whose first number counts the batch."""
    data, indices = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
    array = state.array(node.inputs[1])
    if not data or not indices or attribute(node, "batch_dims", 0) or not state.old.changes(data[0]) or array is None:
        return
    old = state.old.number(data[0])
    if array.ndim < 2 or array.shape[0] != old or not array.size:
        return
    first = array[..., 0]
    counts = np.arange(old).reshape((-1,) + (1,) * (first.ndim - 1))
    row = array[:1].copy()
    row[..., 0] = 0
    if not (first == counts).all() or (array[..., 1:] != row[..., 1:]).any():
        state.suspects.append((node, "has indices for the old size only"))
        return
    batch = data[0]
    steps = state.count_to(batch, node)
    column = state.insert(
        "Reshape", [steps, state.constant([-1] + [1] * (array.ndim - 1), "batch_column")], [], "batch_index"
    )
    unit = np.zeros((1,) * (array.ndim - 1) + (array.shape[-1],), np.int64)
    unit[..., 0] = 1
    offset = state.insert("Mul", [column, state.context.initializer(unit, "batch_unit")], [], "batch_offset")
    base = state.context.initializer(row.astype(np.int64), f"{node.name}_indices")
    made = state.insert("Add", [base, offset], [], "indices")
    set_sizes(made, (batch, *array.shape[1:]))
    node.replace_input_with(1, made)
    state.note(node, f"indices of the batch count to {batch}")
    if node.op_type == "ScatterND" and len(node.inputs) > 2:
        enlarge(state, node, 2, 0, batch)


def _gather(state: Resizing, node: ir.Node) -> None:
    """An index into the dim itself: all of it, or one element, which drops the others."""
    data = sizes_of(node.inputs[0])
    if not data:
        return
    axis = attribute(node, "axis", 0) % len(data)
    if not state.old.changes(data[axis]):
        return
    array = constant_array(node.inputs[1])
    old = state.old.number(data[axis])
    if array is not None and array.ndim == 1 and array.size == old and (array == np.arange(old)).all():
        everything = state.count_to(data[axis], node)
        node.replace_input_with(1, everything)
        state.note(node, f"indices count to {data[axis]}")
    elif _of_every_picture(state, node, data[axis], old, array):
        return
    elif array is not None:
        which = array.reshape(-1)[0] if array.size else "no"
        state.suspects.append((node, f"takes element {which} of the dim"))
    else:
        _merged_rows(state, node, data[axis], old)


def _merged_rows(state: Resizing, node: ir.Node, size: Size, old: int) -> None:
    """Indices into rows of all pictures one after the other: those of the second picture begin after the first's.

    With a batch of 1 the offsets were 0, and an exporter leaves no trace of them; so that is an alternative.
    """
    axes = state.changed(node.inputs[1])
    parts = state.old.factors(size, old)
    rest = state.old.rest(size, parts)
    if len(axes) != 1 or len(parts) != 1 or parts[0][1] != 1 or rest is None:
        return
    wanted = (sizes_of(node.inputs[1]) or ())[axes[0]]
    if wanted == parts[0][0] and node.graph is state.model.graph and state.choose(node, 2) == 1:
        _offset_rows(state, node, axes[0], wanted, rest)


def _of_every_picture(state: Resizing, node: ir.Node, size: Size, old: int, array: np.ndarray | None) -> bool:
    """Indices of constants and sizes alone into what was one picture and now are all of them, one after the other."""
    parts = [(part, number) for part, number in state.old.factors(size, old) if number == 1]
    rest = state.old.rest(size, parts)
    places = [i for i, n in enumerate(sizes_of(node.inputs[1]) or ()) if n == 1]
    if len(parts) != 1 or rest is None or rest == 1 or not places:
        return False
    if node.graph is not state.model.graph or not state.is_of_sizes(node.inputs[1]):
        return False
    if array is not None and (array < 0).any():
        return False
    _offset_rows(state, node, places[0], parts[0][0], rest)
    return True


def _offset_rows(state: Resizing, node: ir.Node, axis: int, wanted: Size, rest: Size) -> None:
    """Add to indices, along an axis, what each of the batch begins at."""
    sizes = sizes_of(node.inputs[1]) or ()
    shape = [1] * len(sizes)
    shape[axis] = -1
    column = state.insert("Reshape", [state.count_to(wanted, node), state.constant(shape, "column")], [], "row_index")
    offset = state.insert("Mul", [column, state.scalar(rest, node)], [], "row_offset")
    kind = node.inputs[1].dtype if node.inputs[1] is not None else None
    if kind is not None and kind != ir.DataType.INT64:
        offset = state.insert("Cast", [offset], [ir.AttrInt64("to", int(kind))], "row_offset")
        offset.type = ir.TensorType(kind)
    made = state.insert("Add", [node.inputs[1], offset], [], "indices")
    made.type = node.inputs[1].type if node.inputs[1] is not None else None
    set_sizes(made, [wanted if i == axis else d for i, d in enumerate(sizes)])
    node.replace_input_with(1, made)
    state.note(node, f"indices of each of the batch begin after the one before, {rest} further")


def _squeeze(state: Resizing, node: ir.Node) -> None:
    """The dim that changes is not removed: another one was meant, or (as an alternative) its reader can do with it."""
    changed = state.changed(node.inputs[0])
    if not changed:
        return
    data, axes = sizes_of(node.inputs[0]) or (), axes_of(node)
    old = state.old.of(node.inputs[0]) or data
    if axes is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        return
    gone = [a % len(data) for a in axes] if axes is not None else [i for i, d in enumerate(old) if d == 1]
    kept = [a for a in gone if a not in changed]
    if len(kept) < len(gone):
        if state.choose(node, 2) == 0:
            state.suspects.append((node, "removes the dim"))
            return
    elif axes is not None:
        return
    if not kept:
        state.context.replace_op(node, "Identity", [node.inputs[0]])
    elif state.opset >= 13:
        node.resize_inputs(2)
        node.replace_input_with(1, state.constant(kept, "squeezed_axes"))
    else:
        node.attributes["axes"] = ir.AttrInt64s("axes", kept)
    state.note(node, f"only axes {kept} are removed")


def _reduces(state: Resizing, node: ir.Node) -> None:
    data = sizes_of(node.inputs[0])
    changed = state.changed(node.inputs[0])
    if not data or not changed:
        return
    axes = axes_of(node) or (() if attribute(node, "noop_with_empty_axes", 0) else tuple(range(len(data))))
    if any(a % len(data) in changed for a in axes):
        state.suspects.append((node, "reduces over the dim"))


def _along(default: int, what: str) -> Rule:
    def rule(state: Resizing, node: ir.Node) -> None:
        data = sizes_of(node.inputs[0])
        if data and attribute(node, "axis", default) % len(data) in state.changed(node.inputs[0]):
            state.suspects.append((node, what))

    return rule


def _cumulative(state: Resizing, node: ir.Node) -> None:
    data, axis = sizes_of(node.inputs[0]), integers(node.inputs[1])
    if data and axis and axis[0] % len(data) in state.changed(node.inputs[0]):
        state.suspects.append((node, "adds up along the dim"))


def _mixes(state: Resizing, node: ir.Node) -> None:
    if state.changed(node.inputs[0]):
        state.suspects.append((node, "computes one scale for the whole tensor"))


RULES: dict[str, Rule] = {
    **dict.fromkeys(named(shape="broadcast"), _broadcast),
    **dict.fromkeys(named(shape="reduce"), _reduces),
    **dict.fromkeys(named(shape="recurrent"), _recurrent),
    "Reshape": targets.reshape,
    "Flatten": targets.flatten,
    "Expand": targets.expand,
    "Slice": targets.slices,
    "Resize": targets.resize,
    "MatMul": lambda state, node: _align(state, node, range(2), 2),
    "Gemm": _gemm,
    "Concat": _concat,
    "GridSample": _same_dims((0, 0, 1, 0), (1, 0, 0, 0)),
    "NonMaxSuppression": _same_dims((0, 0, 1, 0), (1, 0, 0, 0)),
    "ReverseSequence": _reverse_sequence,
    "GatherElements": _gather_elements,
    "ScatterElements": _gather_elements,
    "GatherND": _nd_indices,
    "ScatterND": _nd_indices,
    "Gather": _gather,
    "Squeeze": _squeeze,
    "Split": _along(0, "splits the dim"),
    "ArgMax": _along(0, "searches along the dim"),
    "ArgMin": _along(0, "searches along the dim"),
    "TopK": _along(-1, "sorts along the dim"),
    "Softmax": _along(-1, "normalizes along the dim"),
    "LogSoftmax": _along(-1, "normalizes along the dim"),
    "CumSum": _cumulative,
    "DynamicQuantizeLinear": _mixes,
}

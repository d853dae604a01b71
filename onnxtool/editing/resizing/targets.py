"""Constants that say how large a result is: targets of Reshape and Expand, ends of Slice, sizes of Resize."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import onnx_ir as ir

from onnxtool.editing.resizing.reshape_targets import moved_batch, placements, turned_rows
from onnxtool.editing.resizing.resize_context import Resizing
from onnxtool.editing.resizing.resize_operands import shrink
from onnxtool.model.ir.queries import attribute
from onnxtool.model.operators.layout_rules import reshaped
from onnxtool.model.operators.symbolic_dims import Expr, exact_divide, floor_divide, multiply, product
from onnxtool.model.operators.table import operator_of
from onnxtool.model.operators.value_facts import Size, Sizes, elements_of, integers, set_sizes, sizes_of

_TO_THE_END = 2**63 - 1
_HUGE = 1 << 30


def reshape(state: Resizing, node: ir.Node) -> None:
    """Put what changes into the target: 0 where the dim is copied, -1 where one dim is open, else computed."""
    data, old_data = sizes_of(node.inputs[0]), state.old.of(node.inputs[0])
    if data is None or old_data is None or len(old_data) != len(data) or not state.changed(node.inputs[0]):
        return
    copies = not attribute(node, "allowzero", 0)
    wanted = _target(state, node, data)
    if wanted is None:
        return
    now = reshaped(data, wanted, copies)
    old_target = _old_target(old_data, wanted, copies)
    if old_target is None:
        return
    follows = [i for i, w in enumerate(wanted) if w == -1 or (w == 0 and copies)]
    options = placements(data, old_data, old_target, state.old, follows)
    if not options:
        return
    order = moved_batch(data, old_data, old_target, options[0], state.old)
    turned = turned_rows(data, old_data, old_target, options[0], state.old)
    choice = state.choose(node, len(options) + (order is not None) + (turned is not None))
    if turned is not None and choice == len(options) + (order is not None):
        _turn_rows(state, node, *turned)
        return
    if order is not None and choice == 0:
        state.context.replace_op(node, "Transpose", [node.inputs[0]], [ir.AttrInt64s("perm", order)])
        state.note(node, f"a Reshape that moved a dim of 1 is a Transpose to {order}")
        return
    chosen = options[choice - (order is not None)]
    if now == chosen or not all(state.old.is_known(s) for s in chosen if isinstance(s, int) and s):
        return
    cut = _cut(state, node, data, chosen, old_target)
    fresh: list[Size] = []
    open_at = None
    for index, size in enumerate(chosen):
        if isinstance(size, int):
            fresh.append(size)
        elif copies and index < len(data) and data[index] == size:
            fresh.append(0)
        elif open_at is None and not cut:
            open_at = index
            fresh.append(-1)
        else:
            fresh.append(size)
    if len(node.inputs) < 2:
        node.attributes["shape"] = ir.AttrInt64s("shape", [n if isinstance(n, int) else -1 for n in fresh])
    else:
        _replace(state, node, 1, fresh)
    state.note(node, f"target {_told(wanted)} is now {_told(fresh)}")


def _target(state: Resizing, node: ir.Node, data: Sizes) -> tuple[Size | None, ...] | None:
    """What a Reshape says, with the old numbers; None where that is computed from sizes, and holds what there is."""
    items = elements_of(node.inputs[1]) if len(node.inputs) > 1 else None
    wanted = items.elements if items is not None else attribute(node, "shape")
    if wanted is None or not any(isinstance(w, Expr) for w in wanted):
        return wanted if wanted is None else tuple(wanted)
    numbers = [w for w in wanted if w not in (None, 0, -1)]
    if len(numbers) < len(wanted) or product(numbers) == product(data):
        return None
    return tuple(state.old.number(w) for w in numbers)


def _cut(
    state: Resizing, node: ir.Node, data: tuple[Size, ...], chosen: tuple[Size, ...], old: tuple[int, ...]
) -> bool:
    """Whether a dim is cut into several, as into windows; no file tells which of them grows."""
    known = [q for q in state.old.quotients if not any(exact_divide(d, q) for d in data)]
    grown = [n for size, n in zip(chosen, old, strict=True) if any(exact_divide(size, q) for q in known)]
    stay = [n for size, n in zip(chosen, old, strict=True) if n > 1 and isinstance(size, int)]
    if grown:
        told = " and ".join(map(str, dict.fromkeys(grown)))
        state.assumed.append((node, f"{told} of its target grows and {', '.join(map(str, stay))} do not"))
    for size, number in zip(data, state.old.of(node.inputs[0]) or (), strict=False):
        if size not in chosen and state.old.is_unclear(size, number):
            state.assumed.append((node, f"the dims of {size} are taken apart in the order of the inputs"))
    return bool(grown)


def _turn_rows(state: Resizing, node: ir.Node, sizes: list[Size], place: int) -> None:
    """Rows that lie in turn are set apart, and then put one after the other."""
    if node.graph is not state.model.graph:
        return
    shape = state.vector(sizes, node, f"{node.outputs[0].name}_in_turn")
    apart = state.insert("Reshape", [node.inputs[0], shape], [], f"{node.outputs[0].name}_in_turn")
    apart.type = node.outputs[0].type
    set_sizes(apart, sizes)
    perm = [*range(place), place + 1, place, *range(place + 2, len(sizes))]
    state.context.replace_op(node, "Transpose", [apart], [ir.AttrInt64s("perm", perm)])
    state.note(node, "rows of the batch, which lie in turn, are put one after the other")


def _old_target(old_data: tuple[int, ...], wanted: tuple[Size | None, ...], copies: bool) -> tuple[int, ...] | None:
    found = reshaped(old_data, wanted, copies)
    sizes = tuple(s for s in found or () if isinstance(s, int))
    return sizes if found is not None and len(sizes) == len(found) and prod(sizes) == prod(old_data) else None


def _replace(state: Resizing, node: ir.Node, index: int, sizes: list[Size]) -> None:
    """Give a node another shape operand."""
    old = node.inputs[index]
    base = f"{old.name if old is not None else node.name}_resized"
    if all(isinstance(s, int) for s in sizes):
        value = state.constant([s for s in sizes if isinstance(s, int)], base)
    else:
        value = state.vector(sizes, node, base)
    node.replace_input_with(index, value)


def _told(sizes: tuple[Size | None, ...] | list[Size]) -> str:
    return f"[{', '.join('?' if s is None else str(s) for s in sizes)}]"


def flatten(state: Resizing, node: ir.Node) -> None:
    """Flatten from axis 0 puts everything, the batch too, into one row."""
    data = sizes_of(node.inputs[0])
    if data and attribute(node, "axis", 1) in (0, -len(data)) and state.changed(node.inputs[0]) == [0]:
        node.attributes["axis"] = ir.AttrInt64("axis", 1)
        state.note(node, "axis 0 is now 1")


def expand(state: Resizing, node: ir.Node) -> None:
    """Where the data has the size that changes, the target need not say it."""
    data, items = sizes_of(node.inputs[0]), elements_of(node.inputs[1])
    if data is None or items is None or not items.complete:
        return
    elements = [e for e in items.elements if e is not None]
    changed = False
    for axis in state.changed(node.inputs[0]):
        place = axis - len(data) + len(elements)
        if place >= 0 and isinstance(elements[place], int) and elements[place] != 1:
            elements[place] = 1
            changed = True
    for place, element in enumerate(elements):
        axis = place - len(elements) + len(data)
        if axis >= 0 and state.old.changes(element) and isinstance(data[axis], int) and data[axis] != 1:
            shrink(state, node, 0, {axis: element})
    if changed:
        _replace(state, node, 1, elements)
        state.note(node, f"target {_told(items.elements)} is now {_told(elements)}")


def repeat_to(state: Resizing, node: ir.Node, axes: Mapping[int, Size]) -> None:
    """Have an Expand repeat a dim of 1 up to sizes of its output."""
    items = elements_of(node.inputs[1])
    if items is not None and items.complete:
        shift = len(items.elements) - len(state.old.of(node.outputs[0]) or ())
        _replace(state, node, 1, [axes.get(i - shift, e or 1) for i, e in enumerate(items.elements)])


def slices(state: Resizing, node: ir.Node) -> None:
    """A slice up to the old size goes to the end, or to the size of what it is added to or joined with."""
    old, data = state.old.of(node.inputs[0]), sizes_of(node.inputs[0])
    changed = state.changed(node.inputs[0])
    if old is None or data is None or not changed:
        return
    attributes = len(node.inputs) == 1
    starts = attribute(node, "starts", ()) if attributes else integers(node.inputs[1])
    ends = attribute(node, "ends", ()) if attributes else integers(node.inputs[2])
    if starts is None or ends is None:
        return
    axes = attribute(node, "axes") if attributes else None
    if not attributes and len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = integers(node.inputs[3])
        if axes is None:
            return
    axes = axes if axes is not None else tuple(range(len(starts)))
    narrow = not attributes and node.inputs[2] is not None and node.inputs[2].dtype == ir.DataType.INT32
    fresh: list[Size] = list(ends)
    for place, given in enumerate(axes):
        axis = given % len(old)
        if axis not in changed:
            continue
        if ends[place] == old[axis]:
            fresh[place] = _TO_THE_END
            if starts[place] in (0, -old[axis]):
                met = met_size(state, node.outputs[0], axis, old[axis]) or state.old.root(old[axis])
                if met is not None and met != data[axis] and not (attributes or narrow):
                    fresh[place] = met
                else:
                    state.whole.append((node, axis))
        elif abs(ends[place]) < _HUGE or starts[place] not in (0, -old[axis]):
            state.suspects.append((node, "takes a part of the dim"))
    if fresh != list(ends):
        numbers = [n for n in fresh if isinstance(n, int)]
        if attributes:
            node.attributes["ends"] = ir.AttrInt64s("ends", numbers)
        elif len(numbers) < len(fresh):
            _replace(state, node, 2, fresh)
        else:
            held = np.minimum(numbers, 2**31 - 1).astype(np.int32) if narrow else np.array(numbers, np.int64)
            node.replace_input_with(2, state.context.initializer(held, "slice_ends"))
        told = [("the end" if n == _TO_THE_END else str(n)) for n in fresh]
        state.note(node, f"ends {list(ends)} are now {', '.join(told)}")


def resize(state: Resizing, node: ir.Node) -> None:
    """Sizes of Resize: that of the batch follows the data, others by the factor that they had."""
    data, old = sizes_of(node.inputs[0]), state.old.of(node.inputs[0])
    if data is None or old is None or len(node.inputs) < 4 or node.inputs[3] is None:
        return
    wanted = integers(node.inputs[3])
    axes = attribute(node, "axes") or tuple(range(len(data)))
    if wanted is None or len(wanted) != len(axes):
        return
    fresh: list[Size] = list(wanted)
    for place, axis in enumerate(axes):
        size = data[axis % len(data)]
        if not state.old.changes(size):
            continue
        met = met_size(state, node.outputs[0], axis % len(data), wanted[place])
        if wanted[place] == old[axis % len(data)]:
            state.whole.append((node, axis % len(data)))
        if met is not None:
            fresh[place] = met
        else:
            fresh[place] = _by_factor(size, old[axis % len(data)], wanted[place])
            if wanted[place] != old[axis % len(data)]:
                factor = wanted[place] / max(old[axis % len(data)], 1)
                state.assumed.append((node, f"{wanted[place]} is {factor:g} times the dim, and no size of its own"))
    if fresh != list(wanted):
        _replace(state, node, 3, fresh)
        state.note(node, f"sizes {list(wanted)} are now {_told(fresh)}")


def met_size(state: Resizing, value: ir.Value, axis: int, wanted: int) -> Size | None:
    """The size of what a value is added to or joined with, which it has to have at every size; None without such."""
    rank = len(sizes_of(value) or state.old.of(value) or ())
    for user in dict.fromkeys(use.node for use in value.uses()):
        broadcast = operator_of(user).shape == "broadcast"
        if not broadcast and (user.op_type != "Concat" or attribute(user, "axis", 0) % rank == axis):
            continue
        for sizes in (sizes_of(v) for v in user.inputs if v is not value):
            place = axis - rank + len(sizes or ())
            size = sizes[place] if sizes and place >= 0 and (broadcast or len(sizes) == rank) else 0
            if wanted > 1 and state.old.changes(size) and state.old.number(size) == wanted:
                return size
    return None


def _by_factor(size: Size, old: int, wanted: int) -> Size:
    if old and wanted % old == 0:
        return multiply(size, wanted // old)
    if wanted and old % wanted == 0:
        return exact_divide(size, old // wanted) or floor_divide(size, old // wanted) or wanted
    return wanted

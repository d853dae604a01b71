"""The walk: every node in order, with the sizes that it gets now; constants made for the old sizes are rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import numpy as np
import onnx_ir as ir

from onnxtool.editing.resizing.resize_context import BakedSizeError, Resizing, node_key
from onnxtool.editing.resizing.resize_operands import enlarge, follow
from onnxtool.editing.resizing.rules import RULES
from onnxtool.editing.resizing.sizes import OldSizes
from onnxtool.editing.resizing.targets import repeat_to
from onnxtool.model.ir.editing import remove_unused
from onnxtool.model.ir.queries import attribute, bodies_of
from onnxtool.model.operators.shape_inference import infer_node
from onnxtool.model.operators.symbolic_dims import symbol
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.model.operators.value_facts import (
    Size,
    Sizes,
    declared_sizes,
    integers,
    set_elements,
    set_sizes,
    sizes_of,
)
from onnxtool.optimization.pass_context import PassContext

Dims = Mapping[str, Mapping[int, str]]  # input -> axis -> symbol


def rewrite(
    model: ir.Model,
    known: ir.Model,
    dims: Dims,
    choices: Mapping[str, int],
    indices: Mapping[str, np.ndarray] | None = None,
    measured: Mapping[str, tuple[int, ...]] | None = None,
    origins: Mapping[tuple[str, int], Mapping[int, Size]] | None = None,
) -> Resizing:
    """Make dims of inputs dynamic, and rewrite what was made for their old sizes.

    Args:
        model: changed in place; all values have names of their own.
        known: the model as it was, with types and sizes worked out.
        dims: the dims that become dynamic.
        choices: which alternative to take at nodes where a size fits in several places.
        indices: what computed indices were, by name.
        measured: dims that a run of the old model had.
        origins: operands that go on, as an attempt before has found.

    Returns:
        What was done, and what may be in the way.

    Raises:
        BakedSizeError: a size is part of a weight.
        GoesOnError: it has to be tried with further operands that go on.
        UnsupportedError: a size is needed where it cannot be computed.
    """
    roots: dict[str, int] = {}
    for value in model.graph.inputs:
        for axis, name in dims.get(value.name or "", {}).items():
            old = list(value.shape or ())
            size = old[axis]
            if isinstance(size, int):
                roots.setdefault(name, size)
            value.shape = ir.Shape([name if i == axis else d for i, d in enumerate(old)])
    _forget(model, known)
    state = Resizing(model, PassContext(model), OldSizes(known, roots, measured), choices, indices, origins)
    for value in model.graph.inputs:
        sizes = declared_sizes(value)
        if sizes is not None:
            set_sizes(value, sizes)
            state.anchor(value)
    try:
        for node in list(model.graph):
            state.position = node
            _visit(state, node)
            state.passed(node)
    except BakedSizeError as error:
        error.ambiguous = dict(state.ambiguous)
        error.node = (state.position.name or "") if state.position is not None else ""
        raise
    _declare(state, known)
    remove_unused(model)
    return state


def _forget(model: ir.Model, known: ir.Model) -> None:
    """Shapes in the file are those of the old size; types are taken over where they are known."""
    types = {v.name: v.type for graph in known.graphs() for n in graph for v in n.outputs if v.name}
    for graph in model.graphs():
        for value in (*graph.inputs, *graph.initializers.values()):
            _clear(value)
        for node in graph:
            for value in node.outputs:
                _clear(value)
                value.shape = None
                value.type = value.type or types.get(value.name or "")
                if node.op_type == "Constant" and node.domain in STANDARD:
                    value.const_value = ir.convenience.get_const_tensor(value)


def _clear(value: ir.Value) -> None:
    for key in [k for k in value.meta if k.startswith("onnxtool.")]:
        del value.meta[key]


def _visit(state: Resizing, node: ir.Node) -> None:
    for index in range(len(node.inputs)):
        if axes := state.origins.get((node_key(node), index)):
            if node.op_type == "Gather" and (indices := state.array(node.inputs[index])) is not None:
                rows = (sizes_of(node.inputs[0]) or ())[attribute(node, "axis", 0)]
                state.limit(axes.values(), rows, indices)
            if node.op_type == "Expand" and index == 1:
                repeat_to(state, node, axes)
            else:
                follow(state, node, index, axes)
    rule = RULES.get(node.op_type) if node.domain in STANDARD else None
    if rule is not None:
        # An input is missing or odd: the node stays as it is, and the proof tells.
        with suppress(ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, AttributeError):
            rule(state, node)
    if operator_of(node).has_bodies:
        _bodies(state, node)
        return
    infer_node(node, state.opset)
    if not operator_of(node).shape or sizes_of(node.outputs[0]) is None:
        for value in node.outputs:
            _follow(state, node, value)


def _follow(state: Resizing, node: ir.Node, value: ir.Value) -> None:
    """The dims of an output without a rule: those that it had, and the input's where it had the same."""
    old = state.old.of(value)
    source = next((v for v in node.inputs if v is not None and state.changed(v)), None)
    if old is None or value.const_value is not None:
        return
    if source is None:
        if sizes_of(value) is None and all(d < 100_000 for d in old):
            set_sizes(value, old)
        return
    data, before = sizes_of(source) or (), state.old.of(source) or ()
    result: list[Size] = list(old)
    for axis in state.changed(source):
        if axis >= len(old) or axis >= len(before) or (axis and len(old) != len(before)):
            continue
        same = before[axis] == old[axis]
        result[axis] = data[axis] if same else symbol(f"?{value.name}.{axis}")
    set_sizes(value, result)
    set_elements(value, None)


def _bodies(state: Resizing, node: ir.Node) -> None:
    """Subgraphs, with the sizes that their inputs have in the first turn."""
    bodies = bodies_of(node)
    for _ in range(2):  # a second time when a carried value had to be enlarged
        for body in bodies:
            _enter(node, body)
            for inner in list(body):
                _visit(state, inner)
        if node.op_type == "If" or not _carry(state, node, bodies[0]):
            break
    _leave(state, node, bodies)


def _enter(node: ir.Node, body: ir.Graph) -> None:
    for index, value in enumerate(body.inputs):
        sizes = None
        if node.op_type == "Loop":
            outer = node.inputs[index] if index < len(node.inputs) else None
            sizes = () if index < 2 else sizes_of(outer)
        elif node.op_type == "Scan":
            outer = node.inputs[index] if index < len(node.inputs) else None
            scanned = index - (len(node.inputs) - int(attribute(node, "num_scan_inputs", 0)))
            sizes = sizes_of(outer)
            if scanned >= 0 and sizes:
                axis = _scan_axis(node, "scan_input_axes", scanned, len(sizes))
                sizes = (*sizes[:axis], *sizes[axis + 1 :])
        value.meta["onnxtool.sizes"] = sizes


def _carry(state: Resizing, node: ir.Node, body: ir.Graph) -> bool:
    """Give values that a loop carries the size that they leave its body with."""
    first, shift = (2, 1) if node.op_type == "Loop" else (0, 0)
    count = len(node.inputs) - first
    if node.op_type == "Scan":
        count -= int(attribute(node, "num_scan_inputs", 0))
    grown = False
    for index in range(count):
        inner = sizes_of(body.outputs[index + shift]) if index + shift < len(body.outputs) else None
        outer = sizes_of(node.inputs[first + index])
        if inner is None or outer is None or len(inner) != len(outer):
            continue
        for axis, size in enumerate(inner):
            if state.old.changes(size) and isinstance(outer[axis], int):
                value = node.inputs[first + index]
                enlarge(state, node, first + index, axis, size)
                grown = grown or node.inputs[first + index] is not value
    return grown


def _leave(state: Resizing, node: ir.Node, bodies: list[ir.Graph]) -> None:
    body = bodies[0]
    shift = 1 if node.op_type == "Loop" else 0
    carried = len(node.inputs) - (2 if node.op_type == "Loop" else 0)
    if node.op_type == "Scan":
        carried -= int(attribute(node, "num_scan_inputs", 0))
    for index, value in enumerate(node.outputs):
        inner = sizes_of(body.outputs[index + shift]) if index + shift < len(body.outputs) else None
        if node.op_type == "If" and len(bodies) > 1 and inner != sizes_of(bodies[1].outputs[index]):
            inner = None
        if inner is not None and node.op_type != "If" and index >= carried:
            inner = _stacked(state, node, index - carried, value, inner)
        if inner is not None:
            set_sizes(value, inner)
        else:
            _follow(state, node, value)


def _stacked(state: Resizing, node: ir.Node, index: int, value: ir.Value, inner: Sizes) -> Sizes:
    """The dims of what every turn of a loop gives, one beside the other."""
    axis, old = _scan_axis(node, "scan_output_axes", index, len(inner) + 1), state.old.of(value)
    turns: Size = symbol(f"?{value.name}.{axis}")
    if node.op_type == "Scan":
        scanned = sizes_of(node.inputs[-1]) or (turns,)
        turns = scanned[_scan_axis(node, "scan_input_axes", attribute(node, "num_scan_inputs", 1) - 1, len(scanned))]
    elif old and old[axis] < 100_000 and integers(node.inputs[0]):
        turns = old[axis]
    return (*inner[:axis], turns, *inner[axis:])


def _scan_axis(node: ir.Node, name: str, index: int, rank: int) -> int:
    """Along which axis a Scan takes or gives its turns; 0 for a Loop."""
    axes = attribute(node, name, ())
    return int(axes[index]) % rank if index < len(axes) else 0


def _open_changed(value: ir.Value) -> None:
    """Dims of a body's input that change are left open; the others stay as the file declares them."""
    declared = None if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]
    sizes = value.meta.get("onnxtool.sizes")
    if declared is None:
        value.shape = None if sizes is None else ir.Shape([None] * len(sizes))
    elif sizes is None or len(sizes) != len(declared):
        value.shape = ir.Shape([None] * len(declared))
    else:
        value.shape = ir.Shape([d if s == d else None for s, d in zip(sizes, declared, strict=True)])


def _declare(state: Resizing, known: ir.Model) -> None:
    """Write the outputs' new dims, and no other ones: what the file said of inner tensors was for the old size."""
    model = state.model
    before = {v.name: v.shape for v in known.graph.outputs}
    for graph in model.graphs():
        for node in graph:
            for value in node.outputs:
                if graph is not model.graph or not value.is_graph_output():
                    value.shape = None
    for body in model.graphs():
        if body is not model.graph:
            for value in body.inputs:  # the runtime wants to know their rank
                _open_changed(value)
            for value in body.outputs:
                sizes = sizes_of(value)
                if value.const_value is None and (sizes is not None or value.shape is not None):
                    dims = sizes if sizes is not None else [None] * len(value.shape or ())
                    value.shape = ir.Shape([s if isinstance(s, int) else None for s in dims])
    for value in model.graph.outputs:
        sizes, old = sizes_of(value), before.get(value.name)
        if sizes is not None:
            value.shape = ir.Shape([s if isinstance(s, int) else None if s.anonymous else str(s) for s in sizes])
        elif old is not None:
            value.shape = ir.Shape([None] * len(old))

"""Rotary position embedding: half of each head is turned against the other by an angle of its position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.model.operators.layout_rules import slice_bounds
from onnxtool.model.operators.symbolic_dims import multiply
from onnxtool.model.operators.value_facts import Sizes, set_sizes, sizes_of
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import MICROSOFT, PassContext, insert_fused
from onnxtool.optimization.passes.cleanup.operator_chains import permutation
from onnxtool.optimization.patterns.operands import pairs

_TO_HEADS = [0, 2, 1, 3]
_HALVES_STAY = ("Cos", "Sin", "Unsqueeze", "Reshape", "Cast", "Mul", "Div")


@dataclass(frozen=True)
class _Rotation:
    """x * cos + rotate_half(x) * sin, with cos and sin of shape [length, width] behind dims of 1."""

    source: ir.Value
    cos: ir.Value
    sin: ir.Value


class FuseRotaryEmbedding:
    """x * cos + rotate_half(x) * sin, as LLaMA's exports have it -> the runtime's RotaryEmbedding(x)."""

    # The operator takes one half of the angles only, so that both halves must be the same value for certain.
    name = "fuse-rotary-embedding"
    level = Level.ALL

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Start from the sum; positions must be the same for the whole batch."""
        count = 0
        caches: dict[tuple[ir.Value, int], ir.Value] = {}
        for node in context.nodes(model, "Add"):
            found = _match(node)
            if found is None or not (_repeats(found.cos, context) and _repeats(found.sin, context)):
                continue
            start = context.initializer(np.array([0], np.int64), f"{node.outputs[0].name}_start")
            halves = []
            for value in (found.cos, found.sin):
                key = (value, id(node.graph))
                if key not in caches:
                    caches[key] = _half(value, context)
                halves.append(caches[key])
            _build(node, found.source, [start, *halves], context)
            count += 1
        return count


def _build(node: ir.Node, source: ir.Value, rest: list[ir.Value], context: PassContext) -> None:
    """Turn the heads before they are transposed where that is possible, so that attention can take the Transpose in."""
    turn, sizes = producer(source, "Transpose"), sizes_of(node.outputs[0])
    apart = producer(turn.inputs[0], "Reshape") if turn is not None and permutation(turn) == _TO_HEADS else None
    flat = apart.inputs[0] if apart is not None else None
    before, heads = sizes_of(flat), sizes_of(apart.outputs[0]) if apart is not None else None
    whole = None if heads is None else multiply(heads[2], heads[3])
    if apart is None or before is None or heads is None or sizes is None or before != (*heads[:2], whole):
        context.replace_op(node, "RotaryEmbedding", [source, *rest], (), MICROSOFT)
        return
    name = f"{node.outputs[0].name}_turned"
    turned = insert_fused(context, node, "RotaryEmbedding", [flat, *rest], (), name, before)
    again = context.insert(
        node, "Reshape", [turned, apart.inputs[1]], list(apart.attributes.values()), base=f"{name}_heads"
    )
    again.dtype = ir.DataType.FLOAT
    set_sizes(again, heads)
    context.replace_op(node, "Transpose", [again], [ir.AttrInt64s("perm", _TO_HEADS)])


def _match(node: ir.Node) -> _Rotation | None:
    for straight, turned in pairs(node):
        first, second = producer(straight, "Mul"), producer(turned, "Mul")
        if first is None or second is None or sole_use(straight) is not node or sole_use(turned) is not node:
            continue
        for rotated, sin in pairs(second):
            source = _rotated(rotated)
            cos = next((c for s, c in pairs(first) if s is source), None)
            if source is None or cos is None or source.dtype != ir.DataType.FLOAT:
                continue
            sizes = sizes_of(source)
            shapes = [_without_ones(sizes_of(v)) for v in (cos, sin)]
            if sizes is not None and len(sizes) == 4 and shapes[0] == shapes[1] == sizes[2:]:
                return _Rotation(source, cos, sin)
    return None


def _without_ones(sizes: Sizes | None) -> Sizes | None:
    """The last two dims, when those before them are 1."""
    return sizes[-2:] if sizes is not None and len(sizes) >= 2 and all(s == 1 for s in sizes[:-2]) else None


def _rotated(value: ir.Value) -> ir.Value | None:
    """X of Concat(-x[..., half:], x[..., :half])."""
    joined = producer(value, "Concat")
    if joined is None or len(joined.inputs) != 2 or attribute(joined, "axis") not in (-1, 3):
        return None
    negative = producer(joined.inputs[0], "Neg")
    upper = _part(negative.inputs[0] if negative is not None else None)
    lower = _part(joined.inputs[1])
    if upper is None or lower is None or upper[0] is not lower[0]:
        return None
    width = (sizes_of(upper[0]) or (None,))[-1]
    if not isinstance(width, int) or width % 2:
        return None
    return upper[0] if upper[1:] == (width // 2, width) and lower[1:] == (0, width // 2) else None


def _part(value: ir.Value | None) -> tuple[ir.Value, int, int] | None:
    """What a Slice or Split takes along the last dim, and from where to where."""
    node = value.producer() if value is not None else None
    source = node.inputs[0] if node is not None else None
    sizes = sizes_of(source)
    if node is None or source is None or not sizes or not isinstance(sizes[-1], int) or node.domain != "":
        return None
    if node.op_type == "Split" and attribute(node, "axis", 0) in (-1, len(sizes) - 1):
        widths = [(sizes_of(v) or (None,))[-1] for v in node.outputs]
        at = next(i for i, v in enumerate(node.outputs) if v is value)
        known = [w for w in widths if isinstance(w, int)]
        return (source, sum(known[:at]), sum(known[: at + 1])) if len(known) == len(widths) else None
    bounds = slice_bounds(node) if node.op_type == "Slice" else None
    if bounds is None or bounds.steps != (1,) or bounds.axes not in ((-1,), (len(sizes) - 1,)):
        return None
    first, last = bounds.starts[0], bounds.ends[0]
    if not isinstance(first, int) or not isinstance(last, int):
        return None
    start, end, _ = slice(first, last).indices(sizes[-1])
    return source, start, end


def _repeats(value: ir.Value, context: PassContext) -> bool:
    """Whether the second half of the last dim is the first half again."""
    current: ir.Value | None = value
    while current is not None:
        array = context.array(current)
        if array is not None:
            half = array.shape[-1] // 2
            return bool(np.array_equal(array[..., :half], array[..., half:]))
        node = current.producer()
        if node is None or node.domain != "":
            return False
        if node.op_type == "Concat":
            sizes = sizes_of(current)
            last = sizes is not None and attribute(node, "axis") in (-1, len(sizes) - 1)
            return last and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
        if node.op_type not in _HALVES_STAY or node.inputs[0] is None:
            return False
        source: ir.Value | None = node.inputs[0]
        if node.op_type in ("Mul", "Div"):
            numbers = [v for v in node.inputs if v is not None and _one_element(v)]
            source = next((v for v in node.inputs if v not in numbers), None) if numbers else None
        before, after = sizes_of(source), sizes_of(current)
        if before is None or after is None or not before or before[-1] != after[-1]:
            return False
        current = source
    return False


def _one_element(value: ir.Value) -> bool:
    sizes = sizes_of(value)
    return sizes is not None and all(s == 1 for s in sizes)


def _half(value: ir.Value, context: PassContext) -> ir.Value:
    """[1, 1, length, width] as [length, width / 2], right behind the node that makes it."""
    sizes = sizes_of(value)
    assert sizes is not None
    width = int(sizes[-1])  # type: ignore[arg-type]
    array = context.array(value)
    if array is not None:
        return context.initializer(array.reshape(-1, width)[:, : width // 2], f"{value.name}_half")
    node = value.producer()
    assert node is not None and node.graph is not None
    shape = context.initializer(np.array([-1, width], np.int64), f"{value.name}_rows")
    numbers = {"from": 0, "to": width // 2, "axis": 1}
    bounds = [context.initializer(np.array([n], np.int64), f"{value.name}_{word}") for word, n in numbers.items()]
    rows = ir.Node("", "Reshape", [value, shape], outputs=[ir.Value(name=context.unique(f"{value.name}_flat"))])
    half = ir.Node(
        "", "Slice", [rows.outputs[0], *bounds], outputs=[ir.Value(name=context.unique(f"{value.name}_half"))]
    )
    for made in (rows, half):
        made.name = made.outputs[0].name
        made.outputs[0].dtype = ir.DataType.FLOAT
    node.graph.insert_after(node, [rows, half])
    return half.outputs[0]

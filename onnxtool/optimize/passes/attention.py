"""The runtime's attention operator in place of the products, softmax and transposes that it stands for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.optimize.context import PassContext
from onnxtool.optimize.facts import Sizes, sizes_of
from onnxtool.optimize.levels import Level
from onnxtool.optimize.nodes import attribute, producer, sole_use
from onnxtool.optimize.passes.chains import permutation
from onnxtool.optimize.passes.fused_conv import MICROSOFT
from onnxtool.optimize.patterns import scalar

_TO_HEADS = [0, 2, 1, 3]  # [batch, length, heads, width] -> [batch, heads, length, width]
_TO_KEYS = [0, 2, 3, 1]  # ... -> [batch, heads, width, length]

_LAST_TWO = [0, 1, 3, 2]


@dataclass(frozen=True)
class _Attention:
    """Softmax(query . key * scale + mask) . value, each still as [batch, length, heads, width]."""

    query: ir.Value
    key: ir.Value
    value: ir.Value
    scale: float
    mask: ir.Value | None
    last: ir.Node


class FuseAttention:
    """Scaled dot-product attention with its transposes becomes the runtime's MultiHeadAttention."""

    # Masked attention whose softmax is guarded against rows without any key (IsNaN, Where) is left alone: the
    # runtime's operator gives other values for such rows, and no random mask would show it. Without a mask there are
    # no such rows.
    name = "fuse-attention"
    level = Level.ALL

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Start from the Softmax."""
        count = 0
        for node in context.nodes(model, "Softmax"):
            found = _match(node, context)
            if found is not None:
                count += _build(found, context)
        return count


def _match(softmax: ir.Node, context: PassContext) -> _Attention | None:
    data = softmax.inputs[0]
    if data is None or data.dtype != ir.DataType.FLOAT or attribute(softmax, "axis", -1) not in (-1, 3):
        return None
    weights, guarded = _past_guard(softmax.outputs[0])
    mixing = sole_use(weights)
    if mixing is None or mixing.op_type != "MatMul" or mixing.inputs[0] is not weights:
        return None
    turned = sole_use(mixing.outputs[0])
    last = sole_use(turned.outputs[0]) if turned is not None and turned.op_type == "Transpose" else None
    if turned is None or last is None or last.op_type != "Reshape" or permutation(turned) != _TO_HEADS:
        return None
    scores, scale, mask = _scores(data, softmax, context)
    if scores is None or sole_use(scores.outputs[0]) is None or (guarded and mask is not None):
        return None
    query, first = _unscaled(scores.inputs[0], context)
    key, second = _unscaled(scores.inputs[1], context)
    parts = [_before_transpose(query, _TO_HEADS), _key_before_transpose(key)]
    parts.append(_before_transpose(mixing.inputs[1], _TO_HEADS))
    if parts[0] is None or parts[1] is None or parts[2] is None:
        return None
    return _Attention(parts[0], parts[1], parts[2], scale * first * second, mask, last)


def _past_guard(weights: ir.Value) -> tuple[ir.Value, bool]:
    """What follows Where(IsNaN(p), 0, p), the guard that torch's exporter puts behind every softmax."""
    readers = {use.node for use in weights.uses()}
    test = next((n for n in readers if n.op_type == "IsNaN"), None)
    choice = next((n for n in readers if n.op_type == "Where"), None)
    if test is None or choice is None or len(readers) != 2 or weights.is_graph_output():
        return weights, False
    fits = choice.inputs[0] is test.outputs[0] and choice.inputs[2] is weights and choice.inputs[1] is not weights
    return (choice.outputs[0], True) if fits and sole_use(test.outputs[0]) is choice else (weights, False)


def _scores(data: ir.Value, softmax: ir.Node, context: PassContext) -> tuple[ir.Node | None, float, ir.Value | None]:
    """The product of query and key, the number it is scaled by, and the mask that is added."""
    add = producer(data, "Add")
    options: list[tuple[ir.Value | None, ir.Value | None]] = [(data, None)]
    if add is not None and sole_use(data) is softmax:
        options = [(add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])]
    for value, mask in options:
        inner, scale = _unscaled(value, context)
        product = producer(inner, "MatMul")
        if product is not None and inner is not None and sole_use(inner) is not None:
            return product, scale, mask
    return None, 1.0, None


def _unscaled(value: ir.Value | None, context: PassContext) -> tuple[ir.Value | None, float]:
    """What stands behind a Mul or Div by one number, and that number as a factor."""
    node = producer(value, "Mul", "Div")
    if node is None or value is None or sole_use(value) is None:
        return value, 1.0
    for index in (0, 1) if node.op_type == "Mul" else (0,):
        number = scalar(node.inputs[1 - index], context)
        if number:
            return node.inputs[index], number if node.op_type == "Mul" else 1.0 / number
    return value, 1.0


def _before_transpose(value: ir.Value | None, wanted: list[int]) -> ir.Value | None:
    turn = producer(value, "Transpose")
    return turn.inputs[0] if turn is not None and permutation(turn) == wanted else None


def _key_before_transpose(value: ir.Value | None) -> ir.Value | None:
    turn = producer(value, "Transpose")
    if turn is not None and permutation(turn) == _LAST_TWO:
        return _before_transpose(turn.inputs[0], _TO_HEADS)
    return _before_transpose(value, _TO_KEYS)


def _build(found: _Attention, context: PassContext) -> int:
    shapes = [sizes_of(v) for v in (found.query, found.key, found.value)]
    if any(s is None or len(s) != 4 or not isinstance(s[2], int) or not isinstance(s[3], int) for s in shapes):
        return 0
    query, key, value = (s for s in shapes if s is not None)
    result = sizes_of(found.last.outputs[0])
    if (query[2], query[3]) != (key[2], key[3]) or value[:3] != key[:3] or query[0] != key[0] or result is None:
        return 0
    width = int(value[2]) * int(value[3])  # type: ignore[arg-type]
    if len(result) != 3 or result != (query[0], query[1], width):
        return 0
    if found.mask is not None and not _mask_fits(sizes_of(found.mask), query, key):
        return 0
    flat = [_flat(v, found.last, context) for v in (found.query, found.key, found.value)]
    settings = [ir.AttrInt64("num_heads", int(query[2])), ir.AttrFloat32("scale", found.scale)]  # type: ignore[arg-type]
    inputs = [*flat, *([None, None, found.mask] if found.mask is not None else [])]
    context.morph(found.last, "MultiHeadAttention", inputs, settings, MICROSOFT)
    return 1


def _mask_fits(mask: Sizes | None, query: Sizes, key: Sizes) -> bool:
    """The runtime wants [batch or 1, heads or 1, query length, key length], without further broadcasting."""
    if mask is None or len(mask) != 4 or mask[2:] != (query[1], key[1]):
        return False
    return mask[0] in (1, query[0]) and mask[1] in (1, query[2])


def _flat(value: ir.Value, before: ir.Node, context: PassContext) -> ir.Value:
    """[batch, length, heads, width] as [batch, length, heads * width]."""
    sizes = sizes_of(value)
    assert sizes is not None
    wide = int(sizes[2]) * int(sizes[3])  # type: ignore[arg-type]
    reshape = producer(value, "Reshape")
    if reshape is not None and reshape.inputs[0] is not None and sizes_of(reshape.inputs[0]) == (*sizes[:2], wide):
        return reshape.inputs[0]
    shape = context.initializer(np.array([0, 0, wide], np.int64), f"{value.name}_flat_shape")
    made = context.insert(before, "Reshape", [value, shape], base=f"{value.name}_flat")
    made.dtype = ir.DataType.FLOAT
    return made

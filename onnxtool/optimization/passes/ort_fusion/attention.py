"""The runtime's attention operator in place of the products, softmax and transposes that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.model.operators.value_facts import Sizes, elements_of, rank_of, set_sizes, sizes_of
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import MICROSOFT, PassContext, insert_fused
from onnxtool.optimization.passes.cleanup.dead_code import TidyRewrite
from onnxtool.optimization.passes.cleanup.operator_chains import permutation
from onnxtool.optimization.patterns.operands import unscaled

_TO_HEADS = [0, 2, 1, 3]  # [batch, length, heads, width] -> [batch, heads, length, width]
_TO_KEYS = [0, 2, 3, 1]  # ... -> [batch, heads, width, length]

_LAST_TWO = [0, 1, 3, 2]


# From what is normalized by a Softmax: the product of query and key, its scale, and the mask that is added.
Scores = tuple[ir.Node | None, float, ir.Value | None]


@dataclass(frozen=True)
class RowGuard:
    """What makes rows of a result zero because a mask leaves them no key.

    Attributes:
        operator: "Where" for Where(rows, 0, result), "Mul" for Mul(result, rows).
        rows: [batch, 1, length, 1].
    """

    operator: str
    rows: ir.Value


@dataclass(frozen=True)
class Attention:
    """Softmax(query . key * scale + mask) . value, each still as [batch, length, heads, width].

    Attributes:
        query: one of the three factors.
        key: one of the three factors.
        value: one of the three factors.
        scale: of the scores.
        mask: added to the scores.
        last: the Reshape that joins the heads.
        repeats: how many heads of the query share one of key and value.
        guard: of the rows of the result; None where there is none.
    """

    query: ir.Value
    key: ir.Value
    value: ir.Value
    scale: float
    mask: ir.Value | None
    last: ir.Node
    guard: RowGuard | None
    repeats: int = 1


class FuseAttention(TidyRewrite):
    """MatMul(Softmax(Q * K^T * s + mask), V) with its transposes -> the runtime's MultiHeadAttention(Q, K, V)."""

    # A softmax that is itself guarded against rows without any key (IsNaN, Where) is left alone: the runtime's operator
    # gives NaN for such rows, and no random mask would show it. Usually simplify-softmax-guard has moved the guard
    # behind the product of weights and values, where it can stay.
    name = "fuse-attention"
    level = Level.ALL
    operators = ("Softmax",)

    def rewrite(self, node: ir.Node, context: PassContext) -> int:
        """Start from the Softmax."""
        found = find_attention(node, context)
        return 0 if found is None else _build(found, context)


def find_attention(
    softmax: ir.Node,
    context: PassContext,
    scores_of: Callable[[ir.Value, ir.Node, PassContext], Scores] | None = None,
    grouped: bool = False,
) -> Attention | None:
    """The attention around a Softmax.

    Args:
        softmax: of the scores.
        context: of the pass.
        scores_of: what stands in front of it; a product with an added mask unless given.
        grouped: look through the repetition of the heads of key and value.
    """
    data = softmax.inputs[0]
    if data is None or data.dtype != ir.DataType.FLOAT or attribute(softmax, "axis", -1) not in (-1, 3):
        return None
    weights = softmax.outputs[0]
    mixing = sole_use(weights)
    if mixing is None or mixing.op_type != "MatMul" or mixing.inputs[0] is not weights:
        return None
    mixed, guard = _past_guard(mixing.outputs[0], context)
    turned = sole_use(mixed)
    last = sole_use(turned.outputs[0]) if turned is not None and turned.op_type == "Transpose" else None
    if turned is None or last is None or last.op_type != "Reshape" or permutation(turned) != _TO_HEADS:
        return None
    scores, scale, mask = (scores_of or added_scores)(data, softmax, context)
    if scores is None or sole_use(scores.outputs[0]) is None:
        return None
    query, first = unscaled(scores.inputs[0], context)
    key, second = unscaled(scores.inputs[1], context)
    before, turned_key = _before_transpose(query, _TO_HEADS), producer(key, "Transpose")
    values, repeats = _ungrouped(mixing.inputs[1]) if grouped else (mixing.inputs[1], 1)
    if repeats == 1:
        keys = _key_before_transpose(key)
    elif turned_key is not None and permutation(turned_key) == _LAST_TWO:
        shared, times = _ungrouped(turned_key.inputs[0])
        keys = _before_transpose(shared, _TO_HEADS) if times == repeats else None
    else:
        keys = None
    values = _before_transpose(values, _TO_HEADS)
    if before is None or keys is None or values is None:
        return None
    return Attention(before, keys, values, scale * first * second, mask, last, guard, repeats)


def _past_guard(mixed: ir.Value, context: PassContext) -> tuple[ir.Value, RowGuard | None]:
    """What follows the guard of empty rows, and the guard; `mixed` itself where there is none."""
    node = sole_use(mixed)
    rows = None
    if node is not None and node.op_type == "Mul":
        rows = node.inputs[1] if node.inputs[0] is mixed else node.inputs[0]
    elif node is not None and node.op_type == "Where" and node.inputs[2] is mixed:
        zero = context.array(node.inputs[1], limit=1)
        rows = node.inputs[0] if zero is not None and zero.item() == 0.0 and zero.ndim <= 1 else None
    sizes = sizes_of(rows)
    if node is None or rows is None or sizes is None or len(sizes) != 4 or (sizes[1], sizes[3]) != (1, 1):
        return mixed, None
    return node.outputs[0], RowGuard(node.op_type, rows)


def added_scores(data: ir.Value, softmax: ir.Node, context: PassContext) -> Scores:
    """The product of query and key, the number it is scaled by, and the mask that is added."""
    add = producer(data, "Add")
    options: list[tuple[ir.Value | None, ir.Value | None]] = [(data, None)]
    if add is not None and sole_use(data) is softmax:
        options = [(add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])]
    for value, mask in options:
        inner, scale = unscaled(value, context)
        product = producer(inner, "MatMul")
        if product is not None and inner is not None and sole_use(inner) is not None:
            return product, scale, mask
    return None, 1.0, None


def _before_transpose(value: ir.Value | None, wanted: list[int]) -> ir.Value | None:
    turn = producer(value, "Transpose")
    return turn.inputs[0] if turn is not None and permutation(turn) == wanted else None


def _key_before_transpose(value: ir.Value | None) -> ir.Value | None:
    turn = producer(value, "Transpose")
    if turn is not None and permutation(turn) == _LAST_TWO:
        return _before_transpose(turn.inputs[0], _TO_HEADS)
    return _before_transpose(value, _TO_KEYS)


def _ungrouped(value: ir.Value | None) -> tuple[ir.Value | None, int]:
    """[batch, groups, length, width] of which each group is repeated for several heads, and how often."""
    joined = producer(value, "Reshape")
    spread = producer(joined.inputs[0], "Expand", "Tile") if joined is not None else None
    apart = producer(spread.inputs[0], "Unsqueeze", "Reshape") if spread is not None else None
    if joined is None or spread is None or apart is None:
        return value, 1
    before, wide, after = sizes_of(apart.inputs[0]), sizes_of(spread.outputs[0]), sizes_of(value)
    if before is None or wide is None or after is None or len(before) != 4 or len(wide) != 5 or len(after) != 4:
        return value, 1
    groups, repeats = before[1], wide[2]
    if not isinstance(groups, int) or not isinstance(repeats, int):
        return value, 1
    fits = sizes_of(spread.inputs[0]) == (*before[:2], 1, *before[2:]) and wide == (*before[:2], repeats, *before[2:])
    if not fits or after != (before[0], groups * repeats, *before[2:]):
        return value, 1
    return apart.inputs[0], repeats


def _build(found: Attention, context: PassContext) -> int:
    shapes = head_sizes(found)
    if shapes is None:
        return 0
    query, key, value = shapes
    width = int(value[2]) * int(value[3])  # type: ignore[arg-type]
    joined = (query[0], query[1], width)
    mask = _four_dims(found.mask, context)
    if mask is not None and not mask_fits(sizes_of(mask), query, key):
        return 0
    if not takes_joined(found, joined):
        return 0
    flat = [flat_heads(v, found.last, context) for v in (found.query, found.key, found.value)]
    settings = [ir.AttrInt64("num_heads", int(query[2])), ir.AttrFloat32("scale", found.scale)]  # type: ignore[arg-type]
    inputs: list[ir.Value | None] = [*flat, *([None, None, mask] if mask is not None else [])]
    put_in_place(found, "MultiHeadAttention", inputs, settings, joined, context)
    return 1


def head_sizes(found: Attention) -> list[Sizes] | None:
    """Dims of query, key and value, each with known numbers of heads and columns; None when they are not."""
    shapes = [s for v in (found.query, found.key, found.value) if (s := sizes_of(v)) is not None]
    known = len(shapes) == 3 and all(len(s) == 4 and all(isinstance(d, int) for d in s[2:]) for s in shapes)
    return shapes if known else None


def takes_joined(found: Attention, joined: Sizes) -> bool:
    """Whether the heads may come joined, as [batch, length, width]."""
    return sizes_of(found.last.outputs[0]) == joined or _any_rank(found.last)


def put_in_place(
    found: Attention,
    op_type: str,
    inputs: list[ir.Value | None],
    settings: list[ir.Attr],
    joined: Sizes,
    context: PassContext,
) -> None:
    """Let an operator of the runtime's, which gives the heads joined, stand for an attention."""
    if sizes_of(found.last.outputs[0]) == joined and found.guard is None:
        context.replace_op(found.last, op_type, inputs, settings, MICROSOFT)
        return
    base = f"{found.last.outputs[0].name}_heads"
    made = insert_fused(context, found.last, op_type, inputs, settings, base, joined)
    if found.guard is not None:
        made = _guarded(made, joined, found.guard, found.last, context)
    found.last.replace_input_with(0, made)


def _guarded(made: ir.Value, joined: Sizes, guard: RowGuard, last: ir.Node, context: PassContext) -> ir.Value:
    """Zeros in the rows that the mask leaves no key."""
    axes, base = context.initializer(np.array([1], np.int64), f"{made.name}_axes"), f"{made.name}_empty"
    if context.opset >= 13:
        rows = context.insert(last, "Squeeze", [guard.rows, axes], base=base)
    else:
        rows = context.insert(last, "Squeeze", [guard.rows], [ir.AttrInt64s("axes", [1])], base=base)
    zero = context.initializer(np.array(0.0, np.float32), f"{made.name}_zero")
    rows.dtype = ir.DataType.BOOL if guard.operator == "Where" else ir.DataType.FLOAT
    inputs = [rows, zero, made] if guard.operator == "Where" else [made, rows]
    kept = context.insert(last, guard.operator, inputs, base=f"{made.name}_kept")
    kept.dtype = ir.DataType.FLOAT
    set_sizes(kept, joined)
    return kept


def _any_rank(reshape: ir.Node) -> bool:
    """Whether a Reshape gives the same from [batch, length, width] as from [batch, length, heads, width]."""
    wanted = elements_of(reshape.inputs[1])
    copies = wanted is None or any(e is None or e == 0 for e in wanted.elements[2:])
    return attribute(reshape, "allowzero", 0) == 1 or not copies


def _four_dims(mask: ir.Value | None, context: PassContext) -> ir.Value | None:
    """A constant mask of two or three dims with the missing ones; any other as it is."""
    array = context.array(mask) if mask is not None and (rank_of(mask) or 0) in (2, 3) else None
    if array is None or mask is None:
        return mask
    return context.initializer(array.reshape((1,) * (4 - array.ndim) + array.shape), f"{mask.name}_wide")


def mask_fits(mask: Sizes | None, query: Sizes, key: Sizes) -> bool:
    """The runtime wants [batch or 1, heads or 1, query length, key length], without further broadcasting."""
    if mask is None or len(mask) != 4 or mask[2:] != (query[1], key[1]):
        return False
    return mask[0] in (1, query[0]) and mask[1] in (1, query[2])


def flat_heads(value: ir.Value, before: ir.Node, context: PassContext) -> ir.Value:
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

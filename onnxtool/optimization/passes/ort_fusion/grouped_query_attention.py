"""Causal attention whose heads share keys and values, as the runtime's GroupQueryAttention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import producer, sole_use
from onnxtool.model.operators.value_facts import Sizes, set_sizes, sizes_of
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.passes.cleanup.dead_code import EliminateDeadCode
from onnxtool.optimization.passes.ort_fusion.attention import (
    Attention,
    Scores,
    added_scores,
    find_attention,
    flat_heads,
    head_sizes,
    mask_fits,
    put_in_place,
    takes_joined,
)
from onnxtool.optimization.patterns.causal_mask import HIDDEN, Causal, added, covers, hides, shows
from onnxtool.optimization.patterns.operands import uniform_value, unscaled

_Lengths = tuple[ir.Value, ir.Value]


class FuseGroupedAttention:
    """Causal MatMul(Softmax(Q * K^T), V), heads sharing K and V or not -> the runtime's GroupQueryAttention."""

    # The operator always hides later positions; a mask that does nothing else is not needed any more.
    name = "fuse-grouped-attention"
    level = Level.ALL
    tried_last = True  # against what other fusions make of the same attention

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Start from the Softmax."""
        return _fuse(model, context, masked=False)


class FuseMaskedGroupedAttention:
    """Causal attention with shared K and V and a mask, of padding say -> the runtime's GroupQueryAttention."""

    # Equal only where the mask hides with minus infinity: with the lowest finite number instead, a row without any key
    # is the mean over all positions, and the operator's is the mean over the earlier ones. Without shared heads
    # MultiHeadAttention does the same, and faster.
    name = "fuse-masked-grouped-attention"
    level = Level.ALL
    tried_last = True

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Start from the Softmax."""
        return _fuse(model, context, masked=True)


def _fuse(model: ir.Model, context: PassContext, masked: bool) -> int:
    count = 0
    lengths: dict[tuple[object, Sizes], _Lengths] = {}
    for node in context.nodes(model, "Softmax"):
        found = find_attention(node, context, _causal_scores, grouped=True)
        if found is not None and masked == (found.mask is not None) and (found.repeats > 1 or not masked):
            count += _build(node, found, lengths, context)
    if count:
        EliminateDeadCode().apply(model, context)
    return count


def _causal_scores(data: ir.Value, softmax: ir.Node, context: PassContext) -> Scores:
    """The product, its scale, and a mask if there has to be one; no product when later positions may be seen."""
    choice = producer(data, "Where")
    if choice is not None and sole_use(data) is softmax:
        return _chosen_scores(choice, context)
    product, scale, mask = added_scores(data, softmax, context)
    found = added(mask, context) if mask is not None and covers(mask, data, context) else None
    if found is None:
        return None, 1.0, None
    return product, scale, None if found is Causal.ONLY else mask


def _chosen_scores(choice: ir.Node, context: PassContext) -> Scores:
    """Where(condition, scores, lowest), or the other way round."""
    condition = choice.inputs[0]
    if condition is None or not covers(condition, choice.outputs[0], context):
        return None, 1.0, None
    yes, no = choice.inputs[1:3]
    if uniform_value(no, context) is not None:
        scores, lowest, found = yes, uniform_value(no, context), shows(condition, context)
    else:
        scores, lowest, found = no, uniform_value(yes, context), hides(condition, context)
    inner, scale = unscaled(scores, context)
    product = producer(inner, "MatMul")
    if found is not Causal.ONLY or lowest is None or lowest > HIDDEN or inner is None or sole_use(inner) is None:
        return None, 1.0, None
    return product, scale, None


def _build(
    softmax: ir.Node, found: Attention, lengths: dict[tuple[object, Sizes], _Lengths], context: PassContext
) -> int:
    shapes = head_sizes(found)
    if shapes is None:
        return 0
    query, key, value = shapes
    joined = (*query[:2], int(query[2]) * int(query[3]))  # type: ignore[arg-type]
    # The operator knows one width of heads, a multiple of 8.
    if key != value or query[:2] != key[:2] or query[3] != key[3] or int(query[3]) % 8:  # type: ignore[arg-type]
        return 0
    if found.repeats * int(key[2]) != query[2]:  # type: ignore[arg-type]
        return 0
    if found.mask is not None and not mask_fits(sizes_of(found.mask), query, key):
        return 0
    if not takes_joined(found, joined):
        return 0
    flat = [flat_heads(v, found.last, context) for v in (found.query, found.key, found.value)]
    place = id(found.last.graph), query[:2]
    if place not in lengths:
        lengths[place] = _lengths(found.query, softmax, context)
    inputs: list[ir.Value | None] = [*flat, None, None, *lengths[place]]
    if found.mask is not None:
        inputs += [None, None, None, found.mask]
    settings = [
        ir.AttrInt64("num_heads", int(query[2])),  # type: ignore[arg-type]
        ir.AttrInt64("kv_num_heads", int(key[2])),  # type: ignore[arg-type]
        ir.AttrFloat32("scale", found.scale),
    ]
    put_in_place(found, "GroupQueryAttention", inputs, settings, joined, context)
    return 1


def _lengths(query: ir.Value, before: ir.Node, context: PassContext) -> _Lengths:
    """The last position of each sample of the batch, and the length: all samples are as long as the tensor.

    The length is that of the first sample: there is none in an empty batch, and the runtime refuses to take it. Given
    the length, its operator would end the process with a division by zero.
    """
    name = f"{query.name}_lengths"

    def put(
        op_type: str, inputs: list[ir.Value], base: str, dtype: ir.DataType, sizes: Sizes, **settings: int
    ) -> ir.Value:
        attributes = [ir.AttrInt64(key, number) for key, number in settings.items()]
        made = context.insert(before, op_type, inputs, attributes, base=f"{name}_{base}")
        made.dtype = dtype
        set_sizes(made, sizes)
        return made

    def number(value: int, base: str, dtype: type, dims: int) -> ir.Value:
        return context.initializer(np.full((1,) * dims, value, dtype), f"{name}_{base}")

    batch_size = (sizes_of(query) or (0,))[0]
    int32, int64 = ir.DataType.INT32, ir.DataType.INT64
    shape = put("Shape", [query], "shape", int64, (4,))
    batch = put("Gather", [shape, number(0, "first", np.int64, 1)], "batch", int64, (1,), axis=0)
    length = put("Gather", [shape, number(1, "second", np.int64, 1)], "length", int64, (1,), axis=0)
    short = put("Cast", [length], "short", int32, (1,), to=int(int32))
    each = put("Expand", [short, batch], "each", int32, (batch_size,))
    last = put("Sub", [each, number(1, "one", np.int32, 0)], "last", int32, (batch_size,))
    total = put("Gather", [each, number(0, "zero", np.int64, 0)], "total", int32, (), axis=0)
    return last, total

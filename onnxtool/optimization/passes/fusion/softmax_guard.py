"""The guard that exporters put behind the softmax of attention, made cheaper."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, producer, sole_use
from onnxtool.model.operators.value_facts import rank_of
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.patterns.operands import unscaled

_CONSTANT_MASK = 1 << 20  # elements that are worth looking at


class SimplifySoftmaxGuard:
    """Where(IsNaN(p), 0, p) -> p for p = Softmax(s + mask) without rows of mask alone, else one test a row."""

    # torch's exporters guard scaled_dot_product_attention this way: a row whose keys are all masked with -inf gives
    # NaN, and torch gives zeros. Two passes over [batch, heads, queries, keys] took a quarter of attention at length
    # 512. Which rows those are, the mask tells, once for all heads and layers; it says nothing of scores that are NaN
    # themselves, but then the values that come from the same input are NaN too, and zero times NaN is NaN either way.
    name = "simplify-softmax-guard"
    level = Level.EXTENDED

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Only where the softmax is that of a product of matrices, and is multiplied by another."""
        if context.opset < 10:
            return 0
        count = 0
        empty_rows: dict[tuple[ir.Value, int], ir.Value] = {}
        for test in context.nodes(model, "IsNaN"):
            softmax = producer(test.inputs[0], "Softmax")
            guard = sole_use(test.outputs[0])
            if softmax is None or guard is None or not _is_guard(guard, test, softmax, context):
                continue
            mixing = sole_use(guard.outputs[0])
            if mixing is None or mixing.op_type != "MatMul" or mixing.inputs[0] is not guard.outputs[0]:
                continue
            found, mask = _mask_of(softmax, context)
            if not found:
                continue
            if mask is None or _never_empty(mask, context):
                count += context.bypass(guard, softmax.outputs[0])
            elif 1 <= (rank_of(mask) or 0) <= (rank_of(softmax.outputs[0]) or 0):
                key = (mask, id(mixing.graph))
                if key not in empty_rows:
                    empty_rows[key] = _empty_rows(mask, mixing, context)
                product = context.insert(
                    mixing, "MatMul", [softmax.outputs[0], mixing.inputs[1]], base=f"{mixing.outputs[0].name}_mixed"
                )
                product.dtype = ir.DataType.FLOAT
                context.replace_op(mixing, "Where", [empty_rows[key], guard.inputs[1], product])
                count += 1
        return count


def _is_guard(guard: ir.Node, test: ir.Node, softmax: ir.Node, context: PassContext) -> bool:
    """Where(test, 0, softmax), and nobody else reads the softmax."""
    weights, rank = softmax.outputs[0], rank_of(softmax.outputs[0])
    if guard.op_type != "Where" or guard.domain != "" or guard.inputs[0] is not test.outputs[0]:
        return False
    zero = context.array(guard.inputs[1], limit=1)
    if guard.inputs[2] is not weights or zero is None or zero.size != 1 or zero.ndim > 1 or zero.item() != 0.0:
        return False
    if len(weights.uses()) != 2 or weights.is_graph_output() or weights.dtype != ir.DataType.FLOAT or rank is None:
        return False
    return attribute(softmax, "axis", -1 if context.opset >= 13 else 1) in (-1, rank - 1)


def _mask_of(softmax: ir.Node, context: PassContext) -> tuple[bool, ir.Value | None]:
    """Whether this is the softmax of a product, and what is added to the product."""
    data = softmax.inputs[0]
    if producer(unscaled(data, context)[0], "MatMul") is not None:
        return True, None
    add = producer(data, "Add")
    for index in (0, 1) if add is not None else ():
        assert add is not None
        if producer(unscaled(add.inputs[index], context)[0], "MatMul") is not None:
            return True, add.inputs[1 - index]
    return False, None


def _never_empty(mask: ir.Value, context: PassContext) -> bool:
    """True when every row surely has a finite number: a finite one for what is masked leaves no row empty."""
    choice = producer(mask, "Where")
    parts = [mask] if choice is None else [choice.inputs[1], choice.inputs[2]]
    arrays = [context.array(p, limit=_CONSTANT_MASK) for p in parts]
    if any(a is None or a.dtype.kind != "f" for a in arrays):
        return False
    if choice is None and arrays[0] is not None and arrays[0].ndim:
        return bool(np.isfinite(arrays[0].max(axis=-1)).all())
    return all(a is not None and bool(np.isfinite(a).all()) for a in arrays)


def _empty_rows(mask: ir.Value, before: ir.Node, context: PassContext) -> ir.Value:
    """True for each row of the mask that is -inf throughout; the last dim stays, with size 1."""
    base = mask.name or "mask"
    if context.opset >= 18:
        axes = context.initializer(np.array([-1], np.int64), f"{base}_axes")
        highest = context.insert(before, "ReduceMax", [mask, axes], base=f"{base}_highest")
    else:
        highest = context.insert(before, "ReduceMax", [mask], [ir.AttrInt64s("axes", [-1])], base=f"{base}_highest")
    highest.dtype = ir.DataType.FLOAT
    none = context.insert(before, "IsInf", [highest], [ir.AttrInt64("detect_positive", 0)], base=f"{base}_empty")
    none.dtype = ir.DataType.BOOL
    return none

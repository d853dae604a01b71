"""The elements of small integer tensors: shapes on their way from Shape to Reshape, Expand or Slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute
from onnxtool.model.operators.layout_rules import axes_of, slice_bounds
from onnxtool.model.operators.symbolic_dims import add, floor_divide, is_non_negative, multiply, product, subtract
from onnxtool.model.operators.value_facts import (
    MAX_ITEMS,
    KnownElements,
    Size,
    UnknownValueError,
    elements_of,
    integers,
    known,
    sizes_of,
)

# A size fits any integer type of 32 bits or more; narrower ones and booleans may change it.
_HOLDS_SIZES = (ir.DataType.INT64, ir.DataType.INT32)
Rule = Callable[[ir.Node], "KnownElements | list[KnownElements | None] | None"]


def _shape(node: ir.Node) -> KnownElements | None:
    data = known(sizes_of(node.inputs[0]))
    return KnownElements(data[attribute(node, "start", 0) : attribute(node, "end", len(data))], False)


def _size(node: ir.Node) -> KnownElements | None:
    return KnownElements((product(known(sizes_of(node.inputs[0]))),), True)


def _cast(node: ir.Node) -> KnownElements | None:
    return _of_integers(node.inputs[0]) if attribute(node, "to") in _HOLDS_SIZES else None


def _cast_like(node: ir.Node) -> KnownElements | None:
    return _of_integers(node.inputs[0]) if known(node.inputs[1]).dtype in _HOLDS_SIZES else None


def _of_integers(value: ir.Value | None) -> KnownElements:
    """The elements of an integer tensor; raises UnknownValueError for others."""
    if not known(known(value).dtype).is_integer():
        raise UnknownValueError
    return known(elements_of(value))


def _gather(node: ir.Node) -> KnownElements | None:
    data, indices = known(elements_of(node.inputs[0])), known(elements_of(node.inputs[1]))
    if data.scalar:
        return None
    picked = []
    for index in indices.elements:
        if not isinstance(index, int) or not -len(data.elements) <= index < len(data.elements):
            return None
        picked.append(data.elements[index])
    return KnownElements(tuple(picked), indices.scalar)


def _slice(node: ir.Node) -> KnownElements | None:
    data, bounds = known(elements_of(node.inputs[0])), slice_bounds(node)
    if data.scalar or bounds is None or len(bounds.axes) != 1 or bounds.steps[0] <= 0:
        return None
    start, end = bounds.starts[0], bounds.ends[0]
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    return KnownElements(data.elements[slice(start, end, bounds.steps[0])], False)


def _concat(node: ir.Node) -> KnownElements | None:
    elements: list[Size | None] = []
    for value in node.inputs:
        items, sizes = elements_of(value), sizes_of(value)
        if items is not None and not items.scalar:
            elements.extend(items.elements)
        elif sizes is not None and len(sizes) == 1 and isinstance(sizes[0], int) and sizes[0] <= MAX_ITEMS:
            elements.extend([None] * sizes[0])
        else:
            return None
    return KnownElements(tuple(elements), False)


def _split(node: ir.Node) -> list[KnownElements | None] | None:
    data = known(elements_of(node.inputs[0]))
    if data.scalar:
        return None
    result: list[KnownElements | None] = []
    at = 0
    for value in node.outputs:
        sizes = sizes_of(value)
        if sizes is None or not isinstance(sizes[0], int):
            return None
        result.append(KnownElements(data.elements[at : at + sizes[0]], False))
        at += sizes[0]
    return result


def _rank_change(node: ir.Node) -> KnownElements | None:
    """Squeeze, Unsqueeze and Reshape between rank 0 and 1."""
    data, sizes = known(elements_of(node.inputs[0])), sizes_of(node.outputs[0])
    rank = len(sizes) if sizes is not None else None
    if rank is None and node.op_type == "Squeeze" and len(data.elements) == 1:
        rank = 0 if axes_of(node) is not None or len(node.inputs) == 1 else None
    if rank == 1:
        return KnownElements(data.elements, False)
    return KnownElements(data.elements, True) if rank == 0 and len(data.elements) == 1 else None


def _expand(node: ir.Node) -> KnownElements | None:
    data, sizes = known(elements_of(node.inputs[0])), known(sizes_of(node.outputs[0]))
    if len(sizes) > 1 or len(data.elements) != 1:
        return None
    if not sizes:
        return data
    return (
        KnownElements(data.elements * sizes[0], False) if isinstance(sizes[0], int) and sizes[0] <= MAX_ITEMS else None
    )


def _constant_of_shape(node: ir.Node) -> KnownElements | None:
    sizes, fill = known(sizes_of(node.outputs[0])), attribute(node, "value")
    if fill is None or not fill.dtype.is_integer() or len(sizes) > 1:
        return None
    if sizes and (not isinstance(sizes[0], int) or sizes[0] > MAX_ITEMS):
        return None
    count = sizes[0] if sizes and isinstance(sizes[0], int) else 1
    return KnownElements((int(fill.numpy().reshape(-1)[0]),) * count, not sizes)


def _together(*parts: KnownElements) -> Iterable[tuple[Size | None, ...]]:
    """The elements of tensors side by side, broadcast."""
    count = max(len(p.elements) for p in parts)
    if any(len(p.elements) not in (1, count) for p in parts) or count == 0:
        raise UnknownValueError
    return zip(*(p.elements * (count // len(p.elements)) for p in parts), strict=True)


def _binary(function: Callable[[Size, Size], Size | None]) -> Rule:
    def rule(node: ir.Node) -> KnownElements | None:
        left, right = _of_integers(node.inputs[0]), known(elements_of(node.inputs[1]))
        pairs = _together(left, right)
        found = tuple(None if a is None or b is None else function(a, b) for a, b in pairs)
        return KnownElements(found, left.scalar and right.scalar)

    return rule


def _divide(a: Size, b: Size) -> Size | None:
    # Integer division rounds towards zero, which is floor only when nothing is negative.
    if not is_non_negative(a):
        return None
    return floor_divide(a, b)


def _modulo(a: Size, b: Size) -> Size | None:
    """With the sign of the divisor: a - b floor(a / b)."""
    quotient = floor_divide(a, b)
    return None if quotient is None else subtract(a, multiply(quotient, b))


def _extreme(largest: bool) -> Callable[[Size, Size], Size | None]:
    def function(a: Size, b: Size) -> Size | None:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b) if largest else min(a, b)
        rest = subtract(a, b)
        if is_non_negative(rest):
            return a if largest else b
        return (b if largest else a) if is_non_negative(multiply(rest, -1)) else None

    return function


def _equal(a: Size, b: Size) -> Size | None:
    rest = subtract(a, b)
    if isinstance(rest, int):
        return int(rest == 0)
    # A size is never negative: size == -1 is false, which is how exporters test for "keep this dim".
    if (isinstance(a, int) and a < 0 and is_non_negative(b)) or (isinstance(b, int) and b < 0 and is_non_negative(a)):
        return 0
    return None


def _where(node: ir.Node) -> KnownElements | None:
    condition, no = (known(elements_of(node.inputs[i])) for i in (0, 2))
    yes = _of_integers(node.inputs[1])
    chosen: list[Size | None] = []
    for test, left, right in _together(condition, yes, no):
        same = left if left == right else None
        chosen.append((left if test else right) if isinstance(test, int) else same)
    return KnownElements(tuple(chosen), condition.scalar and yes.scalar and no.scalar)


def _prod(node: ir.Node) -> KnownElements | None:
    data = _of_integers(node.inputs[0])
    if data.scalar:
        return None
    axes = axes_of(node)
    if axes not in (None, (0,), (-1,)) or attribute(node, "noop_with_empty_axes", 0):
        return None
    return KnownElements((product(data.sizes),), not attribute(node, "keepdims", 1))


def _range(node: ir.Node) -> KnownElements | None:
    start, limit, delta = (known(integers(v))[0] for v in node.inputs)
    if delta == 0 or abs(limit - start) > MAX_ITEMS * abs(delta):
        return None
    return KnownElements(tuple(range(start, limit, delta)), False)


def _neg(node: ir.Node) -> KnownElements | None:
    data = _of_integers(node.inputs[0])
    return KnownElements(tuple(None if e is None else multiply(e, -1) for e in data.elements), data.scalar)


def _abs(node: ir.Node) -> KnownElements | None:
    data = known(elements_of(node.inputs[0]))
    return data if all(map(is_non_negative, data.sizes)) else None


RULES: dict[str, Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Identity": lambda node: elements_of(node.inputs[0]),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Split": _split,
    "Squeeze": _rank_change,
    "Unsqueeze": _rank_change,
    "Reshape": _rank_change,
    "Flatten": _rank_change,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Add": _binary(add),
    "Sub": _binary(subtract),
    "Mul": _binary(multiply),
    "Div": _binary(_divide),
    "Mod": lambda node: None if attribute(node, "fmod", 0) else _binary(_modulo)(node),
    "Max": _binary(_extreme(True)),
    "Min": _binary(_extreme(False)),
    "Equal": _binary(_equal),
    "Where": _where,
    "ReduceProd": _prod,
    "Range": _range,
    "Neg": _neg,
    "Abs": _abs,
}

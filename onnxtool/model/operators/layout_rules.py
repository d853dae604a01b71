"""The dims that moving data about gives: Reshape, Slice, Concat, Split, Expand and their like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, constant_array
from onnxtool.model.operators.broadcasting import at_least_zero, broadcast, smaller_of
from onnxtool.model.operators.symbolic_dims import (
    Expr,
    add,
    exact_divide,
    floor_divide,
    is_non_negative,
    multiply,
    product,
    subtract,
    symbol,
)
from onnxtool.model.operators.value_facts import Size, Sizes, elements_of, integers, known, sizes_of

_HUGE = 1 << 30


def axis_of(node: ir.Node, rank: int, default: int) -> int:
    """The attribute `axis`, counted from the first dim."""
    axis = int(attribute(node, "axis", default))
    return axis + rank if axis < 0 else axis


def axes_of(node: ir.Node) -> tuple[int, ...] | None:
    """The axes of Squeeze, Unsqueeze and reductions, from the attribute or the input; None when absent or unknown."""
    axes = attribute(node, "axes")
    if axes is not None:
        return tuple(int(a) for a in axes)
    return integers(node.inputs[1]) if len(node.inputs) > 1 else None


def named(node: ir.Node, sizes: Sequence[Size | None] | None) -> Sizes | None:
    """Dims that could not be worked out become symbols of this node's output."""
    if sizes is None:
        return None
    return tuple(s if s is not None else symbol(f"?{node.outputs[0].name}.{i}") for i, s in enumerate(sizes))


def reshaped(data: Sizes, wanted: tuple[Size | None, ...], zero_copies: bool) -> Sizes | None:
    """The dims that Reshape gives."""
    result: list[Size | None] = []
    open_at = None
    for index, size in enumerate(wanted):
        if size is None:
            return None
        if size == 0 and zero_copies:
            if index >= len(data):
                return None
            result.append(data[index])
        elif size == -1:
            if open_at is not None:
                return None
            open_at = index
            result.append(None)
        else:
            result.append(size)
    if open_at is not None:
        rest = product([s for s in result if s is not None])
        missing = exact_divide(_without(data, result), _without(tuple(s for s in result if s is not None), data))
        if missing is None:
            missing = exact_divide(product(data), rest) if rest != 0 else None
        if missing is None:
            return None
        result[open_at] = missing
    return tuple(s for s in result if s is not None)


def _without(sizes: Sizes, others: Sizes | list[Size | None]) -> Size:
    """The product of `sizes` after taking out, once each, those that also stand in `others`."""
    rest, spare = [], list(others)
    for size in sizes:
        if size in spare and isinstance(size, Expr):
            spare.remove(size)
        else:
            rest.append(size)
    return product(rest)


def _reshape(node: ir.Node) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    if len(node.inputs) < 2:
        wanted: tuple[Size | None, ...] = tuple(attribute(node, "shape", ()))
    else:
        wanted = known(elements_of(node.inputs[1])).elements
    if data is None:
        numbers = [s for s in wanted if s is not None and (isinstance(s, Expr) or s > 0)]
        return tuple(numbers) if len(numbers) == len(wanted) else None
    return reshaped(data, wanted, not attribute(node, "allowzero", 0))


def _flatten(node: ir.Node) -> Sizes | None:
    data = known(sizes_of(node.inputs[0]))
    axis = axis_of(node, len(data), 1)
    return (product(data[:axis]), product(data[axis:]))


def _squeeze(node: ir.Node) -> Sizes | None:
    data, axes = known(sizes_of(node.inputs[0])), axes_of(node)
    if axes is None:
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            return None
        return tuple(d for d in data if d != 1) if all(isinstance(d, int) for d in data) else None
    gone = {a % len(data) for a in axes} if data else set()
    return tuple(d for i, d in enumerate(data) if i not in gone)


def _unsqueeze(node: ir.Node) -> Sizes | None:
    data, axes = known(sizes_of(node.inputs[0])), known(axes_of(node))
    rank = len(data) + len(axes)
    new, rest = {a % rank for a in axes}, iter(data)
    return tuple(1 if i in new else next(rest) for i in range(rank)) if len(new) == len(axes) else None


def _transpose(node: ir.Node) -> Sizes | None:
    data = known(sizes_of(node.inputs[0]))
    perm = attribute(node, "perm", tuple(reversed(range(len(data)))))
    return tuple(data[p] for p in perm) if len(perm) == len(data) else None


def _concat(node: ir.Node) -> Sizes | None:
    shapes = [known(sizes_of(v)) for v in node.inputs]
    if not shapes[0]:
        return None
    axis = axis_of(node, len(shapes[0]), 1)
    total: Size = 0
    result = list(shapes[0])
    for shape in shapes:
        if len(shape) != len(result):
            return None
        total = add(total, shape[axis])
        for i, dim in enumerate(shape):
            if isinstance(dim, int):
                result[i] = dim  # the inputs agree in every other dim, so a number is as good as a symbol
    result[axis] = total
    return tuple(result)


def _split(node: ir.Node) -> list[Sizes | None] | None:
    data = known(sizes_of(node.inputs[0]))
    axis = axis_of(node, len(data), 0)
    parts = attribute(node, "split")
    if parts is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        parts = known(integers(node.inputs[1]))
    if parts is None:
        dim, count = data[axis], len(node.outputs)
        share = exact_divide(dim, count)
        if share is not None:
            parts = (share,) * count
        elif isinstance(dim, int):
            chunk = -(-dim // count)
            parts = (*(chunk,) * (count - 1), dim - chunk * (count - 1))
        else:
            return None
    if len(parts) != len(node.outputs):
        return None
    return [(*data[:axis], part, *data[axis + 1 :]) for part in parts]


def _gather(node: ir.Node) -> Sizes | None:
    data, indices = known(sizes_of(node.inputs[0])), known(sizes_of(node.inputs[1]))
    axis = axis_of(node, len(data), 0)
    return (*data[:axis], *indices, *data[axis + 1 :])


def slice_size(dim: Size, start: Size | None, end: Size | None, step: int) -> Size | None:
    """Elements that a forward slice keeps of a dim; None when that cannot be said."""
    if start is None or end is None or step <= 0:
        return None
    low, high = _bound(dim, start), _bound(dim, end)
    if low is None or high is None:
        return None
    whole = high == dim
    if whole and isinstance(start, int) and start < 0:  # the last ones
        length = smaller_of(-start, dim)
    elif isinstance(start, int) and isinstance(end, int) and (whole or end < 0) and start >= 0:
        length = at_least_zero(subtract(dim if whole else add(dim, end), start))  # all but some at either end
    else:
        length = at_least_zero(subtract(high, low))
    return length if step == 1 else floor_divide(add(length, step - 1), step)


def _bound(dim: Size, index: Size) -> Size | None:
    """Where a slice bound really lies, between 0 and dim."""
    if isinstance(index, int):
        if index < 0:
            return at_least_zero(add(dim, index))
        return dim if index >= _HUGE else smaller_of(index, dim)
    if index == dim:
        return dim
    if is_non_negative(subtract(index, dim)):
        return dim
    if not is_non_negative(index):  # at some sizes it counts from the end
        return None
    return index if is_non_negative(subtract(dim, index)) else smaller_of(index, dim)


class SliceBounds(NamedTuple):
    """How a Slice cuts some dims, in their order; a start or end is None where it is not known."""

    starts: tuple[Size | None, ...]
    ends: tuple[Size | None, ...]
    axes: tuple[int, ...]
    steps: tuple[int, ...]


def slice_bounds(node: ir.Node) -> SliceBounds | None:
    """What a Slice says by its attributes or inputs; None where its axes or steps are not known."""
    if len(node.inputs) == 1:
        starts, ends = tuple(attribute(node, "starts", ())), tuple(attribute(node, "ends", ()))
        return SliceBounds(starts, ends, tuple(attribute(node, "axes", range(len(starts)))), (1,) * len(starts))
    count = sizes_of(node.inputs[1])
    number = count[0] if count and isinstance(count[0], int) else None
    if number is None:
        return None
    starts, ends = ((None,) * number if (items := elements_of(v)) is None else items.elements for v in node.inputs[1:3])
    optional = [*node.inputs[3:], None, None]
    axes = tuple(range(number)) if optional[0] is None else integers(optional[0])
    steps = (1,) * number if optional[1] is None else integers(optional[1])
    if axes is None or steps is None or not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    return SliceBounds(starts, ends, axes, steps)


def _slice(node: ir.Node) -> Sizes | None:
    data = known(sizes_of(node.inputs[0]))
    result: list[Size | None] = list(data)
    for start, end, axis, step in zip(*known(slice_bounds(node)), strict=True):
        result[axis % len(data)] = slice_size(data[axis % len(data)], start, end, step)
    return named(node, result)


def _expand(node: ir.Node) -> Sizes | None:
    return named(node, broadcast(known(sizes_of(node.inputs[0])), known(elements_of(node.inputs[1])).sizes))


def _constant_of_shape(node: ir.Node) -> Sizes | None:
    items = elements_of(node.inputs[0])
    if items is None:
        sizes = sizes_of(node.inputs[0])
        return () if sizes == (0,) else None
    return named(node, list(items.elements))


def _tile(node: ir.Node) -> Sizes | None:
    times = known(elements_of(node.inputs[1])).sizes
    return tuple(multiply(d, n) for d, n in zip(known(sizes_of(node.inputs[0])), times, strict=True))


def _pad(node: ir.Node) -> Sizes | None:
    data = known(sizes_of(node.inputs[0]))
    pads = attribute(node, "pads", attribute(node, "paddings"))
    if pads is None and len(node.inputs) > 1:
        pads = known(elements_of(node.inputs[1])).sizes
    if pads is None or len(pads) != 2 * len(data) or (len(node.inputs) > 3 and node.inputs[3]):
        return None
    return tuple(add(d, add(pads[i], pads[i + len(data)])) for i, d in enumerate(data))


def _resize(node: ir.Node) -> Sizes | None:
    data, (scales, sizes) = known(sizes_of(node.inputs[0])), [*node.inputs[2:4], None, None][:2]
    cut = attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize"
    if cut or attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    axes = attribute(node, "axes", tuple(range(len(data))))
    result: list[Size | None] = list(data)
    if sizes is not None:
        wanted: Sequence[Size | None] = known(elements_of(sizes)).elements
    else:
        factors = constant_array(scales)
        if factors is None:
            return None
        wanted = [_scaled(data[axis], float(factor)) for axis, factor in zip(axes, factors, strict=True)]
    for axis, size in zip(axes, wanted, strict=True):
        result[axis] = size
    return named(node, result)


def _scaled(size: Size, factor: float) -> Size | None:
    if not 0 < factor < _HUGE:  # NaN too: no file that the runtime takes
        return None
    if factor.is_integer():
        return multiply(size, int(factor))
    if isinstance(size, int):
        return int(np.float32(size) * np.float32(factor))
    return symbol(f"scaled({size}, {factor})")


def _range(node: ir.Node) -> Sizes | None:
    start, limit, delta = (known(elements_of(v)).elements[0] for v in node.inputs)
    if not isinstance(start, int) or not isinstance(delta, int) or delta <= 0 or limit is None:
        return None
    length = subtract(limit, start)
    if isinstance(length, int):
        return (max(-(-length // delta), 0),)
    return (length,) if delta == 1 and length.non_negative else None


LAYOUT_RULES = {
    "range": _range,
    "reshape": _reshape,
    "flatten": _flatten,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "transpose": _transpose,
    "concat": _concat,
    "split": _split,
    "gather": _gather,
    "slice": _slice,
    "expand": _expand,
    "constant_of_shape": _constant_of_shape,
    "tile": _tile,
    "pad": _pad,
    "resize": _resize,
}

"""The dims of each operator's outputs, as numbers or expressions.

A rule gives the sizes of the first output, or a list with those of all outputs, or None when it cannot tell. What
no rule knows is left to ONNX's own inference, which keeps no relation between dynamic dims.
"""

# ruff: noqa: ARG001  (every rule has one signature)

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnxtool.optimize.context import attribute
from onnxtool.optimize.expressions import Expr, add, exact_divide, floor_divide, multiply, product, subtract
from onnxtool.optimize.facts import Size, Sizes, integers, items_of, sizes_of

Rule = Callable[[ir.Node, int], "Sizes | list[Sizes | None] | None"]
_HUGE = 1 << 30


def broadcast(*shapes: Sizes | None) -> Sizes | None:
    """Numpy broadcasting; None when two dims differ and neither is known to be 1."""
    if any(s is None for s in shapes):
        return None
    known = [s for s in shapes if s is not None]
    result: list[Size] = []
    for position in range(1, max((len(s) for s in known), default=0) + 1):
        dims = {s[-position] for s in known if len(s) >= position}
        wide = [d for d in dims if d != 1]
        numbers = [d for d in wide if isinstance(d, int)]
        if len(wide) <= 1:
            result.append(wide[0] if wide else 1)
        elif len(numbers) == 1:
            # A symbol beside a number above 1 is either that number or 1: the result is the number. The symbol
            # itself stays open (one optimizer freezes dynamic dims here).
            result.append(numbers[0])
        else:
            return None
    return tuple(reversed(result))


def _same(node: ir.Node, opset: int) -> Sizes | None:
    return sizes_of(node.inputs[0])


def _broadcast(node: ir.Node, opset: int) -> Sizes | None:
    return broadcast(*(sizes_of(v) for v in node.inputs))


def _axis(node: ir.Node, rank: int, default: int) -> int:
    axis = int(attribute(node, "axis", default))
    return axis + rank if axis < 0 else axis


def axes_of(node: ir.Node, index: int = 1) -> tuple[int, ...] | None:
    """The axes of Squeeze, Unsqueeze and reductions, from the attribute or the input; None when absent or unknown."""
    axes = attribute(node, "axes")
    if axes is not None:
        return tuple(int(a) for a in axes)
    return integers(node.inputs[index]) if len(node.inputs) > index else None


def _matmul(node: ir.Node, opset: int) -> Sizes | None:
    a, b = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
    if not a or not b:
        return None
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    batch = broadcast(left[:-2], right[:-2])
    if batch is None:
        return None
    return (*batch, *(() if len(a) == 1 else (left[-2],)), *(() if len(b) == 1 else (right[-1],)))


def _gemm(node: ir.Node, opset: int) -> Sizes | None:
    a, b = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    return (a[1] if attribute(node, "transA", 0) else a[0], b[0] if attribute(node, "transB", 0) else b[1])


def _window(node: ir.Node, data: Sizes, kernel: list[int]) -> list[Size] | None:
    spatial = data[2:]
    count = len(spatial)
    strides = attribute(node, "strides", (1,) * count)
    dilations = attribute(node, "dilations", (1,) * count)
    pads = attribute(node, "pads", (0,) * (2 * count))
    auto = attribute(node, "auto_pad", "NOTSET")
    if len(kernel) != count or len(pads) != 2 * count:
        return None
    result: list[Size] = []
    for i, dim in enumerate(spatial):
        reach = (kernel[i] - 1) * dilations[i] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            steps = floor_divide(add(dim, strides[i] - 1), strides[i])
        else:
            free = add(dim, (pads[i] + pads[i + count] if auto != "VALID" else 0) - reach)
            if attribute(node, "ceil_mode", 0):
                if not isinstance(free, int):
                    return None
                # The last window must start inside the data or the left padding.
                steps = -(-free // strides[i]) + 1
                if isinstance(dim, int) and (steps - 1) * strides[i] >= dim + pads[i]:
                    steps -= 1
                result.append(steps)
                continue
            quotient = floor_divide(free, strides[i])
            steps = None if quotient is None else add(quotient, 1)
        if steps is None:
            return None
        result.append(steps)
    return result


def _conv(node: ir.Node, opset: int) -> Sizes | None:
    data, weight = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
    if data is None or weight is None or not all(isinstance(d, int) for d in weight):
        return None
    spatial = _window(node, data, [int(d) for d in weight[2:] if isinstance(d, int)])
    return None if spatial is None else (data[0], weight[0], *spatial)


def _pool(node: ir.Node, opset: int) -> Sizes | list[Sizes | None] | None:
    data, kernel = sizes_of(node.inputs[0]), attribute(node, "kernel_shape")
    if data is None or kernel is None:
        return None
    spatial = _window(node, data, list(kernel))
    if spatial is None:
        return None
    sizes = (*data[:2], *spatial)
    return [sizes for _ in node.outputs]


def _global_pool(node: ir.Node, opset: int) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    return None if data is None else (*data[:2], *(1 for _ in data[2:]))


def _batchnorm(node: ir.Node, opset: int) -> list[Sizes | None]:
    return [sizes_of(node.inputs[0]), *(None for _ in node.outputs[1:])]


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


def _reshape(node: ir.Node, opset: int) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    if len(node.inputs) < 2:
        wanted: tuple[Size | None, ...] = tuple(attribute(node, "shape", ()))
    else:
        items = items_of(node.inputs[1])
        if items is None:
            return None
        wanted = items.elements
    if data is None:
        numbers = [s for s in wanted if s is not None and (isinstance(s, Expr) or s > 0)]
        return tuple(numbers) if len(numbers) == len(wanted) else None
    return reshaped(data, wanted, not attribute(node, "allowzero", 0))


def _flatten(node: ir.Node, opset: int) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    if data is None:
        return None
    axis = _axis(node, len(data), 1)
    return (product(data[:axis]), product(data[axis:]))


def _squeeze(node: ir.Node, opset: int) -> Sizes | None:
    data, axes = sizes_of(node.inputs[0]), axes_of(node)
    if data is None:
        return None
    if axes is None:
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            return None
        return tuple(d for d in data if d != 1) if all(isinstance(d, int) for d in data) else None
    gone = {a % len(data) for a in axes} if data else set()
    return tuple(d for i, d in enumerate(data) if i not in gone)


def _unsqueeze(node: ir.Node, opset: int) -> Sizes | None:
    data, axes = sizes_of(node.inputs[0]), axes_of(node)
    if data is None or axes is None:
        return None
    rank = len(data) + len(axes)
    new, rest = {a % rank for a in axes}, iter(data)
    return tuple(1 if i in new else next(rest) for i in range(rank)) if len(new) == len(axes) else None


def _transpose(node: ir.Node, opset: int) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    if data is None:
        return None
    perm = attribute(node, "perm", tuple(reversed(range(len(data)))))
    return tuple(data[p] for p in perm) if len(perm) == len(data) else None


def _concat(node: ir.Node, opset: int) -> Sizes | None:
    shapes = [sizes_of(v) for v in node.inputs]
    if any(s is None for s in shapes) or not shapes[0]:
        return None
    known = [s for s in shapes if s is not None]
    axis = _axis(node, len(known[0]), 1)
    total: Size = 0
    result = list(known[0])
    for shape in known:
        if len(shape) != len(result):
            return None
        total = add(total, shape[axis])
        for i, dim in enumerate(shape):
            if isinstance(dim, int):
                result[i] = dim  # the inputs agree in every other dim, so a number is as good as a symbol
    result[axis] = total
    return tuple(result)


def _split(node: ir.Node, opset: int) -> list[Sizes | None] | None:
    data = sizes_of(node.inputs[0])
    if data is None:
        return None
    axis = _axis(node, len(data), 0)
    parts = attribute(node, "split")
    if parts is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        parts = integers(node.inputs[1])
        if parts is None:
            return None
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


def _gather(node: ir.Node, opset: int) -> Sizes | None:
    data, indices = sizes_of(node.inputs[0]), sizes_of(node.inputs[1])
    if data is None or indices is None:
        return None
    axis = _axis(node, len(data), 0)
    return (*data[:axis], *indices, *data[axis + 1 :])


def slice_size(dim: Size, start: Size | None, end: Size | None, step: int) -> Size | None:
    """Elements that a forward slice keeps of a dim; None when that cannot be said."""
    if start is None or end is None or step <= 0:
        return None
    low, high = _bound(dim, start), _bound(dim, end)
    if low is None or high is None:
        return None
    length = subtract(high, low)
    if isinstance(length, int):
        length = max(length, 0)
    elif not length.non_negative:
        return None
    return length if step == 1 else floor_divide(add(length, step - 1), step)


def _bound(dim: Size, index: Size) -> Size | None:
    """Where a slice bound really lies, between 0 and dim."""
    if isinstance(index, int) and isinstance(dim, int):
        return min(max(index + dim if index < 0 else index, 0), dim)
    if isinstance(index, int):
        if index == 0:
            return 0
        if index >= _HUGE:
            return dim
        return None  # the dim may be smaller than the index
    if index == dim:
        return dim
    rest = subtract(index, dim)
    if (isinstance(rest, int) and rest >= 0) or (isinstance(rest, Expr) and rest.non_negative):
        return dim
    rest = subtract(dim, index)
    inside = (isinstance(rest, int) and rest >= 0) or (isinstance(rest, Expr) and rest.non_negative)
    return index if inside and index.non_negative else None


def _slice(node: ir.Node, opset: int) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    if data is None:
        return None
    if len(node.inputs) == 1:
        starts, ends = tuple(attribute(node, "starts", ())), tuple(attribute(node, "ends", ()))
        axes: tuple[int, ...] | None = tuple(attribute(node, "axes", range(len(starts))))
        steps: tuple[int, ...] | None = (1,) * len(starts)
    else:
        first, last = items_of(node.inputs[1]), items_of(node.inputs[2])
        count = sizes_of(node.inputs[1])
        number = count[0] if count and isinstance(count[0], int) else None
        if number is None:
            return None
        starts = first.elements if first is not None else (None,) * number
        ends = last.elements if last is not None else (None,) * number
        has_axes = len(node.inputs) > 3 and node.inputs[3] is not None
        has_steps = len(node.inputs) > 4 and node.inputs[4] is not None
        axes = integers(node.inputs[3]) if has_axes else tuple(range(number))
        steps = integers(node.inputs[4]) if has_steps else (1,) * number
    if axes is None or steps is None or not len(starts) == len(ends) == len(axes) == len(steps):
        return None
    result: list[Size | None] = list(data)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        result[axis % len(data)] = slice_size(data[axis % len(data)], start, end, step)
    return _named(node, result)


def _named(node: ir.Node, sizes: list[Size | None]) -> Sizes:
    """Dims that could not be worked out become symbols of this node's output."""
    from onnxtool.optimize.expressions import symbol

    return tuple(s if s is not None else symbol(f"?{node.outputs[0].name}.{i}") for i, s in enumerate(sizes))


def _expand(node: ir.Node, opset: int) -> Sizes | None:
    data, items = sizes_of(node.inputs[0]), items_of(node.inputs[1])
    if data is None or items is None or not items.complete:
        return None
    return broadcast(data, tuple(e for e in items.elements if e is not None))


def _constant_of_shape(node: ir.Node, opset: int) -> Sizes | None:
    items = items_of(node.inputs[0])
    if items is None:
        sizes = sizes_of(node.inputs[0])
        return () if sizes == (0,) else None
    return _named(node, list(items.elements))


def _tile(node: ir.Node, opset: int) -> Sizes | None:
    data, items = sizes_of(node.inputs[0]), items_of(node.inputs[1])
    if data is None or items is None or not items.complete or len(items.elements) != len(data):
        return None
    return tuple(multiply(d, e) for d, e in zip(data, items.elements, strict=True) if e is not None)


def _pad(node: ir.Node, opset: int) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    pads = attribute(node, "pads", attribute(node, "paddings"))
    if pads is None and len(node.inputs) > 1:
        pads = integers(node.inputs[1])
    if data is None or pads is None or len(pads) != 2 * len(data) or (len(node.inputs) > 3 and node.inputs[3]):
        return None
    return tuple(add(d, pads[i] + pads[i + len(data)]) for i, d in enumerate(data))


def _reduce(node: ir.Node, opset: int) -> Sizes | None:
    data, axes = sizes_of(node.inputs[0]), axes_of(node)
    if data is None:
        return None
    given = len(node.inputs) > 1 and node.inputs[1] is not None
    if axes is None and given:
        return None
    if not axes:
        if attribute(node, "noop_with_empty_axes", 0):
            return data
        axes = tuple(range(len(data)))
    gone = {a % len(data) for a in axes} if data else set()
    if attribute(node, "keepdims", 1):
        return tuple(1 if i in gone else d for i, d in enumerate(data))
    return tuple(d for i, d in enumerate(data) if i not in gone)


def _arg(node: ir.Node, opset: int) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    if data is None:
        return None
    axis = _axis(node, len(data), 0)
    return (*data[:axis], *((1,) if attribute(node, "keepdims", 1) else ()), *data[axis + 1 :])


def _topk(node: ir.Node, opset: int) -> list[Sizes | None] | None:
    data, k = sizes_of(node.inputs[0]), items_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if data is None or k is None or k.elements[0] is None:
        return None
    axis = _axis(node, len(data), -1)
    sizes = (*data[:axis], k.elements[0], *data[axis + 1 :])
    return [sizes for _ in node.outputs]


def _shape(node: ir.Node, opset: int) -> Sizes | None:
    data = sizes_of(node.inputs[0])
    if data is None:
        return None
    return (len(data[attribute(node, "start", 0) : attribute(node, "end", len(data))]),)


def _scalar(node: ir.Node, opset: int) -> Sizes:
    return ()


def _indices(node: ir.Node, opset: int) -> Sizes | None:
    return sizes_of(node.inputs[1])


def _norm(node: ir.Node, opset: int) -> list[Sizes | None]:
    return [sizes_of(node.inputs[0]), *(None for _ in node.outputs[1:])]


_SAME = """
Identity Cast CastLike Relu LeakyRelu Elu Selu Celu Gelu Sigmoid HardSigmoid HardSwish Mish Softplus Softsign
ThresholdedRelu Tanh Erf Exp Log Sqrt Reciprocal Neg Abs Sign Floor Ceil Round Sin Cos Tan Asin Acos Atan Sinh
Cosh Asinh Acosh Atanh Softmax LogSoftmax Hardmax Clip Not IsNaN IsInf LpNormalization LRN InstanceNormalization
GroupNormalization RMSNormalization Dropout CumSum Trilu QuantizeLinear DequantizeLinear ScatterND ScatterElements
Scatter BitwiseNot MeanVarianceNormalization EyeLike Shrink Bernoulli ReverseSequence RandomNormalLike
RandomUniformLike PRelu Swish
"""
_BROADCAST = """
Add Sub Mul Div Pow Mod Max Min Sum Mean And Or Xor Equal Less Greater LessOrEqual GreaterOrEqual Where BitShift
BitwiseAnd BitwiseOr BitwiseXor
"""
_REDUCE = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare"

RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(_BROADCAST.split(), _broadcast),
    **{f"Reduce{name}": _reduce for name in _REDUCE.split()},
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "LpPool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "BatchNormalization": _batchnorm,
    "LayerNormalization": _norm,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Gather": _gather,
    "GatherElements": _indices,
    "Slice": _slice,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Tile": _tile,
    "Pad": _pad,
    "ArgMax": _arg,
    "ArgMin": _arg,
    "TopK": _topk,
    "Shape": _shape,
    "Size": _scalar,
}

"""The dims of each operator's outputs, as numbers or expressions.

A rule gives the sizes of the first output, or a list with those of all outputs, or None when it cannot tell. What
no rule knows is left to ONNX's own inference, which keeps no relation between dynamic dims.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnxtool.model.ir.queries import attribute
from onnxtool.model.operators.broadcasting import broadcast, smaller_of
from onnxtool.model.operators.layout_rules import LAYOUT_RULES, axes_of, axis_of, named
from onnxtool.model.operators.symbolic_dims import add, exact_divide, floor_divide, multiply
from onnxtool.model.operators.value_facts import Size, Sizes, UnknownValueError, elements_of, known, sizes_of

Rule = Callable[[ir.Node], "Sizes | list[Sizes | None] | None"]


def _same(node: ir.Node) -> Sizes | None:
    return sizes_of(node.inputs[0])


def _matmul(node: ir.Node) -> Sizes | None:
    a, b = known(sizes_of(node.inputs[0])), known(sizes_of(node.inputs[1]))
    if not a or not b or attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
        return None
    a, b = _turned(node, "transA", a), _turned(node, "transB", b)
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    batch = named(node, known(broadcast(left[:-2], right[:-2]))) or ()
    return (*batch, *(() if len(a) == 1 else (left[-2],)), *(() if len(b) == 1 else (right[-1],)))


def _turned(node: ir.Node, flag: str, sizes: Sizes) -> Sizes:
    """The last two dims exchanged, where the runtime's product says so."""
    return (*sizes[:-2], sizes[-1], sizes[-2]) if len(sizes) > 1 and attribute(node, flag, 0) else sizes


def _blocks(node: ir.Node) -> Sizes | None:
    """Of a weight in packed blocks, [N, K] by its attributes."""
    data, columns = known(sizes_of(node.inputs[0])), attribute(node, "N", 0)
    return (*data[:-1], columns) if data and columns else None


def _attention(node: ir.Node) -> Sizes | None:
    """Of query, key and value apart: [batch, length, hidden] of the query, with the value's hidden size."""
    query, value = known(sizes_of(node.inputs[0])), known(sizes_of(node.inputs[2]))
    heads, groups = attribute(node, "num_heads", 1), attribute(node, "kv_num_heads", 0)
    if len(query) != 3 or len(value) != 3 or not isinstance(value[2], int):
        return None
    return (*query[:2], value[2] // groups * heads if groups else value[2])


def _packed_attention(node: ir.Node) -> Sizes | None:
    data, weight = known(sizes_of(node.inputs[0])), known(sizes_of(node.inputs[1]))
    if len(data) != 3 or not weight or not isinstance(weight[-1], int):
        return None
    sizes = attribute(node, "qkv_hidden_sizes", ())
    return (*data[:2], sizes[2] if sizes else weight[-1] // 3)


def _gemm(node: ir.Node) -> Sizes | None:
    a, b = known(sizes_of(node.inputs[0])), known(sizes_of(node.inputs[1]))
    if len(a) != 2 or len(b) != 2:
        return None
    return (a[1] if attribute(node, "transA", 0) else a[0], b[0] if attribute(node, "transB", 0) else b[1])


def _window(node: ir.Node, data: Sizes, kernel: list[int]) -> list[Size]:
    spatial = data[2:]
    count = len(spatial)
    strides = attribute(node, "strides", (1,) * count)
    dilations = attribute(node, "dilations", (1,) * count)
    pads = attribute(node, "pads", (0,) * (2 * count))
    auto = attribute(node, "auto_pad", "NOTSET")
    if len(kernel) != count or len(pads) != 2 * count:
        raise UnknownValueError
    result: list[Size] = []
    for i, dim in enumerate(spatial):
        reach = (kernel[i] - 1) * dilations[i] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            steps = floor_divide(add(dim, strides[i] - 1), strides[i])
        else:
            free = add(dim, (pads[i] + pads[i + count] if auto != "VALID" else 0) - reach)
            quotient = floor_divide(free, strides[i])
            if attribute(node, "ceil_mode", 0):  # the last window must start inside the data or the left padding
                up, last = (
                    floor_divide(add(n, m), strides[i]) for n, m in ((free, strides[i] - 1), (dim, pads[i] - 1))
                )
                quotient = None if up is None or last is None else smaller_of(up, last)
            steps = None if quotient is None else add(quotient, 1)
        if steps is None:
            raise UnknownValueError
        result.append(steps)
    return result


def _conv(node: ir.Node) -> Sizes | None:
    data, weight = known(sizes_of(node.inputs[0])), known(sizes_of(node.inputs[1]))
    if not all(isinstance(d, int) for d in weight):
        return None
    return (data[0], weight[0], *_window(node, data, [int(d) for d in weight[2:] if isinstance(d, int)]))


def _pool(node: ir.Node) -> Sizes | list[Sizes | None] | None:
    data = known(sizes_of(node.inputs[0]))
    sizes = (*data[:2], *_window(node, data, list(known(attribute(node, "kernel_shape")))))
    return [sizes for _ in node.outputs]


def _global_pool(node: ir.Node) -> Sizes | None:
    data = known(sizes_of(node.inputs[0]))
    return (*data[:2], *(1 for _ in data[2:]))


def _depth_to_space(node: ir.Node) -> Sizes | None:
    (batch, depth, *space), block = known(sizes_of(node.inputs[0])), int(attribute(node, "blocksize"))
    left = exact_divide(depth, block * block)
    return None if left is None else (batch, left, *(multiply(d, block) for d in space))


def _space_to_depth(node: ir.Node) -> Sizes | None:
    (batch, depth, *space), block = known(sizes_of(node.inputs[0])), int(attribute(node, "blocksize"))
    return named(node, (batch, multiply(depth, block * block), *(floor_divide(d, block) for d in space)))


def _reduce(node: ir.Node) -> Sizes | None:
    data, axes = known(sizes_of(node.inputs[0])), axes_of(node)
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


def _arg(node: ir.Node) -> Sizes | None:
    data = known(sizes_of(node.inputs[0]))
    axis = axis_of(node, len(data), 0)
    return (*data[:axis], *((1,) if attribute(node, "keepdims", 1) else ()), *data[axis + 1 :])


def _topk(node: ir.Node) -> list[Sizes | None] | None:
    data, (kept, *_) = known(sizes_of(node.inputs[0])), known(elements_of(node.inputs[1])).sizes
    axis = axis_of(node, len(data), -1)
    sizes = (*data[:axis], kept, *data[axis + 1 :])
    return [sizes for _ in node.outputs]


def _shape(node: ir.Node) -> Sizes | None:
    data = known(sizes_of(node.inputs[0]))
    return (len(data[attribute(node, "start", 0) : attribute(node, "end", len(data))]),)


def _gather_nd(node: ir.Node) -> Sizes | None:
    data, indices = known(sizes_of(node.inputs[0])), known(sizes_of(node.inputs[1]))
    if not indices or not isinstance(indices[-1], int):
        return None
    return (*indices[:-1], *data[attribute(node, "batch_dims", 0) + indices[-1] :])


def _recurrent(node: ir.Node) -> list[Sizes | None] | None:
    data, weights = known(sizes_of(node.inputs[0])), known(sizes_of(node.inputs[2]))
    if len(data) != 3 or len(weights) != 3:
        return None
    directions, hidden = weights[0], weights[2]
    if attribute(node, "layout", 0):
        return [(data[0], data[1], directions, hidden), *[(data[0], directions, hidden)] * 2]
    return [(data[0], directions, data[1], hidden), *[(directions, data[1], hidden)] * 2]


# By the names that the rows of operators have in `Operator.shape`.
RULES: dict[str, Rule] = {
    "same": _same,
    "broadcast": lambda node: named(node, broadcast(*(sizes_of(v) for v in node.inputs))),
    "reduce": _reduce,
    "matmul": _matmul,
    "blocks": _blocks,
    "attention": _attention,
    "packed": _packed_attention,
    "skip": lambda node: [_same(node), None, None, _same(node)],  # with the sum that is normalized
    "gemm": _gemm,
    "conv": _conv,
    "pool": _pool,
    "global_pool": _global_pool,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
    "first": lambda node: [_same(node), *(None for _ in node.outputs[1:])],
    "recurrent": _recurrent,
    "indices": lambda node: sizes_of(node.inputs[1]),
    "gather_nd": _gather_nd,
    "arg": _arg,
    "topk": _topk,
    "shape": _shape,
    "scalar": lambda _: (),
    **LAYOUT_RULES,
}

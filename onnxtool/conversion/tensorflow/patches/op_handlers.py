"""TensorFlow operators that Keras layers use and tf2onnx does not translate, or translates wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from onnxtool.conversion.patches import LibraryPatch, replaced
from onnxtool.conversion.small_numbers import AddNode, atan2, digamma, erfinv, expm1, floor_mod, lgamma, log1p

# As onnx.TensorProto counts them.
FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE = range(1, 12)
UINT64 = 13
_FLOATS = (FLOAT, FLOAT16, DOUBLE)
_SIGNED = (INT8, INT16, INT32, INT64)
# The runtime's Where has no kernel for the types of the first row; those of the second hold their values.
_WHERE_CARRIER = {BOOL: UINT8, FLOAT16: FLOAT, INT8: INT32, UINT16: INT32, INT16: INT32, UINT64: INT64}


class OperatorWriter:
    """Writes ONNX nodes in the place of one operator of tf2onnx's graph.

    Attributes:
        graph, node: tf2onnx's.
        inputs: names of what the operator takes.
        rest: what else tf2onnx gives to a handler.
        dtype: of its result, as onnx.TensorProto has it.
        shape: of its result, with -1 for free dims; None where it is not known.
    """

    def __init__(self, graph: Any, node: Any, rest: Mapping[str, Any]) -> None:
        self.graph, self.node, self.rest = graph, node, rest
        self.inputs: list[str] = list(node.input)
        self.dtype: int = graph.get_dtype(node.output[0])
        self.shape = graph.get_shape(node.output[0])

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Of the result's type unless another is given."""
        from tf2onnx import utils

        kind = utils.map_onnx_to_numpy_type(self.dtype) if dtype is None else dtype
        return str(self.graph.make_const(utils.make_name(self.node.name), np.asarray(values, kind)).output[0])

    def add(
        self, kind: str, *inputs: str, domain: str = "", dtype: int | None = None, shape: Sequence[int] | None = None,
        **attributes: Any,
    ) -> str:  # fmt: skip
        """A node of one output; tf2onnx infers dtype and shape of operators of ONNX's own domain alone."""
        told = {"dtypes": [dtype], "shapes": [shape]} if domain else {}
        node = self.graph.make_node(kind, list(inputs), attr=attributes, domain=domain or "", **told)
        return str(node.output[0])

    def cast(self, value: str, dtype: int) -> str:
        """A value in another type."""
        return self.add("Cast", value, to=dtype)

    def give(self, kind: str, *inputs: str, domain: str = "", name: str | None = None, **attributes: Any) -> None:
        """A node in the operator's place."""
        self.graph.remove_node(self.node.name)
        self.graph.make_node(
            kind, list(inputs), attr=attributes, domain=domain, outputs=[self.node.output[0]],
            dtypes=[self.dtype], shapes=[self.shape], name=name,
        )  # fmt: skip

    def formula(self, formula: Callable[..., Any], *inputs: str) -> str:
        """The value of a formula of `small_numbers`, in which floats have the type of the result."""

        def add(kind: str, *inputs: Any, **attributes: Any) -> str:
            return self.add(kind, *(self.constant(i) if isinstance(i, float) else i for i in inputs), **attributes)

        return str(formula(add, *inputs))

    def choose(self, condition: str, on: str, off: str) -> None:
        """Where, in the operator's place."""
        carrier = _WHERE_CARRIER.get(self.dtype)
        if carrier is None:
            self.give("Where", condition, on, off)
        else:
            carried = self.add("Where", condition, self.cast(on, carrier), self.cast(off, carrier))
            self.give("Cast", carried, to=self.dtype)


Handler = Callable[[OperatorWriter], None]


def _erfc(write: OperatorWriter) -> None:
    """erfc(x) = 1 - erf(x); Keras writes its exact GELU with it."""
    write.give("Sub", write.constant(1), write.add("Erf", write.inputs[0]))


def written(formula: Callable[..., Any]) -> Handler:
    """A handler that writes a formula of the inputs."""
    return lambda write: write.give("Identity", write.formula(formula, *write.inputs))


def _written_in_doubles(formula: Callable[..., Any]) -> Handler:
    """Likewise of one input, in float64 whatever type that has."""

    def handler(write: OperatorWriter) -> None:
        kind, write.dtype = write.dtype, DOUBLE
        found = write.formula(formula, write.cast(write.inputs[0], DOUBLE))
        write.dtype = kind
        write.give("Cast", found, to=kind)

    return handler


def _unless_zero(decides: int, operator: str, second: str | None = None) -> Handler:
    """0 where the input of number `decides` is 0, whatever the other is; else an operator of both."""

    def formula(add: AddNode, x: Any, y: Any) -> Any:
        nothing = add("Equal", (x, y)[decides], 0.0)
        return add("Where", nothing, 0.0, add(operator, x, add(second, y) if second else y))

    return written(formula)


def _reduced(write: OperatorWriter, kind: str, value: str) -> str:
    """Over the operator's axes; none of them where there are none."""
    axes = write.add("Reshape", write.cast(write.inputs[1], INT64), write.constant([-1], np.int64))
    keepdims = int(write.node.get_attr_value("keep_dims", False))
    return write.add(kind, value, axes, keepdims=keepdims, noop_with_empty_axes=1)


def _euclidean_norm(write: OperatorWriter) -> None:
    """sqrt(sum of x^2) over axes."""
    x = write.inputs[0]
    write.give("Sqrt", _reduced(write, "ReduceSum", write.add("Mul", x, x)))


def _accumulated(kind: str) -> Handler:
    """A sum or product, of small integers in int64: they wrap around, where the runtime's own are cut off."""

    def handler(write: OperatorWriter) -> None:
        wide = write.dtype if write.dtype in (*_FLOATS, UINT64) else INT64
        write.give("Cast", _reduced(write, kind, write.cast(write.inputs[0], wide)), to=write.dtype)

    return handler


def _running_product(write: OperatorWriter) -> None:
    """As tf2onnx has it, along an axis that is counted from the front."""
    from tf2onnx.onnx_opset.math import CumProd

    graph, node = write.graph, write.node
    axis, rank = node.inputs[1], graph.get_rank(write.inputs[0])
    if rank is not None and axis.is_const():
        front = write.constant(axis.get_tensor_value() % rank, np.int32)
        graph.replace_input(node, write.inputs[1], front, 1)
    CumProd.version_10(graph, node, **write.rest)


def _put_into(write: OperatorWriter) -> None:
    """An array with another one at a place; a place beyond the end is moved back, so that all of that is in it."""
    x, update, starts = write.inputs
    starts, whole, size = write.cast(starts, INT64), write.add("Shape", x), write.add("Shape", update)
    room = write.add("Sub", whole, size)
    before = write.add("Max", write.add("Min", starts, room), write.constant(0, np.int64))
    pads = write.add("Concat", before, write.add("Sub", room, before), axis=0)
    inside = write.add("Pad", write.add("Expand", write.constant(1, np.int32), size), pads)
    write.choose(write.cast(inside, BOOL), write.add("Pad", update, pads), x)


def _largest(write: OperatorWriter) -> None:
    """The k largest of each row and their places, of integers in int64."""
    graph, node, kinds = write.graph, write.node, [write.graph.get_dtype(name) for name in write.node.output]
    shapes = [graph.get_shape(name) for name in node.output]
    x, count = write.inputs[0], write.add("Reshape", write.cast(write.inputs[1], INT64), write.constant([1], np.int64))
    wide = x if write.dtype in _FLOATS else write.cast(x, INT64)
    ordered = bool(node.get_attr_value("sorted", True))
    found = graph.make_node("TopK", [wide, count], attr={"axis": -1, "sorted": int(ordered)}, output_count=2)
    graph.remove_node(node.name)
    for part, name, kind, shape in zip(found.output, node.output, kinds, shapes, strict=True):
        graph.make_node("Cast", [part], attr={"to": kind}, outputs=[name], dtypes=[kind], shapes=[shape])


def _place_among_sorted(write: OperatorWriter) -> None:
    """How many of a sorted row [rows, n] are less than each value [rows, m], or not greater: of NaN none, or all."""
    rows, values = write.inputs
    row, value = (write.add("Unsqueeze", v, write.constant([d], np.int64)) for v, d in ((rows, 1), (values, 2)))
    upper = write.node.type == "UpperBound"
    passed = write.add("Not", write.add("Greater", row, value)) if upper else write.add("Less", row, value)
    passed = write.cast(passed, INT64)
    write.give("Cast", write.add("ReduceSum", passed, write.constant([2], np.int64), keepdims=0), to=write.dtype)


# Types that LabelEncoder has, what their attributes are called, and what they are read by.
_LOOKED_UP: dict[int, tuple[str, Callable[[Any], Any]]] = {
    STRING: ("string", lambda v: v if isinstance(v, bytes) else str(v)), INT64: ("int64", int), FLOAT: ("float", float),
}  # fmt: skip


def _lookup(write: OperatorWriter) -> None:
    """A table of constants; tf2onnx has those between words and int64 alone."""
    from tf2onnx.constants import AI_ONNX_ML_DOMAIN
    from tf2onnx.custom_opsets.onnx_ml import LookupTableFind

    graph, node, tables = write.graph, write.node, write.rest["initialized_tables"]
    table = node.inputs[0]
    while table.type == "Identity":
        table = table.inputs[0]
    name = table.get_attr_value("shared_name")
    source, given = write.inputs[1], {INT32: INT64}
    kinds = [given.get(k, k) for k in (graph.get_dtype(source), write.dtype)]
    usual = set(kinds) == {STRING, INT64} and INT32 not in (graph.get_dtype(source), write.dtype)
    if usual or not set(kinds) <= _LOOKED_UP.keys() or name not in tables or not node.inputs[2].is_const():
        LookupTableFind.version_8(graph, node, **write.rest)
        return
    (of, key), (to, value) = (_LOOKED_UP[kind] for kind in kinds)
    keys, values = tables[name]
    default = value(np.asarray(node.inputs[2].get_tensor_value(as_list=False)).item())
    attributes: dict[str, Any] = {f"keys_{of}s": [*map(key, keys.tolist())]}
    attributes[f"values_{to}s"] = [*map(value, values.tolist())]
    source = source if graph.get_dtype(source) == kinds[0] else write.cast(source, kinds[0])
    attributes[f"default_{to}"] = default
    found = write.add("LabelEncoder", source, domain=AI_ONNX_ML_DOMAIN, dtype=kinds[1], shape=write.shape, **attributes)
    write.give("Cast", found, to=write.dtype)
    if not graph.find_output_consumers(table.output[0]):
        graph.remove_node(table.name)


def _one_hot(write: OperatorWriter) -> None:
    """Where an index is the class. ONNX's OneHot counts indices below zero from the end, and TensorFlow's does not."""
    node = write.node
    indices, depth, on, off = write.inputs
    axis, rank = node.get_attr_value("axis", -1), write.graph.get_rank(indices)
    if axis != -1 and rank is None:
        raise NotImplementedError("OneHot along another axis than the last, of a tensor of unknown rank")
    listed = partial(write.constant, dtype=np.int64)
    if node.inputs[1].is_const():
        classes = listed(np.arange(int(node.inputs[1].get_tensor_value(as_list=False))))
    else:
        classes = write.add("Range", listed(0), write.cast(depth, INT64), listed(1))
    wide = write.add("Unsqueeze", write.cast(indices, INT64), listed([axis]))
    if axis not in (-1, rank):
        classes = write.add("Unsqueeze", classes, listed(np.arange(1, rank - axis + 1)))
    write.choose(write.add("Equal", wide, classes), on, off)


def _counted(write: OperatorWriter) -> None:
    """[..., n] to [..., size]: how often each number stands along the last dim, or the sum of its weights."""
    numbers, size, weights = write.inputs
    int64 = partial(write.constant, dtype=np.int64)
    classes = write.add("Range", int64(0), write.cast(size, INT64), int64(1))
    found = write.add("Equal", write.add("Unsqueeze", write.cast(numbers, INT64), int64([-1])), classes)
    binary = bool(write.node.get_attr_value("binary_output", False))
    if binary or 0 in (write.graph.get_shape(weights) or ()):
        each = write.cast(found, write.dtype)
    else:
        each = write.add("Where", found, write.add("Unsqueeze", weights, int64([-1])), write.constant(0))
    total = write.add("ReduceSum", each, int64([-2]), keepdims=0)
    write.give("Min", total, write.constant(1)) if binary else write.give("Identity", total)


def _sign_bit(write: OperatorWriter) -> None:
    """Bitcast(float -> int32) & INT32_MIN, the sign bit: Keras tells -0.0 from 0.0 with it in argmax.

    ONNX has no bit cast before opset 26. A number that has the sign bit of x, and no other bit, serves as well here.
    """
    x, users = write.inputs[0], write.graph.find_output_consumers(write.node.output[0])
    if write.graph.get_dtype(x) != FLOAT or any(not _keeps_sign_only(u) for u in users):
        raise NotImplementedError("Bitcast has no ONNX form (only the test of a sign bit has)")
    zero = write.constant(0, np.float32)
    below = write.add("Less", write.add("Reciprocal", x), zero)
    minus_zero = write.add("And", write.add("Equal", x, zero), below)
    signed = write.add("Or", write.add("Less", x, zero), minus_zero)
    write.give("Where", signed, write.constant(np.iinfo(np.int32).min, np.int32), write.constant(0, np.int32))


def _keeps_sign_only(node: Any) -> bool:
    if node.type not in ("BitwiseAnd",) or not node.inputs[1].is_const():
        return False
    return int(node.inputs[1].get_tensor_value(as_list=False)) == np.iinfo(np.int32).min


def _bucketize(write: OperatorWriter) -> None:
    """Bucketize(x)[i] = number of boundaries that x[i] is not below, as int32: all of them for NaN."""
    value = write.inputs[0]
    if write.graph.get_dtype(value) != FLOAT:
        value = write.cast(value, FLOAT)
    last, edges = write.constant([-1], np.int64), write.constant(write.node.get_attr_value("boundaries"), np.float32)
    reached = write.add("Not", write.add("Less", write.add("Unsqueeze", value, last), edges))
    write.give("ReduceSum", write.cast(reached, write.dtype), last, keepdims=0)


def _floor_div(write: OperatorWriter) -> None:
    """floor(x / y). ONNX's Div of integers rounds towards zero: one less where signs differ and a rest remains.

    x less its remainder, divided, would be wrong at the smallest integer, which has nothing below it.
    """
    x, y = write.inputs
    if write.dtype in _FLOATS:
        write.give("Floor", write.add("Div", x, y))
        return
    if write.dtype not in _SIGNED:
        write.give("Div", x, y)
        return
    zero, (x, y) = write.constant(0, np.int64), (write.cast(value, INT64) for value in (x, y))
    apart = write.add("Xor", *(write.add("Less", value, zero) for value in (x, y)))
    rest = write.add("Not", write.add("Equal", write.add("Mod", x, y), zero))
    less = write.cast(write.add("And", apart, rest), INT64)
    write.give("Cast", write.add("Sub", write.add("Div", x, y), less), to=write.dtype)


def _floor_mod(write: OperatorWriter) -> None:
    """The remainder with the sign of y, which of integers is ONNX's Mod."""
    if write.dtype in _FLOATS:
        written(floor_mod)(write)
    else:
        write.give("Mod", *write.inputs)


def _compared(kind: str) -> Handler:
    """A comparison of floats as they are, and of integers in int64."""

    def handler(write: OperatorWriter) -> None:
        dtype = write.graph.get_dtype(write.inputs[0])
        wide = {FLOAT16: FLOAT, FLOAT: None, DOUBLE: None, UINT64: None}.get(dtype, INT64)  # loops count in int64
        write.give(kind, *(v if wide is None else write.cast(v, wide) for v in write.inputs))

    return handler


def _matrix_band(write: OperatorWriter) -> None:
    """Elements at most so far below and above the diagonal; a product with zeros is NaN where one is infinite."""
    matrix, lower, upper = write.inputs
    ends, one = write.constant([np.iinfo(np.int64).max], np.int64), partial(write.constant, dtype=np.int64)
    rows, columns = (
        write.add("Range", one(0), write.add("Squeeze", write.add("Slice", write.add("Shape", matrix), one([at]), end)),
                  one(1))
        for at, end in ((-2, one([-1])), (-1, ends))
    )  # fmt: skip
    below = write.add("Sub", write.add("Unsqueeze", rows, one([1])), columns)  # int64[rows, columns], 0 on the diagonal
    kept = [
        write.add("Or", write.add("Less", width, one(0)), write.add("LessOrEqual", apart, width))
        for width, apart in ((write.cast(lower, INT64), below), (write.cast(upper, INT64), write.add("Neg", below)))
    ]
    write.choose(write.add("And", *kept), matrix, write.constant(0))


def _select(write: OperatorWriter) -> None:
    """Where(condition, x, y); a sum of products with the condition is NaN where the other one is infinite."""
    condition, on, off = write.inputs
    if write.node.type == "Select" and write.graph.get_rank(condition) == 1:
        rank = write.graph.get_rank(on)
        if rank is None:
            raise NotImplementedError("Select by a vector, between tensors of unknown rank")
        if rank > 1:
            rows = write.constant([-1, *[1] * (rank - 1)], np.int64)
            condition = write.add("Reshape", condition, rows)
    write.choose(condition, on, off)


def _matrix_diag(write: OperatorWriter) -> None:
    """Rows on the diagonals of square matrices of zeros; others are as tf2onnx has them."""
    from tf2onnx.onnx_opset.tensor import MatrixDiag

    defaults = {1: 0, 2: -1, 3: -1, 4: 0}  # which diagonal, how many rows and columns, and what fills the rest
    given = {at: write.node.inputs[at] for at in defaults if at < len(write.inputs)}
    if any(not held.is_const() or np.any(held.get_tensor_value(as_list=False) != defaults[at])
           for at, held in given.items()):  # fmt: skip
        MatrixDiag.version_12(write.graph, write.node, **write.rest)
        return
    rows, int64 = write.inputs[0], partial(write.constant, dtype=np.int64)
    size = write.add("Squeeze", write.add("Slice", write.add("Shape", rows), int64([-1]), int64([np.iinfo(int).max])))
    places = write.add("Range", int64(0), size, int64(1))
    diagonal = write.add("Equal", places, write.add("Unsqueeze", places, int64([1])))
    write.choose(diagonal, write.add("Unsqueeze", rows, int64([-2])), write.constant(0))


def _cross(write: OperatorWriter) -> None:
    """Of three numbers: a[1 2 0] b[2 0 1] - a[2 0 1] b[1 2 0]."""
    one, two = (write.constant(order, np.int64) for order in ([1, 2, 0], [2, 0, 1]))
    (a, d), (c, b) = ([write.add("Gather", v, order, axis=-1) for v in write.inputs] for order in (one, two))
    write.give("Sub", write.add("Mul", a, b), write.add("Mul", c, d))


def _broadcast_args(write: OperatorWriter) -> None:
    """The shape that two shapes are broadcast to, by broadcasting."""
    false = write.constant(False, np.bool_)
    both = [write.add("Expand", false, write.cast(shape, INT64)) for shape in write.inputs]
    write.give("Cast", write.add("Shape", write.add("Or", *both)), to=write.dtype)


def _truncate_mod(write: OperatorWriter) -> None:
    """The remainder with the sign of x; of integers the runtime's own goes by way of float64."""
    x, y = write.inputs
    if write.dtype in _FLOATS:
        write.give("Mod", x, y, fmod=1)
    else:
        write.give("Sub", x, write.add("Mul", y, write.add("Div", x, y)))


def _scatter_nd(write: OperatorWriter) -> None:
    """Zeros with updates added at indices, which may repeat."""
    indices, updates, shape = write.inputs
    zeros = write.add("Expand", write.constant(0), write.cast(shape, INT64))
    write.give("ScatterND", zeros, write.cast(indices, INT64), updates, reduction="add")


def _segments(write: OperatorWriter) -> None:
    """Rows of one segment number added, averaged, multiplied, or the largest or smallest of them.

    A segment without rows has the operation's neutral element, which of floats is finite; in the sorted form it has 0.
    Rows of a negative number go nowhere: they are scattered to a row that is cut off.
    """
    from tf2onnx.utils import map_onnx_to_numpy_type

    kind = map_onnx_to_numpy_type(write.dtype)
    limits = np.finfo(kind) if write.dtype in _FLOATS else np.iinfo(kind)
    name = write.node.type.removeprefix("Unsorted").removeprefix("Segment")
    reduction, neutral = {
        "Sum": ("add", 0), "Mean": ("add", 0), "Prod": ("mul", 1), "Max": ("max", limits.min),
        "Min": ("min", limits.max),
    }[name]  # fmt: skip
    int64 = partial(write.constant, dtype=np.int64)
    data, numbers = write.inputs[0], write.cast(write.inputs[1], INT64)
    whole, rank = write.add("Shape", data), write.graph.get_rank(write.inputs[1])
    if rank is None:
        raise NotImplementedError(f"{write.node.type} by numbers of unknown rank")
    rest = write.add("Slice", whole, int64([rank]), int64([np.iinfo(np.int64).max]))
    if write.node.type.startswith("Unsorted"):
        count = write.cast(write.inputs[2], INT64)
    else:
        count = write.add("Add", write.add("ReduceMax", numbers, keepdims=0), int64(1))
    rows = write.add("Reshape", count, int64([1]))
    table = write.add("Concat", write.add("Add", rows, int64([1])), rest, axis=0)
    start = write.add("Expand", write.constant(neutral), table)
    places = write.add("Where", write.add("Less", numbers, int64(0)), count, numbers)
    indices = write.add("Unsqueeze", places, int64([rank]))
    result = write.add("ScatterND", start, indices, data, reduction=reduction)
    if name == "Mean":
        ones = write.add("Expand", write.constant(1), whole)
        counts = write.add("ScatterND", start, indices, ones, reduction="add")
        result = write.add("Div", result, write.add("Max", counts, write.constant(1)))
    kept = [int64([0]), rows, int64([0])]
    if write.node.type.startswith("Unsorted") or not neutral:
        write.give("Slice", result, *kept)
        return
    zeros = write.add("Expand", write.constant(0), table)
    reached = write.add("ScatterND", zeros, indices, write.add("Expand", write.constant(1), whole))
    filled = write.add("Where", write.cast(reached, BOOL), result, zeros)
    write.give("Slice", filled, *kept)


def _fake_quantize(write: OperatorWriter) -> None:
    """Rounded to the steps between two bounds, which are moved so that zero is one of them; all in float32.

    Raises:
        NotImplementedError: bounds that are computed, or more than 8 bits.
    """
    node, limits = write.node, write.node.inputs[1:]
    if not all(limit.is_const() for limit in limits) or node.get_attr_value("num_bits", 8) > 8:
        raise NotImplementedError(f"{node.type} with computed bounds, or of more than 8 bits")
    bounds = [limit.get_tensor_value(as_list=False) for limit in limits] or [
        node.get_attr_value("min"), node.get_attr_value("max"),
    ]  # fmt: skip
    low, high = (np.asarray(bound, np.float32) for bound in bounds)
    least, most = int(node.get_attr_value("narrow_range", 0)), 2 ** node.get_attr_value("num_bits", 8) - 1
    scale = (high - low) / np.float32(most - least)
    zero = np.clip(np.floor(least - low / scale + np.float32(0.5)), least, most)
    inside = write.add("Max", write.inputs[0], write.constant((least - zero) * scale))
    inside = write.add("Min", inside, write.constant((most - zero) * scale))
    steps = write.constant(scale), write.constant(zero, np.uint8)
    write.give("DequantizeLinear", write.add("QuantizeLinear", inside, *steps, axis=-1), *steps, axis=-1)


@contextmanager
def handled(name: str, since: int, write: Handler, only_missing: bool) -> Iterator[None]:
    """Inside the block tf2onnx translates an operator by this handler; it keeps one table of them for the process."""
    from tf2onnx.constants import ONNX_DOMAIN
    from tf2onnx.handler import tf_op

    opsets = tf_op.get_opsets()[ONNX_DOMAIN]
    known = any(name in handlers for handlers in opsets)
    if known and only_missing:
        yield
        return
    before = [dict(handlers) for handlers in opsets]
    tf_op(name).register_compat_handler(lambda graph, node, **rest: write(OperatorWriter(graph, node, rest)), since)
    try:
        yield
    finally:
        opsets[:] = before


@contextmanager
def _broadcast_choices() -> Iterator[None]:
    """Of shapes that TensorFlow does not know: SelectV2 gives none of its operands', which may be scalars."""
    from tf2onnx import shape_inference

    with ExitStack() as stack:
        for name in ("infer_input_shapes", "infer_output_shapes_with_partial_inputs"):
            known = getattr(shape_inference, name)
            own = lambda op, known=known: op.type != "SelectV2" and known(op)  # noqa: E731
            stack.enter_context(replaced(shape_inference, name, own))
        yield


@contextmanager
def _lossless_casts() -> Iterator[None]:
    """Of two casts the first one goes where its type holds all that it is given."""
    from tf2onnx.optimizer import back_to_back_optimizer
    from tf2onnx.utils import map_onnx_to_numpy_type

    known = back_to_back_optimizer._func_map["Cast",]

    def reduced(graph: Any, node: Any, users: list[Any]) -> Any:
        given, to = (map_onnx_to_numpy_type(k) for k in (graph.get_dtype(node.input[0]), node.get_attr_value("to")))
        held = np.can_cast(given, to) and np.dtype(given).kind + np.dtype(to).kind not in ("if", "uf")
        return known(graph, node, users) if held else [user.output[0] for user in users]

    with replaced(back_to_back_optimizer, "_func_map", {**back_to_back_optimizer._func_map, ("Cast",): reduced}):
        yield


@contextmanager
def _grouped_volumes() -> Iterator[None]:
    """Convolutions of volumes in groups: so many of the channels each filter reads."""
    from tf2onnx.onnx_opset.nn import ConvOp

    known = ConvOp.any_version

    def any_version(_: type, opset: int, graph: Any, node: Any, /, **rest: Any) -> None:
        (*_, channels), (*_, read, _) = (graph.get_shape(name) for name in node.input[:2])
        grouped = node.get_attr_str("data_format") == "NDHWC" and min(channels, read) > 0
        known(opset, graph, node, **rest)
        if grouped:
            node.set_attr("group", channels // read)

    with replaced(ConvOp, "any_version", classmethod(any_version)):
        yield


def missing(name: str, since: int, write: Handler) -> LibraryPatch:
    """An operator that tf2onnx does not know, from an opset on."""
    what = f"tf2onnx 1.17 has no translation of {name}"
    return LibraryPatch("tf2onnx", "", what, partial(handled, name, since, write, True))


def wrong(name: str, since: int, write: Handler, upstream: str) -> LibraryPatch:
    """An operator that tf2onnx does not translate right, from an opset on."""
    return LibraryPatch("tf2onnx", "1.18", upstream, partial(handled, name, since, write, False))


PATCHES = {
    "Erfc": missing("Erfc", 9, _erfc),
    "Xlogy": missing("Xlogy", 13, _unless_zero(0, "Mul", "Log")),
    "Xdivy": missing("Xdivy", 13, _unless_zero(0, "Div")),
    "MulNoNan": missing("MulNoNan", 13, _unless_zero(1, "Mul")),
    "EuclideanNorm": missing("EuclideanNorm", 13, _euclidean_norm),
    "TopKV2": wrong("TopKV2", 13, _largest, "tf2onnx 1.17 sorts integers as float32"),
    "SegmentMean": wrong(
        "SegmentMean", 16, _segments, "tf2onnx 1.17's SegmentMean is infinite where a segment is empty"
    ),
    "LowerBound": missing("LowerBound", 13, _place_among_sorted),
    "UpperBound": missing("UpperBound", 13, _place_among_sorted),
    "Expm1": wrong("Expm1", 10, written(expm1), "tf2onnx 1.17's exp(x) - 1 has no correct digit left near zero"),
    "Log1p": wrong("Log1p", 10, written(log1p), "tf2onnx 1.17's log(1 + x) has no correct digit left near zero"),
    "LookupTableFindV2": wrong("LookupTableFindV2", 9, _lookup, "tf2onnx 1.17 has tables of words alone"),
    "OneHot": wrong("OneHot", 13, _one_hot, "tf2onnx 1.17 counts classes below zero from the end"),
    "DenseBincount": wrong(
        "DenseBincount", 13, _counted, "tf2onnx 1.17 counts no weights, and rows of unknown rank as one"
    ),
    "Sum": wrong("Sum", 18, _accumulated("ReduceSum"), "tf2onnx 1.17 adds int32, cut off at the ends"),
    "Prod": wrong("Prod", 18, _accumulated("ReduceProd"), "tf2onnx 1.17 multiplies int32, cut off at the ends"),
    "Cumprod": wrong("Cumprod", 13, _running_product, "tf2onnx 1.17 takes the axis -1 for a size"),
    "XlaDynamicUpdateSlice": missing("XlaDynamicUpdateSlice", 13, _put_into),
    "casts": LibraryPatch(
        "tf2onnx", "1.18", "tf2onnx 1.17 leaves out casts to float16 and to integers, which round", _lossless_casts
    ),
    "Conv3D": LibraryPatch("tf2onnx", "1.18", "tf2onnx 1.17 has no groups in volumes", _grouped_volumes),
    "MatrixDiagV3": wrong("MatrixDiagV3", 13, _matrix_diag, "tf2onnx 1.17 leaves out a batch of one"),
    "Erfinv": missing("Erfinv", 13, written(erfinv)),
    "Lgamma": missing("Lgamma", 13, _written_in_doubles(lgamma)),
    "Digamma": missing("Digamma", 13, _written_in_doubles(digamma)),
    "BroadcastArgs": missing("BroadcastArgs", 13, _broadcast_args),
    "Cross": missing("Cross", 13, _cross),
    "TruncateMod": missing("TruncateMod", 13, _truncate_mod),
    "Bitcast": missing("Bitcast", 9, _sign_bit),
    "Bucketize": missing("Bucketize", 16, _bucketize),
    "FloorDiv": wrong("FloorDiv", 13, _floor_div, "tf2onnx 1.17 rounds quotients of integers towards zero"),
    "Select": wrong("Select", 9, _select, "tf2onnx 1.17 selects by multiplying: NaN where the other one is infinite"),
    "SelectV2": wrong("SelectV2", 9, _select, "tf2onnx 1.17 selects by multiplying: NaN beside infinity"),
    "shapes of SelectV2": LibraryPatch(
        "tf2onnx", "1.18", "tf2onnx 1.17 takes both operands of SelectV2 for as large as the result", _broadcast_choices
    ),
    "ScatterNd": wrong("ScatterNd", 16, _scatter_nd, "tf2onnx 1.17 keeps the last of repeated indices only"),
    **{
        name: wrong(name, 18, _segments, f"tf2onnx 1.17's {name} is infinite where a segment has no rows")
        for name in ("UnsortedSegmentMax", "UnsortedSegmentMin", "SegmentMax", "SegmentMin")
    },
    **{
        name: wrong(name, 16, _segments, f"tf2onnx 1.17's {name} counts segments below zero from the end")
        for name in ("UnsortedSegmentSum", "UnsortedSegmentProd")
    },
    "Atan2": wrong("Atan2", 9, written(atan2), "tf2onnx 1.17's angle is wrong for -0.0 and beside infinity"),
    **{
        name: wrong(name, 13, _compared(name), f"tf2onnx 1.17's {name} compares integers as float32")
        for name in ("Less", "Greater")
    },
    "MatrixBandPart": wrong("MatrixBandPart", 13, _matrix_band, "tf2onnx 1.17's band is NaN beside infinity"),
    **{
        name: wrong(
            name, 13, _fake_quantize, f"tf2onnx 1.17's {name} moves its bounds in float64, and has no narrow range"
        )
        for name in ("FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars")
    },
    "FakeQuantWithMinMaxVarsPerChannel": missing("FakeQuantWithMinMaxVarsPerChannel", 13, _fake_quantize),
    "FloorMod": wrong("FloorMod", 13, _floor_mod, "tf2onnx 1.17's remainder of floats is x - y floor(x / y)"),
}

"""TensorFlow operators that Keras layers use and tf2onnx does not translate, or translates wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from onnxtool.conversion.patches import LibraryPatch
from onnxtool.conversion.small_numbers import AddNode, atan2, expm1, log1p

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
    """A handler that writes a formula of the inputs, in which floats have the type of the result."""

    def handler(write: OperatorWriter) -> None:
        def add(kind: str, *inputs: Any) -> str:
            return write.add(kind, *(write.constant(i) if isinstance(i, float) else i for i in inputs))

        write.give("Identity", formula(add, *write.inputs))

    return handler


def _unless_zero(decides: int, operator: str, second: str | None = None) -> Handler:
    """0 where the input of number `decides` is 0, whatever the other is; else an operator of both."""

    def formula(add: AddNode, x: Any, y: Any) -> Any:
        nothing = add("Equal", (x, y)[decides], 0.0)
        return add("Where", nothing, 0.0, add(operator, x, add(second, y) if second else y))

    return written(formula)


def _euclidean_norm(write: OperatorWriter) -> None:
    """sqrt(sum of x^2) over axes."""
    x, axes = write.inputs
    listed = write.add("Reshape", write.cast(axes, INT64), write.constant([-1], np.int64))
    total = write.add(
        "ReduceSum", write.add("Mul", x, x), listed,
        keepdims=int(write.node.get_attr_value("keep_dims", False)),
    )  # fmt: skip
    write.give("Sqrt", total)


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
    """How many of a sorted row [rows, n] are less than each value [rows, m], or not greater."""
    rows, values = write.inputs
    row, value = (write.add("Unsqueeze", v, write.constant([d], np.int64)) for v, d in ((rows, 1), (values, 2)))
    beyond = write.add("Greater" if write.node.type == "UpperBound" else "GreaterOrEqual", row, value)
    passed = write.cast(write.add("Not", beyond), INT64)
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
    """Bucketize(x)[i] = number of boundaries <= x[i], as int32."""
    value = write.inputs[0]
    if write.graph.get_dtype(value) != FLOAT:
        value = write.cast(value, FLOAT)
    last, edges = write.constant([-1], np.int64), write.constant(write.node.get_attr_value("boundaries"), np.float32)
    reached = write.add("GreaterOrEqual", write.add("Unsqueeze", value, last), edges)
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
    """The remainder with the sign of y, which of integers is ONNX's Mod; of floats, fmod moved by y where signs differ.

    fmod is exact. x - y floor(x / y) is wrong as soon as x / y has more digits than its type.
    """
    x, y = write.inputs
    if write.dtype not in _FLOATS:
        write.give("Mod", x, y)
        return
    zero = write.constant(0)
    rest = write.add("Mod", x, y, fmod=1)
    alike = write.add("Equal", *(write.add("Less", value, zero) for value in (rest, y)))
    stays = write.add("Or", write.add("Equal", rest, zero), alike)
    write.give("Where", stays, rest, write.add("Add", rest, y))


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


def _crop_and_resize(write: OperatorWriter) -> None:
    """Pixels at (or between the neighbours of) points evenly spread over boxes, by TensorFlow's own arithmetic.

    A crop of n > 1 rows samples y1 (H - 1) + i (y2 - y1) (H - 1) / (n - 1), one of a single row the middle of the box.
    Half a pixel goes up; points outside of the image get the extrapolation value.
    Source: tensorflow/core/kernels/image/crop_and_resize_op.cc.
    """
    image, boxes, box_image, crop_size = write.inputs
    node, one, int64 = write.node, write.constant(1), partial(write.constant, dtype=np.int64)
    size, crop = write.add("Shape", image), write.cast(crop_size, INT64)
    corners = [write.add("Gather", boxes, int64([corner]), axis=1) for corner in range(4)]  # [boxes, 1] each
    nearest = node.get_attr_value("method", b"bilinear") == b"nearest"
    pixels = write.cast(image, FLOAT)
    points, valid = [], []
    for axis in (0, 1):
        count = write.add("Gather", crop, int64(axis))
        last = write.add("Sub", write.cast(write.add("Gather", size, int64(axis + 1)), FLOAT), one)
        low, high = corners[axis], corners[axis + 2]
        steps = write.add("Max", write.cast(write.add("Sub", count, int64(1)), FLOAT), one)
        step = write.add("Div", write.add("Mul", write.add("Sub", high, low), last), steps)
        places = write.cast(write.add("Range", int64(0), count, int64(1)), FLOAT)
        spread = write.add("Add", write.add("Mul", low, last), write.add("Mul", places, step))
        middle = write.add("Mul", write.add("Mul", write.constant(0.5), write.add("Add", low, high)), last)
        point = write.add("Where", write.add("Greater", count, int64(1)), spread, middle)  # [boxes, count]
        inside = write.add("And", write.add("GreaterOrEqual", point, write.constant(0)),
                           write.add("LessOrEqual", point, last))  # fmt: skip
        ends = int64([2 - axis]), int64([2 - axis, 3])  # to [boxes, rows, columns], and with channels
        clipped = write.add("Min", write.add("Max", point, write.constant(0)), last)
        points.append(write.add("Unsqueeze", clipped, ends[0]))
        valid.append(write.add("Unsqueeze", inside, ends[1]))
    which = write.add("Unsqueeze", write.cast(box_image, INT64), int64([1, 2]))

    def taken(row: str, column: str) -> str:
        """float32[boxes, rows, columns, channels]: pixels at whole points."""
        parts = [which, write.cast(row, INT64), write.cast(column, INT64)]
        grid = write.add("Max", *parts)
        shape = write.add("Shape", grid)
        indices = [write.add("Unsqueeze", write.add("Expand", part, shape), int64([3])) for part in parts]
        return write.add("GatherND", pixels, write.add("Concat", *indices, axis=3))

    if nearest:
        half = write.constant(0.5)
        floors = [write.add("Floor", point) for point in points]
        rounded = [
            write.add(
                "Add", floor, write.cast(write.add("GreaterOrEqual", write.add("Sub", point, floor), half), FLOAT)
            )
            for point, floor in zip(points, floors, strict=True)
        ]
        found = taken(*rounded)
    else:
        (top, left), (bottom, right) = ([write.add(kind, p) for p in points] for kind in ("Floor", "Ceil"))
        down, along = (
            write.add("Unsqueeze", write.add("Sub", p, floor), int64([3]))
            for p, floor in zip(points, (top, left), strict=True)
        )

        def between(a: str, b: str, share: str) -> str:
            return write.add("Add", a, write.add("Mul", write.add("Sub", b, a), share))

        above, below = (between(taken(row, left), taken(row, right), along) for row in (top, bottom))
        found = between(above, below, down)
    outside = write.constant(node.get_attr_value("extrapolation_value", 0.0))
    write.give("Where", write.add("And", *valid), found, outside)


def _resized_by(write: OperatorWriter, shares: Callable[[str, str, str], str]) -> None:
    """Rows @ image @ columns^T, in the place of an operator that takes images and a size.

    Args:
        write: the operator.
        shares: float32 sizes before and after, and their quotient -> float32[after, before], what each pixel adds.
    """
    if write.node.get_attr_value("align_corners"):
        raise NotImplementedError(f"{write.node.type} with align_corners")
    rows, columns = (shares(*sizes[1:]) for sizes in _sizes(write))
    image = write.add("Transpose", write.cast(write.inputs[0], FLOAT), perm=[0, 3, 1, 2])
    resized = write.add("MatMul", write.add("MatMul", rows, image), write.add("Transpose", columns, perm=[1, 0]))
    write.give("Transpose", resized, perm=[0, 2, 3, 1])


def _sizes(write: OperatorWriter) -> Iterator[tuple[int, str, str, str]]:
    """Of the rows and the columns: their axis, float32 sizes before and after, and the quotient of both."""
    shape = write.add("Shape", write.inputs[0])
    for axis in (0, 1):
        old = write.cast(write.add("Gather", shape, write.constant(axis + 1, np.int64)), FLOAT)
        new = write.cast(write.add("Gather", write.inputs[1], write.constant(axis, np.int64)), FLOAT)
        yield axis + 1, old, new, write.add("Div", old, new)


def _places(write: OperatorWriter, count: str, shift: float = 0.0) -> str:
    """float32[count]: shift, shift + 1, ..."""
    single = partial(write.constant, dtype=np.float32)
    return write.add("Add", write.add("Range", single(0), count, single(1)), single(shift))


def _resize_bicubic(write: OperatorWriter) -> None:
    """Cubic interpolation by Keys' kernel of a = -1/2, at distances in steps of 1/1024, which is TensorFlow's table.

    The runtime's Resize takes an empty batch for another scale.
    Source: tensorflow/core/kernels/image/resize_bicubic_op.cc.
    """
    if not write.node.get_attr_value("half_pixel_centers"):
        raise NotImplementedError("ResizeBicubic without half_pixel_centers")

    def cubic(x: str, *factors: float) -> str:
        total = write.constant(factors[0])
        for factor in factors[1:]:
            total = write.add("Add", write.add("Mul", total, x), write.constant(factor))
        return total

    def shares(old: str, new: str, scale: str) -> str:
        half, steps = write.constant(0.5), write.constant(1024)
        point = write.add("Sub", write.add("Mul", _places(write, new, 0.5), scale), half)
        low = write.add("Floor", point)
        rest = write.add("Div", write.add("Round", write.add("Mul", write.add("Sub", point, low), steps)), steps)
        center = write.add("Unsqueeze", write.add("Add", low, rest), write.constant([1], np.int64))
        x = write.add("Abs", write.add("Sub", _places(write, old), center))
        inner, outer = cubic(x, 1.5, -2.5, 0, 1), cubic(x, -0.5, 2.5, -4, 2)
        outer = write.add("Where", write.add("Less", x, write.constant(2)), outer, write.constant(0))
        weights = write.add("Where", write.add("Less", x, write.constant(1)), inner, outer)
        return write.add("Div", weights, write.add("ReduceSum", weights, write.constant([1], np.int64), keepdims=1))

    _resized_by(write, shares)


def _resize_area(write: OperatorWriter) -> None:
    """Means of the pixels that each new pixel covers.

    Source: tensorflow/core/kernels/image/resize_area_op.cc.
    """

    def shares(old: str, new: str, scale: str) -> str:
        one, pixels = write.constant(1), _places(write, old)
        places = write.add("Unsqueeze", _places(write, new), write.constant([1], np.int64))
        low = write.add("Max", write.add("Mul", places, scale), pixels)
        high = write.add("Min", write.add("Mul", write.add("Add", places, one), scale), write.add("Add", pixels, one))
        return write.add("Div", write.add("Max", write.add("Sub", high, low), write.constant(0)), scale)

    _resized_by(write, shares)


def _resize_nearest(write: OperatorWriter) -> None:
    """Rows and columns gathered: floor((i + 1/2) H / h), in TensorFlow's order, which decides between two pixels.

    With corners aligned, i (H - 1) / (h - 1) rounded, halves up.
    Source: tensorflow/core/kernels/image/resize_nearest_neighbor_op.cc and image_resizer_state.h.
    """
    node, image = write.node, write.inputs[0]
    one, half = (write.constant(value, np.float32) for value in (1, 0.5))
    aligned, shift = node.get_attr_value("align_corners"), 0.5 if node.get_attr_value("half_pixel_centers") else 0.0
    for axis, old, new, scale in list(_sizes(write)):
        if aligned:
            steps = write.add("Max", write.add("Sub", new, one), one)
            scale = write.add("Div", write.add("Sub", old, one), steps)  # noqa: PLW2901
        point = write.add("Mul", _places(write, new, shift), scale)
        place = write.add("Floor", write.add("Add", point, half) if aligned else point)
        index = write.cast(write.add("Min", place, write.add("Sub", old, one)), INT64)
        image = write.add("Gather", image, index, axis=axis)
    write.give("Identity", image)


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
    "Bitcast": missing("Bitcast", 9, _sign_bit),
    "Bucketize": missing("Bucketize", 16, _bucketize),
    "FloorDiv": wrong("FloorDiv", 13, _floor_div, "tf2onnx 1.17 rounds quotients of integers towards zero"),
    "Select": wrong("Select", 9, _select, "tf2onnx 1.17 selects by multiplying: NaN where the other one is infinite"),
    "SelectV2": wrong("SelectV2", 9, _select, "tf2onnx 1.17 selects by multiplying: NaN beside infinity"),
    "CropAndResize": wrong("CropAndResize", 13, _crop_and_resize, "tf2onnx 1.17 rounds halves down in CropAndResize"),
    "ResizeBicubic": wrong("ResizeBicubic", 13, _resize_bicubic, "tf2onnx 1.17's bicubic fails on an empty batch"),
    "ResizeNearestNeighbor": wrong(
        "ResizeNearestNeighbor", 13, _resize_nearest, "tf2onnx 1.17 divides where TensorFlow multiplies: another pixel"
    ),
    "ResizeArea": wrong("ResizeArea", 13, _resize_area, "tf2onnx 1.17 takes one pixel instead of the mean of an area"),
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
    "FloorMod": wrong("FloorMod", 13, _floor_mod, "tf2onnx 1.17's remainder of floats is x - y floor(x / y)"),
}

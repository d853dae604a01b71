"""TensorFlow's operations as ONNX nodes at fixed sizes, written by their definitions.

What only moves elements is run by TensorFlow on their places: the node gathers what comes from where. Of the others,
forms that are the same function of real numbers stand here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from onnx import helper, numpy_helper
from tensorflow.python.eager import context
from tensorflow.python.eager.execute import quick_execute

OPSET = 22


class UnknownOperationError(Exception):
    """No ONNX form is known; the message says which use of the operation is meant, or nothing."""


@dataclass(frozen=True, eq=False)
class GraphTensor:
    """A tensor of the trace.

    Attributes:
        example: TensorFlow's, at the sizes of the trace.
        name: in the ONNX graph; "" before it is used there.
        known: depends on no input and on no weight.
        fixed: depends on no input.
    """

    example: Any
    name: str = ""
    known: bool = False
    fixed: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """Of numbers alone."""
        return tuple(self.example.shape)

    @property
    def rank(self) -> int:
        """How many dims it has."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """NumPy's."""
        return self.example.dtype.as_numpy_dtype

    def numbers(self) -> list[Any]:
        """Its numbers, flat.

        Raises:
            UnknownOperationError: inputs or weights decide them.
        """
        if not self.known:
            raise UnknownOperationError("a size or an axis is decided by the data")
        return np.asarray(self.example).reshape(-1).tolist()


def run(operation: Any, inputs: Sequence[Any], kinds: Sequence[tuple[str, Any]] = ()) -> list[Any]:
    """What TensorFlow's own kernel gives.

    Args:
        operation: of a graph.
        inputs: eager tensors.
        kinds: type attributes that are others than the operation's.
    """
    attributes: list[Any] = []
    for declared in operation.op_def.attr:
        value = dict(kinds).get(declared.name) or operation.get_attr(declared.name)
        several = isinstance(value, list)
        plain = [v.as_datatype_enum if isinstance(v, tf.DType) else v for v in (value if several else [value])]
        attributes += [declared.name, plain if several else plain[0]]
    count = len(operation.outputs)
    return list(quick_execute(operation.type, count, list(inputs), tuple(attributes), context.context()))


class GraphWriter:
    """Collects nodes and initializers.

    Attributes:
        result: the first example of what the operation at hand gives.
    """

    def __init__(self) -> None:
        self.result: Any = None
        self._operation: Any = None
        self._read = set[str]()
        self._begins: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._weights: dict[int, tuple[Any, str]] = {}

    def input(self, name: str, example: Any) -> GraphTensor:
        """An input of the graph."""
        found = GraphTensor(example, name, fixed=False)
        self._begins.append(_described(name, found))
        return found

    def constant(self, array: Any, dtype: Any = None) -> str:
        """An initializer; of the result's type unless another is given, or the array has one."""
        if not isinstance(array, np.ndarray):
            array = np.asarray(array, self.result.dtype.as_numpy_dtype if dtype is None else dtype)
        name = f"constant_{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, values: Any) -> str:
        """int64 numbers."""
        return self.constant(np.asarray(values, np.int64))

    def add(self, kind: str, *inputs: GraphTensor | str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; the name of its output, or of several."""
        names = [f"value_{len(self._nodes)}_{k}" for k in range(outputs)]
        self._nodes.append(helper.make_node(kind, [self.name(i) for i in inputs], names, **attributes))
        return names[0] if outputs == 1 else names

    def name(self, value: GraphTensor | str) -> str:
        """In the graph; of a constant or a weight it is entered at its first use."""
        if isinstance(value, str):
            return value
        if value.name:
            return value.name
        if id(value) not in self._weights:
            self._weights[id(value)] = value, self.constant(np.asarray(value.example))
        return self._weights[id(value)][1]

    def attribute(self, name: str) -> Any:
        """Of the operation at hand."""
        self._read.add(name)
        value = self._operation.get_attr(name)
        return value.decode() if isinstance(value, bytes) else value

    def cast(self, value: GraphTensor | str, dtype: Any) -> str:
        """In another type."""
        return str(self.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))

    def reshape(self, value: GraphTensor | str, shape: Sequence[int]) -> str:
        """In another shape."""
        return str(self.add("Reshape", value, self.ints(list(shape)), allowzero=1))

    def written(self, operation: Any, inputs: Sequence[GraphTensor], examples: Sequence[Any]) -> list[str]:
        """The nodes of an operation; names of its outputs.

        Raises:
            UnknownOperationError: its form takes no notice of one of its attributes.
        """
        self._operation, self.result, self._read = operation, examples[0], set()
        if operation.type in MOVES and (moved := _moved(self, operation, inputs)) is not None:
            return moved
        if operation.type not in OPERATORS:
            raise UnknownOperationError("as the data decides")
        found = OPERATORS[operation.type](self, *inputs)
        for declared in operation.op_def.attr:
            plain = declared.type in ("int", "float", "bool", "string", "list(int)", "shape")
            if plain and declared.name not in self._read | _COUNTS:
                given, usual = operation.node_def.attr[declared.name], declared.default_value
                if given.SerializeToString(deterministic=True) != usual.SerializeToString(deterministic=True):
                    raise UnknownOperationError(f"with {declared.name}")
        return [found] if isinstance(found, str) else list(found)

    def model(self, outputs: Sequence[tuple[str, GraphTensor]]) -> onnx.ModelProto:
        """The graph of all nodes."""
        ends = []
        for name, result in outputs:
            self._nodes.append(helper.make_node("Identity", [self.name(result)], [name]))
            ends.append(_described(name, result))
        graph = helper.make_graph(self._nodes, "trace", self._begins, ends, self._initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _described(name: str, value: GraphTensor) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), value.shape)


# Attributes that count inputs or outputs, or change no number.
_COUNTS = frozenset(
    ("N", "num", "num_split", "use_cudnn_on_gpu", "validate_indices", "Truncate", "exponential_avg_factor")
)
Writer = Callable[..., Any]
OPERATORS: dict[str, Writer] = {}


def _operation(*names: str) -> Callable[[Writer], Writer]:
    def register(writer: Writer) -> Writer:
        OPERATORS.update(dict.fromkeys(names, writer))
        return writer

    return register


# Moves of elements: which inputs hold these, and which one fills what comes from nowhere (zero, where there is none).
MOVES: dict[str, slice] = {
    **dict.fromkeys(
        ("Reshape", "Transpose", "Squeeze", "ExpandDims", "StridedSlice", "Slice", "Tile", "BroadcastTo", "ReverseV2",
         "Roll", "GatherV2", "GatherNd", "SplitV", "Unpack", "SpaceToBatchND", "BatchToSpaceND", "DepthToSpace",
         "SpaceToDepth", "MirrorPad", "MatrixDiagPartV3", "MatrixDiagV3", "MatrixBandPart", "ReverseSequence", "Pad",
         "PadV2", "ResizeNearestNeighbor", "ExtractImagePatches", "ScatterNd"),
        slice(1),
    ),
    "Split": slice(1, 2),
    "ScatterNd": slice(1, 2),
    "Pack": slice(None),
    "ConcatV2": slice(-1),
    "TensorScatterUpdate": slice(0, 3, 2),
}  # fmt: skip
_FILLED = {"PadV2": 2, "MatrixDiagPartV3": 2, "MatrixDiagV3": 4}


def _moved(w: GraphWriter, operation: Any, inputs: Sequence[GraphTensor]) -> list[str] | None:
    """A gather of the elements' places, as TensorFlow moves them; None where the data decides how."""
    kind, held = operation.type, range(len(inputs))[MOVES[operation.type]]
    fill = _FILLED.get(kind)
    if not all(v.known for k, v in enumerate(inputs) if k not in held and k != fill):
        return None
    x = inputs[held[0]]
    if kind == "Transpose":
        return [w.add("Transpose", x, perm=inputs[1].numbers())]
    if kind in ("Reshape", "Squeeze", "ExpandDims"):
        return [w.reshape(x, w.result.shape)]
    if kind == "ConcatV2":
        return [w.add("Concat", *inputs[:-1], axis=inputs[-1].numbers()[0] % x.rank)]
    if kind == "Pack":
        axis = w.attribute("axis") % (x.rank + 1)
        return [w.add("Concat", *(w.add("Unsqueeze", i, w.ints([axis])) for i in inputs), axis=axis)]
    places, begin = [i.example for i in inputs], 1  # 0 is what comes from nowhere
    for k in held:
        count = math.prod(inputs[k].shape)
        places[k] = tf.reshape(tf.range(begin, begin + count), inputs[k].shape)
        begin += count
    if fill is not None:
        places[fill] = tf.constant(0)
    typed = operation.op_def.input_arg[held[0]].type_attr
    found = [np.asarray(t) for t in run(operation, places, [(typed, tf.int32)])]
    nothing = w.reshape(inputs[fill], [1]) if fill is not None else w.constant(np.zeros(1, x.dtype))
    if all(f.all() for f in found):
        found = [f - 1 for f in found]
        flat = [w.reshape(inputs[k], [-1]) for k in held]
    else:
        flat = [nothing, *(w.reshape(inputs[k], [-1]) for k in held)]
    whole = flat[0] if len(flat) == 1 else w.add("Concat", *flat, axis=0)
    return [w.add("Gather", whole, w.ints(f), axis=0) for f in found]


def _plain(kind: str, **attributes: Any) -> Writer:
    return lambda w, *x: w.add(kind, *x, **attributes)


OPERATORS |= {
    name: _plain(kind)
    for kind, names in {
        **{n: (n,) for n in ("Abs", "Neg", "Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh",
                             "Cosh", "Asinh", "Acosh", "Atanh", "Floor", "Ceil", "Sign", "Erf", "Sigmoid", "Tanh",
                             "Relu", "Softplus", "Softsign", "Selu", "Elu", "Reciprocal", "Pow", "Mul", "Sub", "Equal",
                             "Less", "Greater", "BitwiseAnd", "BitwiseOr", "BitwiseXor")},
        "Add": ("Add", "AddV2"), "Max": ("Maximum",), "Min": ("Minimum",), "Not": ("LogicalNot",),
        "And": ("LogicalAnd",), "Or": ("LogicalOr",), "Sum": ("AddN",),
        "LessOrEqual": ("LessEqual",), "GreaterOrEqual": ("GreaterEqual",),
        "Round": ("Round", "Rint"), "BitwiseNot": ("Invert",), "IsNaN": ("IsNan",), "IsInf": ("IsInf",),
    }.items()
    for name in names
}  # fmt: skip


OPERATORS |= {
    "RealDiv": _plain("Div"),
    "Rsqrt": lambda w, x: w.add("Reciprocal", w.add("Sqrt", x)),
    "Square": lambda w, x: w.add("Mul", x, x),
    "Relu6": lambda w, x: w.add("Clip", x, w.constant(0), w.constant(6)),
    "Expm1": lambda w, x: w.add("Sub", w.add("Exp", x), w.constant(1)),
    "Log1p": lambda w, x: w.add("Log", w.add("Add", x, w.constant(1))),
    "Erfc": lambda w, x: w.add("Sub", w.constant(1), w.add("Erf", x)),
    "LeakyRelu": lambda w, x: w.add("LeakyRelu", x, alpha=w.attribute("alpha")),
    "NotEqual": lambda w, x, y: w.add("Not", w.add("Equal", x, y)),
    "IsFinite": lambda w, x: w.add("Not", w.add("Or", w.add("IsNaN", x), w.add("IsInf", x))),
    "ClipByValue": lambda w, x, low, high: w.add("Min", w.add("Max", x, low), high),
    "Softmax": lambda w, x: w.add("Softmax", x, axis=-1),
    "LogSoftmax": lambda w, x: w.add("LogSoftmax", x, axis=-1),
    "DivNoNan": lambda w, x, y: w.add("Where", w.add("Equal", y, w.constant(0)), w.constant(0), w.add("Div", x, y)),
    "Fill": lambda w, dims, x: w.add("Expand", x, w.ints(dims.numbers())),
    "SelectV2": _plain("Where"),
}


@_operation("SquaredDifference")
def _squared_difference(w: GraphWriter, x: GraphTensor, y: GraphTensor) -> str:
    apart = w.add("Sub", x, y)
    return str(w.add("Mul", apart, apart))


@_operation("FloorMod")
def _remainder(w: GraphWriter, x: GraphTensor, y: GraphTensor) -> str:
    if w.result.dtype.is_floating:
        raise UnknownOperationError("of floats")
    return str(w.add("Mod", x, y))


@_operation("FloorDiv")
def _quotient(w: GraphWriter, x: GraphTensor, y: GraphTensor) -> str:
    if not w.result.dtype.is_floating:
        raise UnknownOperationError("of integers")
    return str(w.add("Floor", w.add("Div", x, y)))


@_operation("Cast")
def _cast(w: GraphWriter, x: GraphTensor) -> str:
    return w.cast(x, w.result.dtype.as_numpy_dtype)


@_operation("Select")
def _select(w: GraphWriter, condition: GraphTensor, x: GraphTensor, y: GraphTensor) -> str:
    if condition.rank == 1 and x.rank > 1:
        return str(w.add("Where", w.reshape(condition, [-1, *[1] * (x.rank - 1)]), x, y))
    return str(w.add("Where", condition, x, y))


@_operation("BiasAdd")
def _bias(w: GraphWriter, x: GraphTensor, bias: GraphTensor) -> str:
    if w.attribute("data_format").startswith("NC"):
        return str(w.add("Add", x, w.reshape(bias, [-1, *[1] * (x.rank - 2)])))
    return str(w.add("Add", x, bias))


def _transposed(w: GraphWriter, x: GraphTensor | str, rank: int, turn: bool) -> GraphTensor | str:
    """The last two dims the other way round, if they are to be."""
    return w.add("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2]) if turn else x


@_operation("MatMul")
def _matmul(w: GraphWriter, x: GraphTensor, y: GraphTensor) -> str:
    turned = (_transposed(w, v, 2, w.attribute(n)) for v, n in ((x, "transpose_a"), (y, "transpose_b")))
    return str(w.add("MatMul", *turned))


@_operation("BatchMatMulV2", "BatchMatMulV3", "BatchMatMul")
def _batch_matmul(w: GraphWriter, x: GraphTensor, y: GraphTensor) -> str:
    return str(w.add("MatMul", *(_transposed(w, v, v.rank, w.attribute(n)) for v, n in ((x, "adj_x"), (y, "adj_y")))))


@_operation("Einsum")
def _einsum(w: GraphWriter, *x: GraphTensor) -> str:
    return str(w.add("Einsum", *x, equation=w.attribute("equation").replace(" ", "")))


def _spatial(w: GraphWriter, values: Sequence[int]) -> list[int]:
    """Of numbers for each dim, those of the spatial dims."""
    return list(values[2:] if w.attribute("data_format").startswith("NC") else values[1:-1])


def _channels_first(w: GraphWriter, x: GraphTensor, back: bool = False) -> tuple[int, ...] | None:
    """The perm that brings channels to axis 1 (or back); None where they are there."""
    if w.attribute("data_format").startswith("NC"):
        return None
    return (0, *range(2, x.rank), 1) if back else (0, x.rank - 1, *range(1, x.rank - 1))


def _in_channels_first(w: GraphWriter, x: GraphTensor, write: Callable[[GraphTensor | str], str]) -> str:
    """What a node with channels in axis 1 gives, in the operation's own layout."""
    there, back = _channels_first(w, x), _channels_first(w, x, back=True)
    found = write(x if there is None else w.add("Transpose", x, perm=there))
    return found if back is None else w.add("Transpose", found, perm=back)


def _pads(
    w: GraphWriter, size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Before each spatial dim, then behind each."""
    padding = w.attribute("padding")
    if padding == "VALID":
        return [0] * 2 * len(size)
    if padding == "EXPLICIT":
        listed = w.attribute("explicit_paddings")
        return [*_spatial(w, listed[::2]), *_spatial(w, listed[1::2])]
    total = [
        max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    return [*(t // 2 for t in total), *(t - t // 2 for t in total)]


@_operation("Conv2D", "Conv3D", "DepthwiseConv2dNative")
def _convolution(w: GraphWriter, x: GraphTensor, weight: GraphTensor) -> str:
    size = _spatial(w, x.shape)
    kernel, rank = list(weight.shape[:-2]), len(size)
    strides, dilations = (_spatial(w, w.attribute(n)) for n in ("strides", "dilations"))
    channels = x.shape[1] if w.attribute("data_format").startswith("NC") else x.shape[-1]
    last = [*range(rank)]
    if w._operation.type == "DepthwiseConv2dNative":
        groups = channels
        turned = w.add("Transpose", weight, perm=[rank, rank + 1, *last])
        filters = w.reshape(turned, [math.prod(weight.shape[-2:]), 1, *kernel])
    else:
        groups, filters = channels // weight.shape[-2], w.add("Transpose", weight, perm=[rank + 1, rank, *last])
    pads = _pads(w, size, kernel, strides, dilations)
    return _in_channels_first(
        w, x, lambda v: w.add("Conv", v, filters, strides=strides, dilations=dilations, pads=pads, group=groups)
    )


@_operation("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def _transposed_convolution(w: GraphWriter, size: GraphTensor, weight: GraphTensor, x: GraphTensor) -> str:
    wanted, kernel = _spatial(w, size.numbers()), list(weight.shape[:-2])
    strides, dilations = (_spatial(w, w.attribute(n)) for n in ("strides", "dilations"))
    pads, rank = _pads(w, wanted, kernel, strides, dilations), len(kernel)
    full = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(_spatial(w, x.shape), strides, kernel, dilations, strict=True)
    ]
    behind = [f - before - n for f, before, n in zip(full, pads, wanted, strict=False)]
    shared: dict[str, Any] = {
        "strides": strides, "dilations": dilations, "pads": [*pads[:rank], *(max(b, 0) for b in behind)],
        "output_padding": [max(-b, 0) for b in behind],
    }  # fmt: skip
    filters = w.add("Transpose", weight, perm=[rank + 1, rank, *range(rank)])
    return _in_channels_first(w, x, lambda v: w.add("ConvTranspose", v, filters, **shared))


@_operation("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def _pool(w: GraphWriter, x: GraphTensor) -> str:
    kernel, strides = (_spatial(w, w.attribute(n)) for n in ("ksize", "strides"))
    if len(kernel) != x.rank - 2 or [*w.attribute("ksize"), *w.attribute("strides")].count(1) < 4:
        raise UnknownOperationError("over channels or rows")
    pads = _pads(w, _spatial(w, x.shape), kernel, strides, [1] * len(kernel))
    kind = "MaxPool" if w._operation.type.startswith("Max") else "AveragePool"
    return _in_channels_first(w, x, lambda v: w.add(kind, v, kernel_shape=kernel, strides=strides, pads=pads))


@_operation("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def _batch_norm(w: GraphWriter, x: GraphTensor, *parameters: GraphTensor) -> list[str]:
    if w.attribute("is_training"):
        raise UnknownOperationError("in training")
    epsilon = w.attribute("epsilon")
    y = _in_channels_first(w, x, lambda v: w.add("BatchNormalization", v, *parameters, epsilon=epsilon))
    return [y, *[""] * (len(w._operation.outputs) - 1)]


def _reduced(kind: str, whole: bool = False) -> Writer:
    def write(w: GraphWriter, x: GraphTensor, axes: GraphTensor) -> Any:
        keep, listed = int(w.attribute("keep_dims")), w.ints([a % max(x.rank, 1) for a in axes.numbers()])
        if not axes.numbers() or not x.rank:
            return w.add("Identity", x)
        if not whole:
            return w.add(kind, x, listed, keepdims=keep)
        return w.cast(w.add(kind, w.cast(x, np.int32), listed, keepdims=keep), np.bool_)

    return write


OPERATORS |= {n: _reduced(f"Reduce{n}") for n in ("Sum", "Mean", "Max", "Min", "Prod")}
OPERATORS |= {"All": _reduced("ReduceMin", whole=True), "Any": _reduced("ReduceMax", whole=True)}


def _arg(kind: str) -> Writer:
    def write(w: GraphWriter, x: GraphTensor, axis: GraphTensor) -> str:
        found = w.add(kind, x, axis=axis.numbers()[0] % x.rank, keepdims=0)
        return w.cast(found, w.result.dtype.as_numpy_dtype)

    return write


OPERATORS |= {"ArgMax": _arg("ArgMax"), "ArgMin": _arg("ArgMin")}


@_operation("TopKV2")
def _largest(w: GraphWriter, x: GraphTensor, count: GraphTensor) -> list[str]:
    values, places = w.add("TopK", x, w.ints(count.numbers()), outputs=2, axis=-1, sorted=int(w.attribute("sorted")))
    return [values, w.cast(places, np.int32)]


@_operation("Cumsum")
def _cumsum(w: GraphWriter, x: GraphTensor, axis: GraphTensor) -> str:
    exclusive, reverse = (int(w.attribute(n)) for n in ("exclusive", "reverse"))
    return str(w.add("CumSum", x, w.ints(axis.numbers()[0] % x.rank), exclusive=exclusive, reverse=reverse))


@_operation("GatherV2")
def _gather(w: GraphWriter, table: GraphTensor, indices: GraphTensor, axis: GraphTensor) -> str:
    return str(w.add("Gather", table, indices, axis=axis.numbers()[0] % table.rank))


@_operation("ResourceGather")
def _read_rows(w: GraphWriter, variable: GraphTensor, indices: GraphTensor) -> str:
    table = tf.raw_ops.ReadVariableOp(resource=variable.example, dtype=w.result.dtype)
    return str(w.add("Gather", w.constant(np.asarray(table)), indices, axis=0))


@_operation("OneHot")
def _one_hot(w: GraphWriter, indices: GraphTensor, depth: GraphTensor, on: GraphTensor, off: GraphTensor) -> str:
    axis = w.attribute("axis") % (indices.rank + 1)
    count = depth.numbers()[0]
    classes = w.ints(np.arange(count).reshape([count if k == axis else 1 for k in range(indices.rank + 1)]))
    wide = w.add("Unsqueeze", w.cast(indices, np.int64), w.ints([axis]))
    return str(w.add("Where", w.add("Equal", wide, classes), on, off))


@_operation("ResizeBilinear")
def _bilinear(w: GraphWriter, image: GraphTensor, size: GraphTensor) -> str:
    aligned, half = w.attribute("align_corners"), w.attribute("half_pixel_centers")
    mode = "align_corners" if aligned else "half_pixel" if half else "asymmetric"
    sizes = w.ints([image.shape[0], image.shape[3], *size.numbers()])
    first = w.add("Transpose", w.cast(image, np.float32), perm=[0, 3, 1, 2])
    resized = w.add("Resize", first, "", "", sizes, mode="linear", coordinate_transformation_mode=mode)
    return str(w.add("Transpose", resized, perm=[0, 2, 3, 1]))

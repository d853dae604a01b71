"""The operators of torch (aten) as ONNX nodes at fixed sizes, written by their definitions in torch's documentation.

What only moves elements is run by torch on their places: the node gathers what comes from where. Of the others, forms
that are the same function of real numbers stand here; what has none raises `UnknownOperatorError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch

from onnxtool.conversion.pytorch.tensors import numpy_dtype, to_numpy

OPSET = 22
UNWRITTEN = object()  # a further result of an operator, which has no form here


class UnknownOperatorError(Exception):
    """No ONNX form is known; the message says which use of the operator is meant, or nothing."""


@dataclass(frozen=True)
class TracedTensor:
    """A tensor of the trace.

    Attributes:
        value: in the graph.
        tensor: its shape and dtype, on torch's meta device; of constants the numbers too.
        constant: depends on no input and on no weight, and is exact.
    """

    value: ir.Value
    tensor: torch.Tensor
    constant: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Of numbers alone."""
        return tuple(self.tensor.shape)

    @property
    def rank(self) -> int:
        """How many dims it has."""
        return len(self.shape)

    def axis(self, dim: int) -> int:
        """A dim, counted from the front."""
        return dim % max(self.rank, 1)


class TraceWriter:
    """Collects nodes and initializers.

    Attributes:
        result: an example of what the operator at hand gives: a tensor, or a sequence of them.
    """

    def __init__(self) -> None:
        self.result: Any = None
        self._nodes: list[ir.Node] = []
        self._initializers: list[ir.Value] = []

    def input(self, name: str, tensor: torch.Tensor) -> TracedTensor:
        """An input of the graph."""
        return TracedTensor(ir.Value(name=name, type=_type(tensor), shape=ir.Shape(tensor.shape)), as_example(tensor))

    def constant(self, tensor: torch.Tensor, name: str = "", *, exact: bool = False) -> TracedTensor:
        """An initializer with the bits of a tensor.

        Args:
            tensor: its value.
            name: unless one is to be made.
            exact: what is computed from it alone may be computed here.
        """
        array = to_numpy(tensor)
        name = name or f"number_{len(self._initializers)}"
        value = ir.Value(
            name=name, type=_type(tensor), shape=ir.Shape(array.shape), const_value=ir.tensor(array, name=name)
        )
        self._initializers.append(value)
        return TracedTensor(value, tensor if exact else as_example(tensor), exact)

    def number(self, value: Any, dtype: torch.dtype | None = None) -> TracedTensor:
        """A Python number, or a list of them, in the dtype of the result unless another is given."""
        return self.constant(torch.tensor(value, dtype=dtype or self.result.dtype), exact=True)

    def sizes(self, *values: int) -> TracedTensor:
        """int64[n]."""
        return self.number(list(values), torch.int64)

    def add(
        self, kind: str, *inputs: TracedTensor | None, like: torch.Tensor | None = None, **attributes: Any
    ) -> TracedTensor:
        """A node of one output.

        Args:
            kind: the ONNX operator.
            inputs: None for one that is left out.
            like: an example of the output, where it is not the result of the operator at hand.
            attributes: of the node.
        """
        return self.several(kind, inputs, [self.result if like is None else like], **attributes)[0]

    def several(
        self, kind: str, inputs: Sequence[TracedTensor | None], like: Sequence[torch.Tensor], **attributes: Any
    ) -> tuple[TracedTensor, ...]:
        """A node of as many outputs as there are examples."""
        values = [None if v is None else v.value for v in inputs]
        node = ir.node(kind, values, attributes, num_outputs=len(like))
        self._nodes.append(node)
        for output, example in zip(node.outputs, like, strict=True):
            output.name = f"value_{len(self._nodes)}_{output.index()}"
            output.type, output.shape = _type(example), ir.Shape(example.shape)
        return tuple(TracedTensor(o, as_example(e)) for o, e in zip(node.outputs, like, strict=True))

    def cast(self, value: Any, dtype: torch.dtype | None = None) -> TracedTensor:
        """A tensor or a number in a dtype: that of the result unless another is given."""
        wanted = dtype or self.result.dtype
        if not isinstance(value, TracedTensor):
            return self.number(value, wanted)
        if value.tensor.dtype == wanted:
            return value
        return self.add("Cast", value, like=value.tensor.to(wanted), to=ir.DataType.from_numpy(numpy_dtype(wanted)))

    def reshape(self, value: TracedTensor, shape: Sequence[int]) -> TracedTensor:
        """A tensor in another shape."""
        if tuple(shape) == value.shape:
            return value
        return self.add("Reshape", value, self.sizes(*shape), like=value.tensor.reshape(tuple(shape)), allowzero=1)

    def expand(self, value: TracedTensor, shape: Sequence[int]) -> TracedTensor:
        """A tensor broadcast to a shape."""
        if tuple(shape) == value.shape:
            return value
        return self.add("Expand", value, self.sizes(*shape), like=value.tensor.expand(tuple(shape)))

    def transpose(self, value: TracedTensor, order: Sequence[int]) -> TracedTensor:
        """A tensor with its dims in another order."""
        return self.add("Transpose", value, like=value.tensor.permute(*order), perm=list(order))

    def folded(self, target: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> Any:
        """The constant that a call gives: integers, booleans and filled tensors that depend on no input; else None."""
        if torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
            raise UnknownOperatorError("which draws random numbers")
        name = str(target).split(".")[1] if "." in str(target) else ""
        exact = [v for v in _values((args, list(kwargs.values()))) if isinstance(v, TracedTensor)]
        if name in _FILLS and len(exact) == 1:
            filled = target(
                torch.empty(exact[0].shape, dtype=exact[0].tensor.dtype), *_tensors(args[1:]), **_tensors(kwargs)
            )
            return self.constant(filled, exact=True)
        if not all(v.constant for v in exact) or not isinstance(result, torch.Tensor):
            return None
        if result.is_floating_point() and name not in _EXACT:
            return None
        return self.constant(target(*_tensors(args), **_tensors(kwargs)), exact=True)

    def model(self, inputs: Sequence[TracedTensor], outputs: Sequence[tuple[str, TracedTensor]]) -> ir.Model:
        """The graph of all nodes, with these outputs."""
        ends = []
        for name, result in outputs:
            end = self.add("Identity", result, like=result.tensor)
            end.value.name = name
            ends.append(end.value)
        graph = ir.Graph(
            [v.value for v in inputs], ends, nodes=self._nodes, initializers=self._initializers,
            opset_imports={"": OPSET}, name="trace",
        )  # fmt: skip
        return ir.Model(graph, ir_version=10)


# Moves of elements: how many arguments hold them; what comes from nowhere is zero, or the value that pads.
MOVES = {
    **dict.fromkeys(
        ("select", "slice", "split", "split_with_sizes", "chunk", "unbind", "flip", "roll", "repeat", "tril", "triu",
         "constant_pad_nd", "diagonal", "diag_embed", "unfold", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
         "im2col", "index", "gather", "as_strided"),
        1,
    ),
    **{f"{kind}_pad{k}d": 1 for kind in ("reflection", "replication") for k in (1, 2, 3)},
    **{f"{kind}{k}d": 1 for kind in ("upsample_nearest", "_upsample_nearest_exact") for k in (1, 2, 3)},
    **dict.fromkeys(("select_scatter", "slice_scatter", "diagonal_scatter"), 2),
}  # fmt: skip


def moved(w: TraceWriter, name: str, target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A gather of the elements' places, as torch's own kernel moves them; None where the data decides how."""
    held, rest, named, fill = list(args[: MOVES[name]]), list(args[MOVES[name] :]), dict(kwargs), 0.0
    if not all(v.constant for v in _values((rest, list(named.values()))) if isinstance(v, TracedTensor)):
        return None
    if name == "constant_pad_nd":
        fill = named.pop("value", rest[1] if len(rest) > 1 else fill)
        rest = rest[:1]
    total = sum(x.tensor.numel() for x in held)
    # Kernels that compute places from a scale do so in the type of the elements.
    kind = torch.float32 if held[0].tensor.dtype == torch.float32 and total < 1 << 24 else torch.float64
    numbered = torch.arange(1, total + 1, dtype=kind).split([x.tensor.numel() for x in held])
    places = [part.reshape(x.shape) for part, x in zip(numbered, held, strict=True)]
    found = target(*places, *_tensors(rest), **_tensors(named))
    if isinstance(found, torch.Tensor):
        return _gathered(w, held, found.long(), w.result, fill)
    return tuple(_gathered(w, held, f.long(), like, fill) for f, like in zip(found, w.result, strict=True))


def _gathered(
    w: TraceWriter, held: Sequence[TracedTensor], places: torch.Tensor, like: torch.Tensor, fill: float
) -> TracedTensor:
    """Elements of all `held`, counted from 1, at places; 0 is the fill. Whole rows where one dim alone changes."""
    x = held[0]
    own = torch.arange(1, x.tensor.numel() + 1).reshape(x.shape)
    for axis in range(x.rank) if len(held) == 1 and places.numel() and places.all() else ():
        count, rest = divmod(places.numel(), x.tensor.numel() // x.shape[axis])
        if not rest:
            along = places.reshape(*x.shape[:axis], count, *x.shape[axis + 1 :])
            rows = (along.movedim(axis, 0).reshape(count, -1)[:, 0] - 1) // own.stride(axis) % x.shape[axis]
            if torch.equal(own.index_select(axis, rows), along):
                taken = as_example(x.tensor).index_select(axis, as_example(rows))
                return w.reshape(w.add("Gather", x, w.constant(rows), like=taken, axis=axis), like.shape)
    flat = [w.reshape(w.cast(v, like.dtype), (v.tensor.numel(),)) for v in held]
    if places.all():
        places = places - 1
    else:
        flat.insert(0, w.number([fill], like.dtype))
    whole = flat[0]
    if len(flat) > 1:
        whole = w.add("Concat", *flat, axis=0, like=torch.cat([as_example(v.tensor) for v in flat]))
    return w.add("Gather", whole, w.constant(places), like=like, axis=0)


# Of these, the shape of the first argument alone counts.
_FILLS = frozenset(("full_like", "zeros_like", "ones_like", "empty_like", "new_zeros", "new_ones", "new_full"))
# Of these, floats are exact too: they fill, move and choose.
_EXACT = _FILLS | {
    "full", "zeros", "ones", "empty", "scalar_tensor", "arange", "eye", "view", "_unsafe_view", "reshape", "permute",
    "transpose", "t", "expand", "unsqueeze", "squeeze", "select", "slice", "cat", "stack", "repeat", "clone", "copy",
    "alias", "detach", "lift_fresh", "lift_fresh_copy", "where", "masked_fill", "tril", "triu", "_to_copy",
}  # fmt: skip


def _values(tree: Any) -> list[Any]:
    return [item for part in tree for item in _values(part)] if isinstance(tree, (list, tuple)) else [tree]


def _tensors(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _tensors(item) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_tensors(item) for item in tree)
    return tree.tensor if isinstance(tree, TracedTensor) else tree


def as_example(tensor: torch.Tensor) -> torch.Tensor:
    """Shape and dtype alone."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _type(tensor: torch.Tensor) -> ir.TensorType:
    return ir.TensorType(ir.DataType.from_numpy(numpy_dtype(tensor.dtype)))


Writer = Callable[..., Any]
OPERATORS: dict[str, Writer] = {}


def _aten(*names: str) -> Callable[[Writer], Writer]:
    def listed(write: Writer) -> Writer:
        OPERATORS.update(dict.fromkeys(names, write))
        return write

    return listed


def _elementwise(kind: str) -> Writer:
    return lambda w, x: w.add(kind, x if w.result.dtype == torch.bool else w.cast(x))


OPERATORS |= {
    aten: _elementwise(kind)
    for kind, names in {
        "Abs": "abs", "Neg": "neg", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Erf": "erf", "Sin": "sin",
        "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh",
        "Tanh": "tanh", "Sigmoid": "sigmoid", "Relu": "relu", "Floor": "floor", "Ceil": "ceil", "Round": "round",
        "Reciprocal": "reciprocal", "IsNaN": "isnan",
    }.items()
    for aten in names.split()
}  # fmt: skip


def _compared(kind: str, *, negated: bool = False) -> Writer:
    def write(w: TraceWriter, x: Any, y: Any) -> TracedTensor:
        common = torch.result_type(_tensors(x), _tensors(y))
        found = w.add(kind, w.cast(x, common), w.cast(y, common))
        return w.add("Not", found) if negated else found

    return write


OPERATORS |= {
    "eq": _compared("Equal"), "ne": _compared("Equal", negated=True), "lt": _compared("Less"),
    "le": _compared("LessOrEqual"), "gt": _compared("Greater"), "ge": _compared("GreaterOrEqual"),
}  # fmt: skip


def _binary(kind: str) -> Writer:
    return lambda w, x, y: w.add(kind, w.cast(x), w.cast(y))


OPERATORS |= {"mul": _binary("Mul"), "maximum": _binary("Max"), "minimum": _binary("Min")}


def _sum_of(kind: str) -> Writer:
    def write(w: TraceWriter, x: Any, y: Any, alpha: float = 1) -> TracedTensor:
        if alpha != 1:
            y = w.cast(y)
            y = w.add("Mul", y, w.number(alpha), like=y.tensor)
        return w.add(kind, w.cast(x), w.cast(y))

    return write


OPERATORS |= {"add": _sum_of("Add"), "sub": _sum_of("Sub")}


@_aten("logical_not", "bitwise_not")
def _not(w: TraceWriter, x: TracedTensor) -> TracedTensor:
    if x.tensor.dtype != torch.bool:
        raise UnknownOperatorError("of integers")
    return w.add("Not", x)


def _logical(kind: str) -> Writer:
    def write(w: TraceWriter, x: Any, y: Any) -> TracedTensor:
        if w.result.dtype != torch.bool:
            raise UnknownOperatorError("of integers")
        return w.add(kind, w.cast(x, torch.bool), w.cast(y, torch.bool))

    return write


for _kind in ("And", "Or", "Xor"):
    OPERATORS |= {f"{word}_{_kind.lower()}": _logical(_kind) for word in ("logical", "bitwise")}


@_aten("div")
def _div(w: TraceWriter, x: Any, y: Any, rounding_mode: str | None = None) -> TracedTensor:
    whole = not w.result.is_floating_point()
    if rounding_mode is not None and whole:
        raise UnknownOperatorError(f"of integers with rounding_mode={rounding_mode}")
    quotient = w.add("Div", w.cast(x), w.cast(y))
    if rounding_mode == "trunc":
        raise UnknownOperatorError("with rounding_mode=trunc")
    return quotient if rounding_mode is None else w.add("Floor", quotient)


@_aten("rsqrt")
def _rsqrt(w: TraceWriter, x: TracedTensor) -> TracedTensor:
    return w.add("Reciprocal", w.add("Sqrt", w.cast(x)))


@_aten("pow")
def _pow(w: TraceWriter, x: Any, y: Any) -> TracedTensor:
    return w.add("Pow", w.cast(x), w.cast(y))


@_aten("gelu")
def _gelu(w: TraceWriter, x: TracedTensor, approximate: str = "none") -> TracedTensor:
    return w.add("Gelu", x, approximate=approximate)


@_aten("elu")
def _elu(
    w: TraceWriter, x: TracedTensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> TracedTensor:
    if (scale, input_scale) != (1, 1):
        raise UnknownOperatorError("with a scale")
    return w.add("Elu", x, alpha=float(alpha))


@_aten("softplus")
def _softplus(w: TraceWriter, x: TracedTensor, beta: float = 1.0, threshold: float = 20.0) -> TracedTensor:
    if (beta, threshold) != (1, 20):
        raise UnknownOperatorError("with its own beta or threshold")
    return w.add("Softplus", x)  # beyond the threshold torch gives x, which differs by less than its rounding


@_aten("clamp")
def _clamp(w: TraceWriter, x: TracedTensor, low: Any = None, high: Any = None) -> TracedTensor:
    if any(isinstance(limit, TracedTensor) for limit in (low, high)):
        raise UnknownOperatorError("with limits that are tensors")
    bounds = {operator: w.number(bound) for operator, bound in (("Max", low), ("Min", high)) if bound is not None}
    if len(bounds) == 2:
        return w.add("Clip", w.cast(x), *bounds.values())
    ((operator, bound),) = bounds.items()  # Clip of one bound makes the largest number of infinity
    return w.add(operator, w.cast(x), bound)


@_aten("clone", "contiguous", "alias", "detach", "lift_fresh", "lift_fresh_copy")
def _same(w: TraceWriter, x: TracedTensor, *_: Any, **__: Any) -> TracedTensor:  # noqa: ARG001
    return x


@_aten("copy")
def _copy(w: TraceWriter, x: TracedTensor, y: TracedTensor, *_: Any) -> TracedTensor:
    return w.expand(w.cast(y), x.shape)


@_aten("_to_copy", "to")
def _to_copy(w: TraceWriter, x: TracedTensor, **_: Any) -> TracedTensor:
    if x.tensor.is_floating_point() and not w.result.is_floating_point():
        return w.add("Cast", x, to=ir.DataType.from_numpy(numpy_dtype(w.result.dtype)))
    return w.cast(x)


@_aten("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze")
def _view(w: TraceWriter, x: TracedTensor, *_: Any) -> TracedTensor:
    if w.result.dtype != x.tensor.dtype:
        raise UnknownOperatorError("of the bits as another dtype")
    return w.reshape(x, w.result.shape)


@_aten("permute")
def _permute(w: TraceWriter, x: TracedTensor, dims: Sequence[int]) -> TracedTensor:
    return w.transpose(x, [x.axis(d) for d in dims])


@_aten("transpose")
def _transpose(w: TraceWriter, x: TracedTensor, first: int, second: int) -> TracedTensor:
    order = list(range(x.rank))
    order[first], order[second] = order[second], order[first]
    return w.transpose(x, order)


@_aten("expand")
def _expand(w: TraceWriter, x: TracedTensor, *_: Any, **__: Any) -> TracedTensor:
    return w.expand(x, w.result.shape)


@_aten("cat")
def _cat(w: TraceWriter, parts: Sequence[TracedTensor], dim: int = 0) -> TracedTensor:
    kept = [w.cast(p) for p in parts if p.rank == w.result.ndim]
    return w.add("Concat", *kept, axis=dim % w.result.ndim)


@_aten("where")
def _where(w: TraceWriter, condition: TracedTensor, x: Any, y: Any) -> TracedTensor:
    return w.add("Where", w.cast(condition, torch.bool), w.cast(x), w.cast(y))


@_aten("sign")
def _sign(w: TraceWriter, x: TracedTensor) -> TracedTensor:
    """Of NaN 0, which ONNX's gives back."""
    sign = w.add("Sign", x)
    if not x.tensor.is_floating_point():
        return sign
    return w.add("Where", w.add("IsNaN", x, like=x.tensor.isnan()), w.number(0.0), sign)


@_aten("gather")
def _gather(w: TraceWriter, x: TracedTensor, dim: int, index: TracedTensor, **_: Any) -> TracedTensor:
    return w.add("GatherElements", x, w.cast(index, torch.int64), axis=x.axis(dim))


@_aten("index")
def _index(w: TraceWriter, x: TracedTensor, indices: Sequence[TracedTensor | None]) -> TracedTensor:
    """x[i, j, :]: integer tensors in dims that follow each other, broadcast together."""
    axes = [axis for axis, i in enumerate(indices) if i is not None]
    found = [i for i in indices if i is not None]
    if any(i.tensor.dtype in (torch.bool, torch.uint8) for i in found):
        raise UnknownOperatorError("by a mask: its size depends on the data")
    if len(axes) == 1:
        return w.add("Gather", x, w.cast(found[0], torch.int64), axis=axes[0])
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise UnknownOperatorError("by tensors in dims apart")
    shape = torch.broadcast_shapes(*(i.shape for i in found))
    parts = [w.reshape(w.expand(w.cast(i, torch.int64), shape), (*shape, 1)) for i in found]
    together = w.add("Concat", *parts, axis=len(shape), like=torch.cat([as_example(p.tensor) for p in parts], -1))
    if axes[0] == 0:
        return w.add("GatherND", x, together)
    front = [*axes, *(a for a in range(x.rank) if a not in axes)]
    moved = w.transpose(x, front)
    taken = w.add(
        "GatherND", moved, together, like=moved.tensor[tuple(as_example(i.tensor).to(torch.int64) for i in found)]
    )
    lead = len(shape)
    return w.transpose(taken, [*range(lead, lead + axes[0]), *range(lead), *range(lead + axes[0], taken.rank)])


def _reduced(kind: str) -> Writer:
    def write(w: TraceWriter, x: TracedTensor, dim: Any = None, keepdim: bool = False, **_: Any) -> TracedTensor:
        axes = list(range(x.rank)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else list(dim)
        if not x.rank:
            return w.cast(x)
        return w.add(kind, w.cast(x), w.sizes(*(x.axis(a) for a in axes)), keepdims=int(keepdim))

    return write


OPERATORS |= {
    "sum": _reduced("ReduceSum"), "mean": _reduced("ReduceMean"), "amax": _reduced("ReduceMax"),
    "amin": _reduced("ReduceMin"), "prod": _reduced("ReduceProd"),
}  # fmt: skip


@_aten("var", "var_mean")
def _var(
    w: TraceWriter, x: TracedTensor, dim: Any = None, correction: float | None = None, keepdim: bool = False
) -> Any:
    axes = [x.axis(d) for d in ([*range(x.rank)] if dim is None else [dim] if isinstance(dim, int) else dim)]
    like, *means = w.result if isinstance(w.result, (tuple, list)) else [w.result]
    count = math.prod(x.shape[a] for a in axes) - (1 if correction is None else correction)
    mean = w.add("ReduceMean", x, w.sizes(*axes), keepdims=1, like=x.tensor.mean(axes, keepdim=True))
    off = w.add("Sub", x, mean, like=x.tensor)
    total = w.add("ReduceSum", w.add("Mul", off, off, like=x.tensor), w.sizes(*axes), keepdims=int(keepdim), like=like)
    found = w.add("Div", total, w.number(float(count), like.dtype), like=like)
    return (found, w.reshape(mean, means[0].shape)) if means else found


def _arg(kind: str) -> Writer:
    def write(w: TraceWriter, x: TracedTensor, dim: int | None = None, keepdim: bool = False) -> TracedTensor:
        if dim is None:
            raise UnknownOperatorError("over all dims")
        return w.add(kind, x, axis=x.axis(dim), keepdims=int(keepdim))

    return write


OPERATORS |= {"argmax": _arg("ArgMax"), "argmin": _arg("ArgMin")}


@_aten("cumsum")
def _cumsum(w: TraceWriter, x: TracedTensor, dim: int, **_: Any) -> TracedTensor:
    return w.add("CumSum", w.cast(x), w.number(x.axis(dim), torch.int64))


@_aten("mm", "bmm", "matmul")
def _matmul(w: TraceWriter, x: TracedTensor, y: TracedTensor) -> TracedTensor:
    return w.add("MatMul", x, y)


@_aten("convolution")
def _convolution(
    w: TraceWriter, x: TracedTensor, weight: TracedTensor, bias: TracedTensor | None, stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
) -> TracedTensor:  # fmt: skip
    spatial = x.rank - 2
    stride, padding, dilation = (_each(v, spatial) for v in (stride, padding, dilation))
    shared = {"strides": stride, "pads": [*padding, *padding], "dilations": dilation, "group": groups}
    if transposed:
        shared["output_padding"] = _each(output_padding, spatial)
    return w.add("ConvTranspose" if transposed else "Conv", x, weight, bias, **shared)


def _each(values: Any, count: int) -> list[int]:
    listed = [values] if isinstance(values, int) else list(values)
    return listed * count if len(listed) == 1 else listed


OPERATORS |= {
    name: (lambda w, x, dim, *_, kind=kind: w.add(kind, w.cast(x), axis=x.axis(dim)))
    for kind, names in {"Softmax": ("_softmax", "softmax"), "LogSoftmax": ("_log_softmax", "log_softmax")}.items()
    for name in names
}


@_aten("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    w: TraceWriter,
    x: TracedTensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    first = w.result[0] if isinstance(w.result, (tuple, list)) else w.result
    if ceil_mode or x.rank - 2 != len(_each(kernel, x.rank - 2)):
        raise UnknownOperatorError("with ceil_mode, or of a single image")
    kernel = _each(kernel, x.rank - 2)
    pads = _each(padding, x.rank - 2)
    y = w.add(
        "MaxPool", x, like=first, kernel_shape=kernel, strides=_each(stride, len(kernel)) if stride else kernel,
        pads=[*pads, *pads], dilations=_each(dilation, len(kernel)),
    )  # fmt: skip
    return (y, UNWRITTEN) if first is not w.result else y


@_aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    w: TraceWriter, x: TracedTensor, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> TracedTensor:  # fmt: skip
    spatial = x.rank - 2
    if ceil_mode or divisor_override is not None:
        raise UnknownOperatorError("with ceil_mode or a divisor of its own")
    kernel, pads = _each(kernel, spatial), _each(padding, spatial)
    return w.add(
        "AveragePool", x, kernel_shape=kernel, strides=_each(stride, spatial) if stride else kernel,
        pads=[*pads, *pads], count_include_pad=int(count_include_pad),
    )  # fmt: skip


def _resized(usual: str, **attributes: Any) -> Writer:
    def write(w: TraceWriter, x: TracedTensor, size: Sequence[int], align_corners: bool, *scales: Any) -> TracedTensor:
        if any(s is not None and old * s != new for old, new, s in zip(x.shape[2:], size, scales, strict=False)):
            raise UnknownOperatorError("by a factor that is not the quotient of the sizes")
        places = {"coordinate_transformation_mode": "align_corners" if align_corners else usual}
        return w.add("Resize", x, None, None, w.sizes(*x.shape[:2], *size), **attributes, **places)

    return write


_LINEAR = ("upsample_bilinear2d", "upsample_linear1d", "upsample_trilinear3d")
OPERATORS |= dict.fromkeys(_LINEAR, _resized("pytorch_half_pixel", mode="linear"))
OPERATORS["upsample_bicubic2d"] = _resized("half_pixel", mode="cubic", cubic_coeff_a=-0.75)


@_aten("topk")
def _topk(w: TraceWriter, x: TracedTensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return w.several("TopK", [x, w.sizes(k)], w.result, axis=x.axis(dim), largest=int(largest), sorted=int(sorted))


def _extreme(kind: str) -> Writer:
    def write(w: TraceWriter, x: TracedTensor, dim: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, TracedTensor):
            return w.add(kind, w.cast(x), w.cast(dim))
        if dim is None:
            return w.add(f"Reduce{kind}", x, keepdims=0)
        best, which = w.result
        axis = x.axis(dim)
        return (
            w.add(f"Reduce{kind}", x, w.sizes(axis), like=best, keepdims=int(keepdim)),
            w.add(f"Arg{kind}", x, like=which, axis=axis, keepdims=int(keepdim)),
        )

    return write


OPERATORS |= {"max": _extreme("Max"), "min": _extreme("Min")}


@_aten("any")
def _any(w: TraceWriter, x: TracedTensor, dim: Any = None, keepdim: bool = False) -> TracedTensor:
    dims = [*range(x.rank)] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    whole = w.cast(w.cast(x, torch.bool), torch.int32)
    like = w.result.to(torch.int32)
    return w.cast(w.add("ReduceMax", whole, w.sizes(*(x.axis(d) for d in dims)), like=like, keepdims=int(keepdim)))

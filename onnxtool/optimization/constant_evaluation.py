"""Computing the value of a node whose inputs are all known, exactly as the runtime would."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.constants import filled
from onnxtool.model.ir.queries import attribute, has_subgraph
from onnxtool.model.operators.table import STANDARD
from onnxtool.model.randomness import is_random
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.session.session import EXACT

# Never folded, beside what draws random numbers: what must stay visible (quantization), what holds no data.
_KEPT = frozenset(
    {"DequantizeLinear", "DynamicQuantizeLinear", "Optional", "OptionalGetElement", "SequenceConstruct", "Dropout"}
)
_FOLDABLE_DOMAINS = (*STANDARD, "ai.onnx.ml")

Arrays = Sequence[np.ndarray | None]
Evaluator = Callable[[ir.Node, Arrays], np.ndarray]


class CannotEvaluateError(Exception):
    """The node has no value that we could be sure of."""


def foldable(node: ir.Node) -> bool:
    """True when the node, given constant inputs, always gives the same tensors."""
    if node.domain not in _FOLDABLE_DOMAINS or node.op_type in _KEPT or is_random(node) or has_subgraph(node):
        return False
    return not any(a.is_ref() for a in node.attributes.values())


def evaluate(node: ir.Node, arrays: Arrays, opset_imports: dict[str, int]) -> list[np.ndarray | None]:
    """The outputs of a node for constant inputs; None for outputs that nobody asked for.

    Moving data about and integer arithmetic are exact anywhere, so numpy does them at once; everything else is
    given to the runtime itself (with its own optimizations off), so that folding cannot change a value. The ONNX
    reference evaluator is not used: its DFT and Resize, among others, differ from the runtime's.

    Raises:
        CannotEvaluateError: the runtime cannot run it, or gives something that is not a tensor.
    """
    quick = _QUICK.get(node.op_type) if node.domain in STANDARD and len(node.outputs) == 1 else None
    if quick is not None:
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(quick(node, arrays))]
        except (CannotEvaluateError, ValueError, IndexError, TypeError, AttributeError):
            pass  # an odd form: let the runtime say what it means
    return _evaluate_in_runtime(node, arrays, opset_imports)


def _evaluate_in_runtime(node: ir.Node, arrays: Arrays, opset_imports: dict[str, int]) -> list[np.ndarray | None]:
    try:
        proto = ir.serde.serialize_node(node)
        del proto.input[:], proto.metadata_props[:]
        feeds, inputs = {}, []
        for index, array in enumerate(arrays):
            if array is None:
                proto.input.append("")
                continue
            name = f"i{index}"
            proto.input.append(name)
            feeds[name] = _words(array) if array.dtype.kind in "OUS" else array
            kind = ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)
            inputs.append(onnx.helper.make_tensor_value_info(name, int(kind), array.shape))
        wanted = [bool(v.name) for v in node.outputs]
        names = [f"o{i}" if want else "" for i, want in enumerate(wanted)]
        del proto.output[:]
        proto.output.extend(names)
        graph = onnx.helper.make_graph([proto], "fold", inputs, [onnx.ValueInfoProto(name=n) for n in names if n])
        imports = [onnx.helper.make_opsetid(d, v) for d, v in opset_imports.items() if d in _FOLDABLE_DOMAINS]
        model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
        results = OnnxRunner.open(model, EXACT).run(feeds)
    except (OnnxToolError, ValueError, TypeError, KeyError) as error:
        raise CannotEvaluateError(str(error)) from error
    outputs = [results.get(n) if n else None for n in names]
    if any(want and not isinstance(o, np.ndarray) for want, o in zip(wanted, outputs, strict=True)):
        raise CannotEvaluateError("an output is not a tensor")
    return outputs


def _words(array: np.ndarray) -> np.ndarray:
    """Strings as the runtime takes them: str objects, where tensors hold UTF-8 bytes."""
    words = [w.decode() if isinstance(w, bytes) else str(w) for w in array.reshape(-1)]
    return np.array(words, object).reshape(array.shape)


def _need(array: np.ndarray | None) -> np.ndarray:
    if array is None:
        raise CannotEvaluateError("an input is missing")
    return array


def _integers(arrays: Arrays) -> list[np.ndarray]:
    """Inputs of integer arithmetic that both numpy and the runtime wrap around alike."""
    found = [_need(a) for a in arrays]
    if any(a.dtype.kind not in "iu" or a.dtype != found[0].dtype for a in found):
        raise CannotEvaluateError("not integers")
    return found


def _ints(array: np.ndarray | None) -> list[int]:
    return [int(i) for i in _need(array).reshape(-1)]


def _axes(node: ir.Node, arrays: Arrays) -> list[int] | None:
    given = attribute(node, "axes")
    if given is None and len(arrays) > 1 and arrays[1] is not None:
        given = _ints(arrays[1])
    return None if given is None else [int(a) for a in given]


def _shape(node: ir.Node, arrays: Arrays) -> np.ndarray:
    shape = np.array(_need(arrays[0]).shape, np.int64)
    return shape[attribute(node, "start", 0) : attribute(node, "end", len(shape))]


def _gather(node: ir.Node, arrays: Arrays) -> np.ndarray:
    data, indices, axis = _need(arrays[0]), _need(arrays[1]), attribute(node, "axis", 0)
    if indices.size and (indices.max() >= data.shape[axis] or indices.min() < -data.shape[axis]):
        raise CannotEvaluateError("index out of range")
    return np.take(data, indices.astype(np.int64), axis=axis)


def _squeeze(node: ir.Node, arrays: Arrays) -> np.ndarray:
    axes = _axes(node, arrays)
    return np.squeeze(_need(arrays[0]), None if axes is None else tuple(axes))


def _unsqueeze(node: ir.Node, arrays: Arrays) -> np.ndarray:
    axes = _axes(node, arrays)
    if axes is None:
        raise CannotEvaluateError("no axes")
    return np.expand_dims(_need(arrays[0]), tuple(axes))


def _reshape(node: ir.Node, arrays: Arrays) -> np.ndarray:
    data, wanted = _need(arrays[0]), _ints(arrays[1])
    if not attribute(node, "allowzero", 0):
        wanted = [data.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    return data.reshape(wanted)


def _transpose(node: ir.Node, arrays: Arrays) -> np.ndarray:
    return np.ascontiguousarray(np.transpose(_need(arrays[0]), attribute(node, "perm")))


def _slice(node: ir.Node, arrays: Arrays) -> np.ndarray:
    data = _need(arrays[0])
    if len(arrays) > 1:
        starts, ends = _ints(arrays[1]), _ints(arrays[2])
        axes = _ints(arrays[3]) if len(arrays) > 3 and arrays[3] is not None else list(range(len(starts)))
        steps = _ints(arrays[4]) if len(arrays) > 4 and arrays[4] is not None else [1] * len(starts)
    else:
        starts, ends = list(attribute(node, "starts")), list(attribute(node, "ends"))
        axes, steps = list(attribute(node, "axes", range(len(starts)))), [1] * len(starts)
    if any(s <= 0 for s in steps):
        raise CannotEvaluateError("a backward slice")  # ends count differently there: left to the runtime
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice(start, end, step)
    return np.ascontiguousarray(data[tuple(index)])


def _expand(node: ir.Node, arrays: Arrays) -> np.ndarray:  # noqa: ARG001  (one signature for all)
    data, shape = _need(arrays[0]), tuple(_ints(arrays[1]))
    return np.broadcast_to(data, np.broadcast_shapes(data.shape, shape))


def _constant_of_shape(node: ir.Node, arrays: Arrays) -> np.ndarray:
    shape = tuple(_ints(arrays[0]))
    if any(d < 0 for d in shape):
        raise CannotEvaluateError("negative dim")
    return filled(node, shape)


def _cast(node: ir.Node, arrays: Arrays) -> np.ndarray:
    return _converted(_need(arrays[0]), ir.DataType(attribute(node, "to")).numpy())


def _cast_like(node: ir.Node, arrays: Arrays) -> np.ndarray:  # noqa: ARG001
    data, like = _need(arrays[0]), _need(arrays[1])
    return data if data.dtype == like.dtype else _converted(data, like.dtype)


def _converted(data: np.ndarray, wanted: np.dtype) -> np.ndarray:
    if data.dtype.kind not in "biu" or wanted.kind not in "biuf" or wanted.itemsize < 4:
        raise CannotEvaluateError("rounding and overflow are the runtime's business")
    return data.astype(wanted)


def _concat(node: ir.Node, arrays: Arrays) -> np.ndarray:
    return np.concatenate([_need(a) for a in arrays], axis=attribute(node, "axis", 1))


def _arithmetic(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Evaluator:
    def compute(node: ir.Node, arrays: Arrays) -> np.ndarray:  # noqa: ARG001
        left, right = _integers(arrays)
        return function(left, right)

    return compute


_QUICK: dict[str, Evaluator] = {
    "Shape": _shape,
    "Size": lambda node, arrays: np.array(_need(arrays[0]).size, np.int64),  # noqa: ARG005
    "Identity": lambda node, arrays: _need(arrays[0]),  # noqa: ARG005
    "Gather": _gather,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Slice": _slice,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _concat,
    "Add": _arithmetic(np.add),
    "Sub": _arithmetic(np.subtract),
    "Mul": _arithmetic(np.multiply),
    "Equal": _arithmetic(np.equal),
    "Less": _arithmetic(np.less),
    "Greater": _arithmetic(np.greater),
}

"""Computing the value of a node whose inputs are all known, exactly as the runtime would."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import onnx
import onnx_ir as ir

from onnxtool.errors import OnnxToolError
from onnxtool.model.ir.queries import attribute, filled, has_subgraph
from onnxtool.model.operators.reference import compute
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
# What moves data about, and integer arithmetic: exact whoever computes it.
_MOVING = frozenset(
    {"Shape", "Size", "Identity", "Gather", "Squeeze", "Unsqueeze", "Reshape", "Transpose", "Slice", "Concat"}
)
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Equal", "Less", "Greater"})


class CannotEvaluateError(Exception):
    """The node has no value that we could be sure of."""


def foldable(node: ir.Node) -> bool:
    """True when the node, given constant inputs, always gives the same tensors."""
    if node.domain not in _FOLDABLE_DOMAINS or node.op_type in _KEPT or is_random(node) or has_subgraph(node):
        return False
    return not any(a.is_ref() for a in node.attributes.values())


def evaluate(node: ir.Node, arrays: Arrays, opset_imports: dict[str, int]) -> list[np.ndarray | None]:
    """The outputs of a node for constant inputs; None for outputs that nobody asked for.

    Moving data about and integer arithmetic are exact anywhere, so ONNX's reference implementation does them at once;
    everything else is given to the runtime itself (with its own optimizations off), so that folding cannot change a
    value: the reference's DFT and Resize, among others, differ from the runtime's.

    Raises:
        CannotEvaluateError: the runtime cannot run it, or gives something that is not a tensor.
    """
    if node.domain in STANDARD and len(node.outputs) == 1:
        view = _view(node, arrays)
        if view is not None:
            return [view]
    try:
        proto = ir.serde.serialize_node(node)
        del proto.input[:], proto.output[:], proto.metadata_props[:]
        proto.input.extend("" if array is None else f"i{index}" for index, array in enumerate(arrays))
        proto.output.extend(f"o{index}" if value.name else "" for index, value in enumerate(node.outputs))
        feeds = {f"i{index}": array for index, array in enumerate(arrays) if array is not None}
        imports = [onnx.helper.make_opsetid(d, v) for d, v in opset_imports.items() if d in _FOLDABLE_DOMAINS]
        if node.domain in STANDARD and _is_exact(node, arrays):
            with suppress(Exception):  # an odd form: let the runtime say what it means
                return list(compute(proto, feeds, imports))
        return _compute_in_runtime(proto, feeds, imports)
    except (OnnxToolError, ValueError, TypeError, KeyError) as error:
        raise CannotEvaluateError(str(error)) from error


def _compute_in_runtime(
    proto: onnx.NodeProto, feeds: dict[str, np.ndarray], imports: Sequence[onnx.OperatorSetIdProto]
) -> list[np.ndarray | None]:
    feeds = {name: _words(array) if array.dtype.kind in "OUS" else array for name, array in feeds.items()}
    inputs = []
    for name, array in feeds.items():
        kind = ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)
        inputs.append(onnx.helper.make_tensor_value_info(name, int(kind), array.shape))
    graph = onnx.helper.make_graph([proto], "fold", inputs, [onnx.ValueInfoProto(name=n) for n in proto.output if n])
    results = OnnxRunner.open(onnx.helper.make_model(graph, opset_imports=imports, ir_version=10), EXACT).run(feeds)
    outputs = [results.get(name) if name else None for name in proto.output]
    if any(name and not isinstance(o, np.ndarray) for name, o in zip(proto.output, outputs, strict=True)):
        raise CannotEvaluateError("an output is not a tensor")
    return outputs


def _words(array: np.ndarray) -> np.ndarray:
    """Strings as the runtime takes them: str objects, where tensors hold UTF-8 bytes."""
    words = [w.decode() if isinstance(w, bytes) else str(w) for w in array.reshape(-1)]
    return np.array(words, object).reshape(array.shape)


def _view(node: ir.Node, arrays: Arrays) -> np.ndarray | None:
    """What an Identity, Expand or ConstantOfShape gives, as a view that takes no memory; None of other nodes."""
    data = arrays[0] if arrays else None
    if data is None:
        return None
    if node.op_type == "Identity":
        return data
    if node.op_type == "ConstantOfShape" and data.min(initial=0) >= 0:
        return filled(node, tuple(map(int, data)))
    if node.op_type == "Expand" and (shape := arrays[1]) is not None:
        with suppress(ValueError):
            return np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(map(int, shape))))
    return None


def _is_exact(node: ir.Node, arrays: Arrays) -> bool:
    """Whether the outputs are the same to the last bit, and in every corner, wherever a node is computed."""
    dtypes = [array.dtype for array in arrays if array is not None]
    if node.op_type in ("Cast", "CastLike"):  # rounding and overflow are the runtime's business
        wanted = dtypes[-1] if node.op_type == "CastLike" else ir.DataType(attribute(node, "to")).numpy()
        return dtypes[0].kind in "biu" and wanted.kind in "biuf" and wanted.itemsize >= 4
    if node.op_type in _ARITHMETIC:
        return len(set(dtypes)) == 1 and dtypes[0].kind in "iu"
    if node.op_type == "Slice" and len(arrays) > 4 and arrays[4] is not None and arrays[4].min(initial=1) <= 0:
        return False  # ends count differently there
    return node.op_type in _MOVING

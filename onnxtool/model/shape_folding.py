"""Shapes that a model computes itself: followed where ONNX's own inference gives up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.model.operators.reference import compute
from onnxtool.model.operators.table import operator_of
from onnxtool.model.shapes import infer, known_shapes
from onnxtool.model.spec import Dim

_ROUNDS = 12  # each gets past the next layer of computed shapes
_SMALL = 1024
_MOST = 20_000  # evaluations; a model with more computed shapes than this is left as it is
Constants = dict[str, np.ndarray]


def _range_size(inputs: Sequence[np.ndarray]) -> float:
    start, limit, delta = (float(a.reshape(-1)[0]) for a in inputs)
    return abs((limit - start) / delta) if delta else math.inf


# Operators whose inputs say how large the output gets: asked before it is made.
_SIZED: Mapping[str, Callable[[Sequence[np.ndarray]], float]] = {
    "ConstantOfShape": lambda inputs: float(np.prod(inputs[0].astype(np.float64))),
    "Expand": lambda inputs: inputs[0].size * float(np.prod(np.maximum(inputs[1].astype(np.float64), 1))),
    "Tile": lambda inputs: inputs[0].size * float(np.prod(inputs[1].astype(np.float64))),
    "Range": _range_size,
    "OneHot": lambda inputs: inputs[0].size * float(inputs[1].reshape(-1)[0]),
}


def complete(model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer shapes; compute those that ONNX's inference cannot follow, and infer again.

    Exporters compute the target of a Reshape or Expand from Shape nodes. With all inputs fixed those nodes are
    constants, but ONNX's data propagation knows few operators. So what reads only small constants is evaluated
    with ONNX's reference implementation, and becomes an initializer.

    Args:
        model: with fixed input shapes (`bind_inputs`); changed in place, and good for nothing but its shapes.
    """
    inferred = infer(model)
    for _ in range(_ROUNDS):
        if not _fold(inferred):
            break
        inferred = infer(inferred)
    return inferred


def _fold(model: onnx.ModelProto) -> int:
    """Replace nodes of the main graph that read only small constants by initializers; how many."""
    graph = model.graph
    shapes = known_shapes(model)
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer if _is_small(t)}
    kept: list[bytes] = []
    made: Constants = {}
    for node in graph.node:
        values = _evaluate(model, node, constants, shapes) if len(made) < _MOST else None
        if values is None:
            kept.append(node.SerializeToString())
        else:
            made.update(values)
            constants.update(values)
    if made:
        del graph.node[:]
        graph.node.extend(onnx.NodeProto.FromString(data) for data in kept)
        graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in made.items())
        # ONNX's inference keeps the placeholders ("unk__0") that it wrote before, whatever it now knows.
        del graph.value_info[:]
    return len(made)


def _is_small(tensor: onnx.TensorProto) -> bool:
    plain = tensor.data_location != onnx.TensorProto.EXTERNAL and tensor.data_type != onnx.TensorProto.STRING
    return plain and math.prod(tensor.dims) <= _SMALL


def _evaluate(
    model: onnx.ModelProto, node: onnx.NodeProto, constants: Constants, shapes: Mapping[str, tuple[Dim, ...]]
) -> Constants | None:
    """The node's outputs when they follow from constants; None when they do not, or would be large."""
    if node.domain not in ("", "ai.onnx") or not node.output:
        return None
    if node.op_type in ("Shape", "Size"):
        return _measure(node, shapes.get(node.input[0])) if node.input else None
    names = [name for name in node.input if name]
    if any(name not in constants for name in names):
        return None
    size = _SIZED.get(node.op_type)
    try:
        if size is not None and not size([constants[n] for n in names]) <= _SMALL:
            return None
        if size is None and not _is_bounded(node):
            return None
        if any(a.HasField("t") and not _is_small(a.t) for a in node.attribute):
            return None
        found = compute(node, {n: constants[n] for n in names}, model.opset_import)
        values = dict(zip(filter(None, node.output), found, strict=True))
    except Exception:  # whatever a stranger's node does to the reference implementation: it stays as it is
        return None
    return values if all(v.size <= _SMALL and v.dtype.kind in "biuf" for v in values.values()) else None


def _is_bounded(node: onnx.NodeProto) -> bool:
    """Whether the outputs are no larger than the inputs together, or than what these broadcast to."""
    row = operator_of(node)
    return row.elementwise or row.moves or row.shape == "reduce" or row.name == "Constant"


def _measure(node: onnx.NodeProto, shape: tuple[Dim, ...] | None) -> Constants | None:
    if shape is None or not all(isinstance(d, int) for d in shape):
        return None
    whole = np.array(shape, dtype=np.int64)
    if node.op_type == "Size":
        return {node.output[0]: np.array(whole.prod(), dtype=np.int64)}
    bounds = {a.name: a.i for a in node.attribute}
    return {node.output[0]: whole[slice(bounds.get("start", 0), bounds.get("end"))]}

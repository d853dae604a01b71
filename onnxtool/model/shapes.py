"""Shapes of all tensors of a ModelProto, with numbers put in for symbolic dims.

Those that a model computes itself are followed where ONNX's own inference gives up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from onnxtool.model.header import specs
from onnxtool.model.operators.reference import compute
from onnxtool.model.operators.table import operator_of
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import graphs
from onnxtool.model.spec import Dim

# Where a number is needed for a dim that has none: the first dim of an input is its batch.
ASSUMED_BATCH = 1
ASSUMED_LENGTH = 128
_KEPT = 1024


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """ONNX shape inference with data propagation; not strict, so that unknown operators leave gaps only."""
    inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return inferred


def light_copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the values of large initializers: shape inference only needs their types and shapes.

    Initializers of more elements than `_KEPT` become inputs of the same type and are never copied; smaller ones may
    hold shapes, axes or sizes.
    """
    copy = onnx.ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    source, graph = model.graph, copy.graph
    graph.name = source.name or "graph"
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.value_info.extend(source.value_info)
    large = []
    for tensor in source.initializer:
        if math.prod(tensor.dims) <= _KEPT and tensor.data_location != onnx.TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        else:
            large.append((tensor.name, tensor.data_type, list(tensor.dims)))
    # What reads a sparse tensor sees an array like any other.
    large += [(s.values.name, s.values.data_type, list(s.dims)) for s in source.sparse_initializer]
    declared = {v.name for v in source.input}
    graph.input.extend(onnx.helper.make_tensor_value_info(*form) for form in large if form[0] not in declared)
    return copy


def bind_inputs(
    model: onnx.ModelProto, shapes: Mapping[str, tuple[Dim, ...]], length: int = ASSUMED_LENGTH
) -> dict[str, int]:
    """Give every input a fixed shape, in place, and forget what was inferred before.

    Args:
        model: its graph inputs get numbers for symbolic and unknown dims; outputs and value infos lose theirs.
        shapes: shapes that are decided already, by input name.
        length: what is assumed for dims that are not decided; the first of an input is taken as one.

    Returns:
        The numbers that were assumed, by symbolic dim (unknown dims: "input[axis]").
    """
    decided = list(zip(model.graph.input, specs(model.graph.input), strict=True))
    numbers = {
        own: want
        for value, spec in decided
        for own, want in zip(spec.shape or (), shapes.get(value.name, ()), strict=False)
        if isinstance(own, str) and isinstance(want, int)
    }
    assumed: dict[str, int] = {}
    for value, spec in decided:
        wanted = shapes.get(value.name, spec.shape)
        if spec.shape is None or wanted is None or not value.type.HasField("tensor_type"):
            continue
        for axis, (dim, want) in enumerate(zip(value.type.tensor_type.shape.dim, wanted, strict=False)):
            if isinstance(want, int):
                dim.dim_value = want
                continue
            name = want or f"{value.name}[{axis}]"
            if name not in numbers:
                assumed[name] = numbers[name] = ASSUMED_BATCH if axis == 0 else length
            dim.dim_value = numbers[name]
    del model.graph.value_info[:]
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return assumed


def known_shapes(model: onnx.ModelProto) -> dict[str, tuple[Dim, ...]]:
    """Name -> shape of every tensor whose rank is known: inputs, outputs, value infos, initializers, all graphs."""
    found: dict[str, tuple[Dim, ...]] = {}
    for graph in graphs(model, DEFAULT):
        for spec in specs(_values(graph)):
            if spec.shape is not None:
                found[spec.name] = spec.shape
        for tensor in graph.initializer:
            found[tensor.name] = tuple(tensor.dims)
    return found


def _values(graph: onnx.GraphProto) -> Iterable[onnx.ValueInfoProto]:
    yield from graph.input
    yield from graph.value_info
    yield from graph.output


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

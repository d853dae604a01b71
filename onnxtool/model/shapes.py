"""Shapes of all tensors of a ModelProto, with numbers put in for symbolic dims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import onnx

from onnxtool.model.header import specs
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

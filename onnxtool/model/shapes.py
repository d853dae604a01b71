"""Shapes of all tensors of a ModelProto, with numbers put in for symbolic dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import onnx

from onnxtool.model.header import specs
from onnxtool.model.safety.limits import DEFAULT
from onnxtool.model.safety.tensors import graphs
from onnxtool.model.spec import Dim

Infer = Callable[[onnx.ModelProto], onnx.ModelProto]
# Where a number is needed for a dim that has none: the first dim of an input is its batch.
ASSUMED_BATCH = 1
ASSUMED_LENGTH = 128


def infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """ONNX shape inference with data propagation; not strict, so that unknown operators leave gaps only."""
    inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return inferred


def skeleton(model: onnx.ModelProto, keep: int = 1024) -> onnx.ModelProto:
    """Drop the values of large initializers, in place: shape inference only needs their types and shapes.

    Args:
        model: its main graph's initializers of more than `keep` elements become inputs of the same type.
        keep: smaller ones stay; they may hold shapes, axes or sizes.
    """
    graph = model.graph
    declared = {v.name for v in graph.input}
    kept = []
    for tensor in graph.initializer:
        count = 1
        for dim in tensor.dims:
            count *= dim
        if count <= keep and tensor.data_location != onnx.TensorProto.EXTERNAL:
            kept.append(tensor.SerializeToString())
        elif tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for sparse in graph.sparse_initializer:  # what reads it sees an array like any other
        name, kind = sparse.values.name, sparse.values.data_type
        if name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(name, kind, list(sparse.dims)))
    del graph.sparse_initializer[:]
    if len(kept) != len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(onnx.TensorProto.FromString(data) for data in kept)
    return model


def light_copy(model: onnx.ModelProto, keep: int = 1024) -> onnx.ModelProto:
    """A `skeleton` that leaves the model as it is, and never copies its large initializers."""
    copy = onnx.ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    source, graph = model.graph, copy.graph
    graph.name = source.name or "graph"
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    declared = {v.name for v in source.input}
    for tensor in source.initializer:
        if math.prod(tensor.dims) <= keep and tensor.data_location != onnx.TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
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

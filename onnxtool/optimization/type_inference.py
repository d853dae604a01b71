"""ONNX's own inference, from which `model.operators.shape_inference` goes on, and the size of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import onnx_ir as ir

from onnxtool.model.ir.queries import is_op, walk
from onnxtool.model.operators.value_facts import remember_given
from onnxtool.model.proto_nodes import inner_graphs
from onnxtool.runtime.worker.isolation import guarded

_LARGE = 1024  # bytes; larger weights are left out of the copy that ONNX's inference gets


def infer_types(model: ir.Model) -> None:
    """Run ONNX's own inference for element types, and for dims where we have no rule.

    Shapes that a file declares for intermediate values are not believed: `preparation` has removed them.
    """
    try:
        with _short_attributes(model):
            light, _ = light_proto(model)
        with guarded("inferring shapes", light.ByteSize()):
            inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except Exception:  # it raises whatever it likes on odd models; our own rules do without
        return
    found: dict[str, onnx.TypeProto] = {}
    _collect(inferred.graph, found)
    for graph in model.graphs():
        for node in graph:
            for value in node.outputs:
                match = found.get(value.name or "")
                if match is None or (value.is_graph_output() and graph is model.graph):
                    continue  # the declared shape of an output takes part in inference, and may be wrong
                value.type = value.type or ir.serde.deserialize_type_proto_for_type(match)
                if graph is model.graph:
                    remember_given(value, ir.serde.deserialize_type_proto_for_shape(match))


@contextmanager
def _short_attributes(model: ir.Model) -> Iterator[None]:
    """Inside the block, forests have lost their tables: millions of numbers, none of which a shape depends on."""
    forests = [(n, list(n.attributes.values())) for n in model.graph if n.op_type.startswith("TreeEnsemble")]
    try:
        for node, attributes in forests:
            for given in attributes:
                if isinstance(given.value, tuple) and len(given.value) > _LARGE:
                    node.attributes.pop(given.name)
        yield
    finally:
        for node, attributes in forests:
            node.attributes.clear()
            node.attributes.update({a.name: a for a in attributes})


def _collect(graph: onnx.GraphProto, found: dict[str, onnx.TypeProto]) -> None:
    """Inferred types by name; names are unique in the whole model by now."""
    for info in (*graph.value_info, *graph.output):
        found[info.name] = info.type
    for node in graph.node:
        for body in inner_graphs(node):
            _collect(body, found)


def light_proto(model: ir.Model, most: int = _LARGE) -> tuple[onnx.ModelProto, int]:
    """The model with weights of more bytes as graph inputs, so that nothing large is copied; and their bytes."""
    heavy = []
    for value in model.graph.initializers.values():
        # A default that a caller may override goes too: ONNX's inference takes it for a constant.
        if value.const_value is not None and (value.const_value.nbytes > most or value.is_graph_input()):
            heavy.append((value, value.const_value, value.type, value.shape))
    originals = list(model.graph.inputs)
    try:
        for value, tensor, _, _ in heavy:
            value.type, value.shape = (
                ir.TensorType(tensor.dtype),
                ir.Shape([d for d in tensor.shape if isinstance(d, int)]),
            )
            model.graph.initializers.pop(value.name or "")
            if not value.is_graph_input():
                model.graph.inputs.append(value)
        return ir.to_proto(model), sum(tensor.nbytes for _, tensor, _, _ in heavy)
    finally:
        model.graph.inputs[:] = originals
        for value, tensor, kind, shape in heavy:
            value.const_value, value.type, value.shape = tensor, kind, shape
            model.graph.register_initializer(value)


_REPEATING = ("ConstantOfShape", "Expand")


def message_bytes(model: ir.Model, *, shapes: bool = False) -> int:
    """Bytes of the model as one file; large weights are counted and not copied.

    Args:
        model: to measure.
        shapes: those of intermediate values are written too, as in files that come from elsewhere.
    """
    proto, heavy = light_proto(model)
    # Reading a file gives initializers a shape of their own beside that of the tensor, and it would be written.
    weights = {tensor.name for tensor in proto.graph.initializer}
    listed = [info for info in proto.graph.value_info if shapes and info.name not in weights]
    proto.graph.ClearField("value_info")
    proto.graph.value_info.extend(listed)
    # What can be overridden is left out of the message, and counted without its header.
    return int(proto.ByteSize()) + heavy + sum(_header(v) for v in model.graph.initializers.values())


def _header(value: ir.Value) -> int:
    """Bytes of an initializer that is also an input, beside its values; negative where these are written shorter."""
    tensor = value.const_value
    if tensor is None or not value.is_graph_input() or not isinstance(tensor, ir.serde.TensorProtoTensor):
        return 0
    return int(tensor.raw.ByteSize()) - tensor.nbytes


def may_repeat(model: ir.Model) -> bool:
    """Whether any node could become one of `repeated_constants`."""
    return any(is_op(node, *_REPEATING) for node in walk(model.graph))


def repeated_constants(model: ir.Model) -> list[ir.Node]:
    """The ConstantOfShape and Expand nodes whose inputs are initializers."""
    return [
        node
        for node in walk(model.graph)
        if is_op(node, *_REPEATING)
        and all(v is not None and v.const_value is not None and not v.is_graph_input() for v in node.inputs)
    ]

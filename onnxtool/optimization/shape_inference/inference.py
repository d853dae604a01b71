"""Types and shapes of intermediate values: ONNX's own inference once, then our rules with symbolic dims."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import onnx_ir as ir

from onnxtool.model.ir.queries import STANDARD, attribute
from onnxtool.optimization.pass_context import PassContext
from onnxtool.optimization.shape_inference.shape_rules import RULES as SHAPE_RULES
from onnxtool.optimization.shape_inference.shape_value_rules import RULES as ITEM_RULES
from onnxtool.optimization.shape_inference.symbolic_dims import symbol
from onnxtool.optimization.shape_inference.value_facts import (
    KnownElements,
    Sizes,
    declared_sizes,
    elements_of,
    forget_sizes,
    set_elements,
    set_sizes,
    sizes_of,
)
from onnxtool.runtime.worker.isolation import guarded

_GIVEN = "onnxtool.given"
_LARGE = 1024  # bytes; larger weights are left out of the copy that ONNX's inference gets
_TO_BOOL = frozenset(
    ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Xor", "Not", "IsNaN", "IsInf"]
)
_TO_INT64 = frozenset(["Shape", "Size", "ArgMax", "ArgMin", "NonZero"])


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
                    value.meta[_GIVEN] = ir.serde.deserialize_type_proto_for_shape(match)


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
        for item in node.attribute:
            if item.HasField("g"):
                _collect(item.g, found)
            for body in item.graphs:
                _collect(body, found)


def light_proto(model: ir.Model) -> tuple[onnx.ModelProto, int]:
    """The model with its large weights as graph inputs, so that nothing large is copied; and their bytes."""
    heavy = []
    for value in model.graph.initializers.values():
        # A default that a caller may override goes too: ONNX's inference takes it for a constant.
        if value.const_value is not None and (value.const_value.nbytes > _LARGE or value.is_graph_input()):
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
        model.graph.inputs.clear()
        model.graph.inputs.extend(originals)
        for value, tensor, kind, shape in heavy:
            value.const_value, value.type, value.shape = tensor, kind, shape
            model.graph.register_initializer(value)


def infer_shapes(model: ir.Model, context: PassContext) -> None:
    """Work out all dims and small integer tensors anew, in the main graph and its subgraphs."""
    _infer_graph(model.graph, context, main=True)


def _infer_graph(graph: ir.Graph, context: PassContext, *, main: bool) -> None:
    for value in graph.inputs:
        # Declared dims of a loop body are true for its first turn at most (yet the runtime wants to see them).
        sizes = declared_sizes(value) if main else None
        if sizes is not None:
            set_sizes(value, sizes)
        else:
            forget_sizes(value)
    for node in graph:
        for item in node.attributes.values():
            if item.type == ir.AttributeType.GRAPH and not item.is_ref():
                _infer_graph(item.as_graph(), context, main=False)
            elif item.type == ir.AttributeType.GRAPHS and not item.is_ref():
                for inner in item.as_graphs():
                    _infer_graph(inner, context, main=False)
        infer_node(node, context.opset)


def infer_node(node: ir.Node, opset: int) -> None:
    """Work out one node's outputs from its inputs."""
    standard = node.domain in STANDARD
    _set_types(node, standard)
    found = _apply(SHAPE_RULES.get(node.op_type) if standard else None, node, opset)
    for index, value in enumerate(node.outputs):
        sizes = found[index] if index < len(found) else None
        if sizes is None:
            sizes = _given(value)
        elif (given := _given(value)) is not None and len(given) == len(sizes):
            # Either may know a number where the other has a symbol.
            sizes = tuple(g if isinstance(g, int) else s for g, s in zip(given, sizes, strict=True))
        if sizes is not None:
            set_sizes(value, sizes)
        elif standard:
            forget_sizes(value)  # what a file declares for an output may be wrong: real recognizers give another rank
    items_rule = ITEM_RULES.get(node.op_type) if standard and _small_integer(node) else None
    items = _items(items_rule, node)
    for index, value in enumerate(node.outputs):
        if value.const_value is None:
            set_elements(value, items[index] if index < len(items) else None)


def _apply(rule: object, node: ir.Node, opset: int) -> list[Sizes | None]:
    if rule is None or not callable(rule):
        return []
    try:
        result = rule(node, opset)
    except (ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, AttributeError):
        return []  # an input is missing or odd; ONNX's own inference may still know
    return result if isinstance(result, list) else [result]


def _items(rule: object, node: ir.Node) -> list[KnownElements | None]:
    if rule is None or not callable(rule):
        return []
    try:
        result = rule(node)
    except (ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, AttributeError):
        return []
    return result if isinstance(result, list) else [result]


def _given(value: ir.Value) -> Sizes | None:
    shape = value.meta.get(_GIVEN)
    if shape is None:
        return None
    dims = [d if isinstance(d, int) else d.value for d in shape]
    return tuple(d if isinstance(d, int) else symbol(_symbol_name(d, f"{value.name}.{i}")) for i, d in enumerate(dims))


def _symbol_name(name: str | None, place: str) -> str:
    if not name:
        return f"?{place}"
    return f"?{name}" if name.startswith("unk__") else name  # what ONNX's inference makes up is not a name to keep


def _small_integer(node: ir.Node) -> bool:
    sizes = sizes_of(node.outputs[0]) if node.outputs else None
    if sizes is not None and len(sizes) > 1:
        return False
    return node.op_type in ("Shape", "Size") or any(elements_of(v) is not None for v in node.inputs)


def _set_types(node: ir.Node, standard: bool) -> None:
    """Element types of nodes that passes have made since ONNX's own inference ran."""
    for value in node.outputs:
        if value.type is not None or not standard:
            continue
        source = node.inputs[0] if node.inputs else None
        if node.op_type in _TO_BOOL:
            value.dtype = ir.DataType.BOOL
        elif node.op_type in _TO_INT64:
            value.dtype = ir.DataType.INT64
        elif node.op_type == "Cast":
            value.dtype = ir.DataType(attribute(node, "to"))
        elif node.op_type == "Where" and node.inputs[1] is not None and node.inputs[1].dtype is not None:
            value.dtype = node.inputs[1].dtype
        elif node.op_type in SHAPE_RULES and source is not None and source.dtype is not None:
            value.dtype = source.dtype

"""Dims and small integer tensors of all values of a graph, by the rules of its operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

from onnxtool.model.ir.queries import attribute, bodies_of
from onnxtool.model.operators.shape_rules import RULES as SHAPE_RULES
from onnxtool.model.operators.shape_value_rules import RULES as ITEM_RULES
from onnxtool.model.operators.table import STANDARD, operator_of
from onnxtool.model.operators.value_facts import (
    UnknownValueError,
    declared_sizes,
    elements_of,
    forget_sizes,
    given_sizes,
    set_elements,
    set_sizes,
    sizes_of,
)


def infer_shapes(model: ir.Model) -> None:
    """Work out all dims and small integer tensors anew, in the main graph and its subgraphs."""
    opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 0))
    _infer_graph(model.graph, opset, main=True)


def _infer_graph(graph: ir.Graph, opset: int, *, main: bool) -> None:
    for value in graph.inputs:
        # Declared dims of a loop body are true for its first turn at most (yet the runtime wants to see them).
        sizes = declared_sizes(value) if main else None
        if sizes is not None:
            set_sizes(value, sizes)
        else:
            forget_sizes(value)
    for node in graph:
        for body in bodies_of(node):
            _infer_graph(body, opset, main=False)
        infer_node(node, opset)


def infer_node(node: ir.Node, opset: int) -> None:
    """Work out one node's outputs from its inputs."""
    standard = node.domain in STANDARD
    if standard:
        _set_types(node, opset)
    found = _apply(SHAPE_RULES.get(operator_of(node).shape), node)
    for index, value in enumerate(node.outputs):
        sizes = found[index] if index < len(found) else None
        given = given_sizes(value)
        if sizes is None:
            sizes = given
        elif given is not None and len(given) == len(sizes):
            # Either may know a number where the other has a symbol.
            sizes = tuple(g if isinstance(g, int) else s for g, s in zip(given, sizes, strict=True))
        if sizes is not None:
            set_sizes(value, sizes)
        elif standard:
            forget_sizes(value)  # what a file declares for an output may be wrong: real recognizers give another rank
    items = _apply(ITEM_RULES.get(node.op_type) if standard and _small_integer(node) else None, node)
    for index, value in enumerate(node.outputs):
        if value.const_value is None:
            set_elements(value, items[index] if index < len(items) else None)


def _apply(rule: Callable[[ir.Node], Any] | None, node: ir.Node) -> list[Any]:
    """What a rule says of each output; nothing where it cannot tell."""
    if rule is None:
        return []
    try:
        result = rule(node)
    except (UnknownValueError, ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, AttributeError):
        return []  # an input is not known, missing or odd; ONNX's own inference may still know
    return result if isinstance(result, list) else [result]


def _small_integer(node: ir.Node) -> bool:
    sizes = sizes_of(node.outputs[0]) if node.outputs else None
    if sizes is not None and len(sizes) > 1:
        return False
    return node.op_type in ("Shape", "Size") or any(elements_of(v) is not None for v in node.inputs)


def _set_types(node: ir.Node, opset: int) -> None:
    """Element types of nodes that passes have made since ONNX's own inference ran, as the standard defines them."""
    for value, sources in zip(node.outputs, _type_sources(node.op_type, opset), strict=False):
        if value.type is not None:
            continue
        if node.op_type == "Cast":
            value.dtype = ir.DataType(attribute(node, "to"))
        elif isinstance(sources, ir.DataType):
            value.dtype = sources
        else:
            known = (node.inputs[i] for i in sources if i < len(node.inputs))
            found = next((v.dtype for v in known if v is not None and v.dtype is not None), None)
            value.type = None if found is None else ir.TensorType(found)


@cache
def _type_sources(op_type: str, opset: int) -> tuple[ir.DataType | tuple[int, ...], ...]:
    """For each output of an operator its element type, or the places of the inputs that have the same one."""
    try:
        schema = onnx.defs.get_schema(op_type, opset)
    except onnx.defs.SchemaError:
        return ()
    found: list[ir.DataType | tuple[int, ...]] = []
    for output in schema.outputs:
        (only, *others) = output.types
        name = only.removeprefix("tensor(").removesuffix(")")
        if not others and name.upper() in ir.DataType.__members__:
            found.append(ir.DataType[name.upper()])
        else:
            found.append(tuple(i for i, given in enumerate(schema.inputs) if given.type_str == output.type_str))
    return tuple(found)

"""Whether a graph is one at all: every value made once, before it is used; functions that end; texts that are any.

`onnx_ir` lifts a broken graph as far as it can and says so in a log; what is built on it then fails far from the cause.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import onnx

from onnxtool.errors import InputError
from onnxtool.model.proto_nodes import all_nodes, inner_graphs
from onnxtool.model.safety.limits import Limits
from onnxtool.model.safety.tensors import graphs

_LARGEST_VERSION = (1 << 31) - 1  # what the onnx package and the runtime hold an opset's version in


_TYPES = ("to", "dtype", "output_dtype")  # attributes that name a data type by its number


def verify_texts(model: onnx.ModelProto, limits: Limits) -> None:
    """Refuse names and other texts that are not UTF-8, and opset versions that are not versions.

    Raises:
        InputError: names the place.
    """
    _all("a text of the model itself", _of_model(model))
    for owner in (model, *model.functions):
        for opset in owner.opset_import:
            if abs(opset.version) > _LARGEST_VERSION:
                raise InputError(f"version {opset.version} of opset {opset.domain or 'ai.onnx'!r} is not a version.")
    holders: list[onnx.GraphProto | onnx.FunctionProto] = [*graphs(model, limits), *model.functions]
    for holder in holders:
        if isinstance(holder, onnx.GraphProto):
            _all("a name of a graph", _of_graph(holder))
        for node in holder.node:
            _all("a name of a node", _of_node(node))


def verify_operands(model: onnx.ModelProto) -> None:
    """Refuse a node that leaves out an input which its operator needs: the runtime's kernels read it all the same. Or
    one that names a type by a number of none.

    Raises:
        InputError: names the node, and the input or the attribute.
    """
    for owner in (model.graph, *model.functions):
        versions = _versions(model if isinstance(owner, onnx.GraphProto) else owner)
        for node in all_nodes(owner.node):
            for attribute in node.attribute if node.domain in ("", "ai.onnx") else ():
                if attribute.name in _TYPES and attribute.i not in onnx.TensorProto.DataType.values():
                    label = f"node {node.name or node.op_type!r}"
                    raise InputError(f"{label}: {attribute.i} in {attribute.name!r} is no data type of ONNX.")
            if "" not in node.input:
                continue
            needed = _needed_inputs(node.op_type, "" if node.domain == "ai.onnx" else node.domain, versions)
            place = next((k for k, name in enumerate(node.input) if not name and needed(k)), None)
            if place is not None:
                label = f"node {node.name or node.op_type!r}"
                raise InputError(f"{label} leaves out input {place}, which {node.op_type} needs.")


def _needed_inputs(op_type: str, domain: str, versions: Versions) -> Callable[[int], bool]:
    """Whether an operator of the specification needs the input at a place."""
    try:
        inputs = onnx.defs.get_schema(op_type, versions.get(domain, 0), domain).inputs
    except onnx.defs.SchemaError:
        return lambda _: False
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    return lambda place: bool(inputs) and inputs[min(place, len(inputs) - 1)].option != optional


def _all(what: str, texts: Iterable[Any]) -> None:
    for text in texts:
        if isinstance(text, bytes):
            raise InputError(f"{what} is not UTF-8 text ({text[:40]!r}); the file is damaged.")


def _of_model(model: onnx.ModelProto) -> Iterator[Any]:
    yield from (model.producer_name, model.producer_version, model.domain, model.doc_string)
    for entry in model.metadata_props:
        yield from (entry.key, entry.value)
    for opset in model.opset_import:
        yield opset.domain
    for function in model.functions:
        yield from (function.name, function.domain, function.doc_string, *function.input, *function.output)
        yield from function.attribute
        for opset in function.opset_import:
            yield opset.domain


def _of_graph(graph: onnx.GraphProto) -> Iterator[Any]:
    yield from (graph.name, graph.doc_string)
    for values in (graph.input, graph.output, graph.value_info):
        for value in values:
            yield value.name
            if value.type.HasField("tensor_type"):
                yield from (d.dim_param for d in value.type.tensor_type.shape.dim)
    for tensor in graph.initializer:
        yield tensor.name
        for entry in tensor.external_data:
            yield from (entry.key, entry.value)
    for sparse in graph.sparse_initializer:
        yield sparse.values.name


def _of_node(node: onnx.NodeProto) -> Iterator[Any]:
    yield from (node.name, node.op_type, node.domain, node.doc_string, *node.input, *node.output)
    for attribute in node.attribute:
        yield from (attribute.name, attribute.ref_attr_name, attribute.t.name)


Versions = Mapping[str, int]
_CONSTANT = {
    "value": onnx.AttributeProto.TENSOR,
    "sparse_value": onnx.AttributeProto.SPARSE_TENSOR,
    "value_float": onnx.AttributeProto.FLOAT,
    "value_floats": onnx.AttributeProto.FLOATS,
    "value_int": onnx.AttributeProto.INT,
    "value_ints": onnx.AttributeProto.INTS,
    "value_string": onnx.AttributeProto.STRING,
    "value_strings": onnx.AttributeProto.STRINGS,
}


def verify_structure(model: onnx.ModelProto) -> None:
    """Refuse a graph that no rewriting can start from.

    Raises:
        InputError: names the node and the value.
    """
    _verify_graph(model.graph, frozenset(), _versions(model))
    for function in model.functions:
        known = set(function.input)
        _verify_nodes(function.node, known, f"function {function.name!r}", _versions(function))
        _require(function.output, known, f"function {function.name!r}")
    _verify_calls(model)


def _versions(owner: onnx.ModelProto | onnx.FunctionProto) -> Versions:
    return {o.domain if o.domain != "ai.onnx" else "": o.version for o in owner.opset_import}


def _verify_graph(graph: onnx.GraphProto, outer: frozenset[str], versions: Versions) -> None:
    where = f"graph {graph.name!r}"
    initializers = [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer]
    _once(initializers, "initializer", where)
    inputs = [v.name for v in graph.input]
    if "" in inputs:
        raise InputError(f"input {inputs.index('')} of {where} has no name.")
    _once(inputs, "input", where)
    _once([v.name for v in graph.output], "output", where)
    known = {*outer, *inputs, *initializers}
    _verify_nodes(graph.node, known, where, versions)
    _require((v.name for v in graph.output), known, where)


def _verify_nodes(nodes: Iterable[onnx.NodeProto], known: set[str], where: str, versions: Versions) -> None:
    made: set[str] = set()
    for node in nodes:
        label = f"node {node.name or node.op_type!r} of {where}"
        if not node.op_type:
            raise InputError(f"{label} has no operator.")
        untyped = next((a.name for a in node.attribute if not (a.type or a.ref_attr_name)), None)
        if untyped is not None:
            raise InputError(f"{label}: its attribute {untyped!r} has no type.")
        _verify_signature(node, label, versions)
        if any(not device.configuration_id for device in getattr(node, "device_configurations", ())):
            raise InputError(f"{label} is placed on a device without a name.")
        for name in node.input:
            if name and name not in known:
                raise InputError(f"{label} reads {name!r}, which nothing before it makes.")
        for graph in inner_graphs(node):
            _verify_graph(graph, frozenset(known), versions)
        for name in filter(None, node.output):
            if name in made:
                raise InputError(f"{label}: {name!r} is produced twice.")
            made.add(name)
            known.add(name)


def _verify_signature(node: onnx.NodeProto, label: str, versions: Versions) -> None:
    """Hold the number of inputs and the attributes against the specification, for operators that it knows."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    if (domain, node.op_type) == ("", "Constant"):
        _verify_constant(node, label)
    signature = _signature(node.op_type, domain, versions.get(domain, 0))
    if signature is None:
        return
    least, most, required, types = signature
    if not least <= len(node.input) <= most:
        raise InputError(f"{label} has {len(node.input)} inputs; {node.op_type} takes {least} to {most}.")
    missing = required - {a.name for a in node.attribute}
    if missing:
        raise InputError(f"{label} lacks the attribute {min(missing)!r}.")
    for attribute in node.attribute:
        if attribute.type and attribute.type != types.get(attribute.name, attribute.type):
            raise InputError(f"{label}: its attribute {attribute.name!r} has the wrong type.")


def _verify_constant(node: onnx.NodeProto, label: str) -> None:
    """Exactly one attribute, of the type that its name stands for; the specification calls them all optional."""
    if len(node.attribute) != 1:
        raise InputError(f"{label} has {len(node.attribute)} attributes; a Constant has exactly one.")
    attribute = node.attribute[0]
    if attribute.type != _CONSTANT.get(attribute.name, -1):
        raise InputError(f"{label}: attribute {attribute.name!r} cannot hold a Constant's value.")


@functools.cache
def _signature(op_type: str, domain: str, version: int) -> tuple[int, int, frozenset[str], dict[str, int]] | None:
    """(fewest inputs, most inputs, required attributes, types of attributes); None for an operator unknown to onnx."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    required = frozenset(name for name, attribute in schema.attributes.items() if attribute.required)
    types = {name: int(attribute.type.value) for name, attribute in schema.attributes.items()}  # type: ignore[attr-defined]
    return schema.min_input, schema.max_input, required, types


def _require(names: Iterable[str], known: set[str], where: str) -> None:
    for name in names:
        if not name or name not in known:
            raise InputError(f"output {name!r} of {where} is not produced by any node.")


def _once(names: list[str], what: str, where: str) -> None:
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise InputError(f"{what} {twice!r} of {where} is there twice.")


def _verify_calls(model: onnx.ModelProto) -> None:
    """No function may call itself, directly or through others."""
    calls = {(f.domain, f.name): {(n.domain, n.op_type) for n in f.node} for f in model.functions}
    done: set[tuple[str, str]] = set()
    for start in calls:
        # Depth first without recursion: a chain of functions may be longer than Python's stack.
        path, pending = [start], [iter(calls[start])]
        while pending:
            callee = next(pending[-1], None)
            if callee is None:
                done.add(path.pop())
                pending.pop()
            elif callee in path:
                raise InputError(f"function {callee[1]!r} calls itself.")
            elif callee in calls and callee not in done:
                path.append(callee)
                pending.append(iter(calls[callee]))

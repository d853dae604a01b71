"""Whether a model's texts and versions are any: protobuf gives what is not UTF-8 as bytes, and any 64-bit version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import onnx

from onnxtool.errors import InputError
from onnxtool.model.safety.limits import Limits
from onnxtool.model.safety.tensors import graphs

_LARGEST_VERSION = (1 << 31) - 1  # what the onnx package and the runtime hold an opset's version in


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

"""The same thing twice: equal computations and equal initializers."""

from __future__ import annotations

import hashlib
from typing import Any

import onnx_ir as ir

from onnxtool.model.io import tensor_bytes
from onnxtool.model.ir.queries import bodies_of, has_subgraph
from onnxtool.model.randomness import is_random
from onnxtool.optimization.pass_base import Level
from onnxtool.optimization.pass_context import PassContext

_MAX_KEY_BYTES = 1 << 16
_END = 512  # bytes


class EliminateCommonSubexpressions:
    """a = f(x), b = f(x) -> a = f(x), b = a."""

    # onnx_ir's own pass looks at the main graph only and adds an Identity for outputs that share a value.
    name = "eliminate-common-subexpressions"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:
        """Merge within each graph; a subgraph also uses what its parents have computed before it."""
        return _merge(model.graph, {}, context)


def _merge(graph: ir.Graph, outer: dict[Any, ir.Node], context: PassContext) -> int:
    seen = dict(outer)
    merged = 0
    for node in graph:
        merged += sum(_merge(body, seen, context) for body in bodies_of(node))
        key = _key(node)
        if key is None:
            continue
        first = seen.get(key)
        if first is None:
            seen[key] = node
            continue
        moved = sum(_redirect(old, new, context) for old, new in zip(node.outputs, first.outputs, strict=True))
        if not any(o.uses() or o.is_graph_output() for o in node.outputs):
            graph.remove(node, safe=True)
            merged += 1
        else:
            merged += bool(moved)
    return merged


def _redirect(old: ir.Value, new: ir.Value, context: PassContext) -> int:
    """Serve users of `old` from `new`; when both are graph outputs `old` itself has to stay."""
    if context.replace_uses(old, new):
        return 0
    uses = old.uses()
    for user, index in uses:
        user.replace_input_with(index, new)
    return len(uses)


def _key(node: ir.Node) -> Any:
    if is_random(node) or has_subgraph(node) or not node.inputs:
        return None
    attributes = []
    for name in sorted(node.attributes):
        attribute = node.attributes[name]
        if attribute.is_ref():
            return None
        value = attribute.value
        if attribute.type == ir.AttributeType.TENSOR:
            if value.nbytes > _MAX_KEY_BYTES:
                return None
            value = (value.dtype, tuple(value.shape), value.tobytes() if value.dtype != ir.DataType.STRING else None)
            if value[2] is None:
                return None
        elif isinstance(value, (list, tuple)):
            value = tuple(value)
        try:
            hash(value)
        except TypeError:
            return None
        attributes.append((name, attribute.type, value))
    names = tuple(bool(o.name) for o in node.outputs)
    return (node.op_identifier(), tuple(id(v) for v in node.inputs), tuple(attributes), names)


class MergeDuplicateInitializers:
    """W1 = W2 (type, shape and bytes) -> one W."""

    name = "merge-duplicate-initializers"
    level = Level.BASIC

    def apply(self, model: ir.Model, context: PassContext) -> int:  # noqa: ARG002
        """Compare by size first, so that only likely twins are read."""
        groups: dict[Any, list[ir.Value]] = {}
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if tensor is None or value.is_graph_input() or value.is_graph_output():
                continue
            groups.setdefault((tensor.dtype, tuple(tensor.shape)), []).append(value)
        merged = 0
        for candidates in groups.values():
            for twins in _alike(candidates):
                merged += self._merge(twins, model)
        return merged

    def _merge(self, twins: list[ir.Value], model: ir.Model) -> int:
        first: dict[Any, ir.Value] = {}
        merged = 0
        for value in twins:
            kept = first.setdefault(_content(value), value)
            if kept is not value:
                value.replace_all_uses_with(kept)
                model.graph.initializers.pop(value.name or "")
                merged += 1
        return merged


def _alike(values: list[ir.Value]) -> list[list[ir.Value]]:
    """Groups of two or more whose first and last bytes agree: only they are worth reading as a whole."""
    groups: dict[Any, list[ir.Value]] = {}
    for value in values if len(values) > 1 else ():
        groups.setdefault(_ends(value), []).append(value)
    return [g for g in groups.values() if len(g) > 1]


def _ends(value: ir.Value) -> Any:
    tensor = value.const_value
    if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes <= 2 * _END:
        return None
    return tensor_bytes.ends(tensor, _END)


def _content(value: ir.Value) -> Any:
    tensor = value.const_value
    assert tensor is not None
    cached = value.meta.get("onnxtool.content")
    if cached is not None and cached[0] is tensor:
        return cached[1]
    if tensor.dtype == ir.DataType.STRING:
        content: Any = tuple(tensor.numpy().reshape(-1).tolist())
    else:
        total = hashlib.sha256()
        for piece in tensor_bytes.pieces(tensor):
            total.update(piece)
        content = total.digest()
    value.meta["onnxtool.content"] = (tensor, content)
    return content

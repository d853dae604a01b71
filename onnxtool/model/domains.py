"""Which values an input may take, read off the graph: embedding indices, masks, positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxtool.model.graph import constant_array

# Operators that hand integer values on unchanged (or nearly: Clip, Add of a small offset).
_CARRIERS = {
    "Cast",
    "Identity",
    "Unsqueeze",
    "Squeeze",
    "Reshape",
    "Flatten",
    "Transpose",
    "Expand",
    "Slice",
    "Concat",
    "Split",
    "Tile",
    "Gather",
}


@dataclass(frozen=True)
class Domain:
    """The values an input may take.

    Attributes:
        low: smallest value.
        high: value just past the largest (integers), largest (floats).
        values: the only values, where they are few (categories); tuples inside are for one column each. They come
            before `low` and `high`.
    """

    low: float
    high: float
    values: tuple[Any, ...] = ()


def input_domains(model: ir.Model) -> dict[str, Domain]:
    """Find the domain of each integer input by following it to where it is used as an index.

    An input that reaches the indices of a Gather over a dim of known size n gets [0, n); one that reaches a
    OneHot gets [0, depth). Where several uses disagree the smallest wins. Inputs with no such use are left out,
    except those named like attention masks, which get [1, 2): all ones, what a caller would pass.
    """
    domains = {}
    for value in model.graph.inputs:
        if value.dtype is None or not value.dtype.is_integer() or not value.name:
            continue
        limit = _index_limit(value, set())
        if limit is not None:
            domains[value.name] = Domain(0, limit)
        elif "mask" in value.name.lower():
            domains[value.name] = Domain(1, 2)
    return domains


def _index_limit(value: ir.Value, seen: set[int]) -> int | None:
    if id(value) in seen:
        return None
    seen.add(id(value))
    limits = []
    for node, index in value.uses():
        limit = None
        if node.op_type in ("Gather", "GatherElements") and index == 1:
            limit = _dim(node.inputs[0], _axis(node))
        elif node.op_type == "OneHot" and index == 0:
            depth = constant_array(node.inputs[1])
            limit = int(depth.reshape(-1)[0]) if depth is not None and depth.size else None
        elif (node.op_type in _CARRIERS and index == 0) or node.op_type == "Concat":
            found = [_index_limit(o, seen) for o in node.outputs]
            limit = min((f for f in found if f is not None), default=None)
        if limit is not None and limit > 0:
            limits.append(limit)
    return min(limits, default=None)


def _axis(node: ir.Node) -> int:
    attribute = node.attributes.get("axis")
    return attribute.as_int() if attribute is not None else 0


def _dim(value: ir.Value | None, axis: int) -> int | None:
    if value is None:
        return None
    array = constant_array(value)
    shape = array.shape if array is not None else value.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    dim = shape[axis]
    return dim if isinstance(dim, int) else None

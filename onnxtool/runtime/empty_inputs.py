"""Inputs without elements: some kernels of the runtime end the whole process on them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxtool.errors import OnnxToolError
from onnxtool.model import io
from onnxtool.model.operators.table import operator_of
from onnxtool.model.proto_nodes import all_nodes
from onnxtool.model.spec import TensorSpec


def is_empty(feeds: Mapping[str, Any]) -> bool:
    """Whether an array has no elements."""
    return any(isinstance(a, np.ndarray) and not a.size for a in feeds.values())


def runs_safely(model: str | os.PathLike[str]) -> bool:
    """Whether no operator may end the process on inputs without elements, or go on for ever."""
    try:
        return _run_safely(_nodes(io.read_proto(model, in_place=True, external=False)))
    except (OSError, OnnxToolError):
        return False


def is_harmless(model: onnx.ModelProto) -> bool:
    """Whether no operator may end the process, go on for ever or make something of a size that an input names."""
    nodes = _nodes(model)
    return _run_safely(nodes) and not any(operator_of(n).sizes for n in nodes)


def _run_safely(nodes: Sequence[onnx.NodeProto]) -> bool:
    return all(map(_runs_empty, nodes)) and not any(node.op_type == "Loop" for node in nodes)


def _runs_empty(node: onnx.NodeProto) -> bool:
    """A last input that is left out by an empty name is legal, and some kernels read it nevertheless."""
    return operator_of(node).runs_empty and list(node.input[-1:]) != [""]


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for graph in (model.graph, *model.functions) for node in all_nodes(graph.node)]


def empty_sizes(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    """Sizes for `random_feeds` at which inputs are empty: each named dim at 0, and, where dims have no name, the first
    ones or the others.
    """
    names = {dim for spec in specs for dim in spec.shape or () if isinstance(dim, str)}
    found: list[dict[str, Any]] = [{"dims": {name: 0}} for name in sorted(names)]
    nameless = any(spec.shape is None or None in spec.shape for spec in specs)
    return found + ([{"batch": 0}, {"length": 0}] if nameless else [])

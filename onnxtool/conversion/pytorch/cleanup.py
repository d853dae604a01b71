"""What torch's exporters leave behind: stack traces with file paths, our wrapper's name, copies of tied weights."""

from __future__ import annotations

from itertools import count
from typing import Any

import onnx_ir as ir

from onnxtool.conversion.patches import correct
from onnxtool.conversion.pytorch.patches import floor_division, narrow_steps, open_bounds, removed_inputs
from onnxtool.model.ir.queries import all_nodes

_WRAPPER = "onnxtool_source."


def clean_up(model: ir.Model, *, keep_metadata: bool = False) -> None:
    """Clean an exported graph in place."""
    correct((floor_division.PATCH, open_bounds.PATCH, narrow_steps.PATCH), model)
    if not keep_metadata:
        strip_metadata(model)
    _drop_wrapper_names(model)
    share_initializers(model.graph)
    correct((removed_inputs.PATCH,), model.graph)


def strip_metadata(model: ir.Model) -> None:
    """Remove node and tensor metadata and doc strings: torch writes stack traces with local file paths there."""
    for graph in model.graphs():
        graph.metadata_props.clear()
        graph.doc_string = None
        for value in (*graph.inputs, *graph.outputs, *graph.initializers.values()):
            value.metadata_props.clear()
            value.doc_string = None
    for node in all_nodes(model):
        node.metadata_props.clear()
        node.doc_string = None
        for value in node.outputs:
            value.metadata_props.clear()
            value.doc_string = None
    model.doc_string = None


def share_initializers(graph: ir.Graph) -> int:
    """Make tied weights one initializer again where an exporter wrote one for each of their names.

    Returns:
        How many were removed.
    """
    first: dict[tuple[object, ...], ir.Value] = {}
    removed = 0
    for name, value in list(graph.initializers.items()):
        key = _identity(value)
        if key is None or value.is_graph_output() or value.is_graph_input():
            continue
        keeper = first.setdefault(key, value)
        if keeper is not value:
            ir.convenience.replace_all_uses_with(value, keeper)
            del graph.initializers[name]
            removed += 1
    return removed


def _identity(value: ir.Value) -> tuple[object, ...] | None:
    """Where a torch tensor lies in memory, and how; None for others."""
    raw: Any = getattr(value.const_value, "raw", None)
    if not hasattr(raw, "data_ptr") or not hasattr(raw, "stride"):
        return None
    if raw.numel() == 0:
        return None
    return (raw.data_ptr(), str(raw.dtype), tuple(raw.shape), tuple(raw.stride()))


def _drop_wrapper_names(model: ir.Model) -> None:
    graph = model.graph
    taken = {v.name for v in (*graph.inputs, *graph.initializers.values())}
    for name, value in list(graph.initializers.items()):
        plain = name.replace(_WRAPPER, "")
        if plain != name and plain not in taken:
            taken.add(plain)
            value.name = plain
    used = {v.name or "" for node in all_nodes(model) for v in node.outputs} | {n or "" for n in taken}
    for inner in model.graphs():
        for node in inner:
            if node.name:
                node.name = node.name.replace(_WRAPPER, "").replace("/onnxtool_source/", "/")
            for value in node.outputs:
                if value.name:
                    name = value.name.replace(_WRAPPER, "").replace("/onnxtool_source/", "/")
                    # A weight called "mean", without its wrapper, is called like the result of a mean.
                    value.name = _another(name, used) if name in taken else name


def _another(name: str, used: set[str]) -> str:
    found = next(f"{name}_{number}" for number in count(1) if f"{name}_{number}" not in used)
    used.add(found)
    return found

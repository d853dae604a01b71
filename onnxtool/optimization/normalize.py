"""Bringing a model into the form that passes expect, and making fixed what a caller could have chosen."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import onnx_ir as ir

from onnxtool.model.ir.queries import all_nodes, input_specs
from onnxtool.model.operators.table import STANDARD
from onnxtool.model.spec import Dim, apply_input_shapes

# What exporters leave on every node and value for debugging; it can outweigh the graph itself.
_DEBUG_PREFIXES = ("pkg.torch.", "pkg.onnxscript.", "namespace", "pkg.onnx_ir.")
_SHAPE_BYTES = 12  # at least, beside the name
_NODE_BYTES = 20  # for each node; removed ones give back three times this, and about half of them go


def prepare(model: ir.Model) -> int:
    """Lift old files, drop debugging leftovers and intermediate shapes (which may be wrong; they are inferred anew).

    Returns:
        Bytes that this saves in the file: what constant folding may spend without growing it.
    """
    saved = _NODE_BYTES * model.graph.num_nodes()
    lift_format(model)
    rename_nodes(model)
    for node in all_nodes(model):
        saved += _drop_debug(node.metadata_props) + len(node.doc_string or "")
        node.doc_string = None
        for value in node.outputs:
            saved += _drop_debug(value.metadata_props)
            if not value.is_graph_output() and node.domain in STANDARD:
                value.shape = None
    return saved


def lift_format(model: ir.Model) -> None:
    """Give a file of an IR version below 4 that version.

    Before, every initializer had to be listed as a graph input, and the runtime treats it as a constant. The version
    alone would turn every weight into an input that may be overridden, which stops the runtime's own constant folding:
    1.1 to 1.6 times the latency.
    """
    if model.ir_version < 4:
        freeze_initializers(model)
        model.ir_version = 4


def rename_nodes(model: ir.Model) -> int:
    """Give nodes that share a name (which the runtime refuses) names of their own. Returns how many."""
    taken = {node.name for node in all_nodes(model) if node.name}
    seen: set[str] = set()
    renamed = 0
    for node in all_nodes(model):
        name = node.name or ""
        if name in seen:
            number = 2
            while f"{name}_{number}" in taken:
                number += 1
            node.name = f"{name}_{number}"
            taken.add(node.name)
            renamed += 1
        elif name:
            seen.add(name)
    return renamed


def drop_shapes(model: ir.Model) -> None:
    """Forget inferred types and shapes of intermediate values: they take room, and every runtime infers them anew.

    Those of initializers too, which would stand in the file a second time beside the tensors.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and not value.is_graph_input() and not value.is_graph_output():
                value.shape, value.type = None, None
        for node in graph:
            for value in node.outputs if node.domain in STANDARD else ():
                if not value.is_graph_output():
                    value.shape, value.type = None, None
        for node in graph:
            for value in node.outputs if node.domain not in STANDARD else ():
                if value.shape is not None and not value.is_graph_output():
                    # The runtime lets tensors whose dims have the same names share memory: a name must be true.
                    value.shape = ir.Shape([d if isinstance(d, int) else None for d in value.shape])


def drop_labels(model: ir.Model, excess: int) -> None:
    """Drop what stands in the file for reading only, until this many bytes are saved.

    Shapes of values whose operators other tools do not know, and then names of nodes.
    """
    for node in all_nodes(model):
        for value in node.outputs if excess > 0 else ():
            if not value.is_graph_output() and (value.shape is not None or value.type is not None):
                excess -= _SHAPE_BYTES + len(value.name or "")
                value.shape, value.type = None, None
    for node in all_nodes(model):
        if excess > 0 and node.name:
            excess -= len(node.name.encode()) + 2
            node.name = None


def _drop_debug(properties: dict[str, str]) -> int:
    names = [name for name in properties if name.startswith(_DEBUG_PREFIXES)]
    return sum(len(name) + len(properties.pop(name)) for name in names)


def unmap(model: ir.Model) -> None:
    """Let go of the pages of weights on the disk that were read; whoever reads them again maps the file again."""
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            with suppress(BufferError):  # a folded weight may be a view of it
                value.const_value.release()


def freeze_inputs(model: ir.Model, shapes: Mapping[str | None, tuple[Dim, ...]]) -> None:
    """Set the dims of inputs; a symbolic dim that becomes a number becomes it wherever its name stands.

    Raises:
        UsageError: an unknown input, or another rank.
    """
    if not shapes:
        return
    old = {s.name: s.shape for s in input_specs(model)}
    numbers: dict[str, int] = {}
    by_name = {v.name: v for v in model.graph.inputs}
    for spec in apply_input_shapes(input_specs(model), shapes):
        before = old[spec.name]
        for was, now in zip(before or (), spec.shape or (), strict=False):
            if isinstance(was, str) and isinstance(now, int):
                numbers[was] = now
        if spec.shape is not None and spec.shape != before:
            by_name[spec.name].shape = ir.Shape(spec.shape)
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.shape is not None:
            dims = (d if isinstance(d, int) else d.value for d in value.shape)
            value.shape = ir.Shape([numbers.get(d, d) if isinstance(d, str) else d for d in dims])


def freeze_initializers(model: ir.Model) -> int:
    """Graph inputs with a default become constants. Returns how many."""
    kept = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    frozen = len(model.graph.inputs) - len(kept)
    if frozen:
        model.graph.inputs[:] = kept
    return frozen

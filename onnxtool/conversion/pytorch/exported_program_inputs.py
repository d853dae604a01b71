"""Inputs of an exported program: its placeholders, with the dims that it was exported with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from onnxtool.conversion.graph_interface import described
from onnxtool.conversion.input_plan import InputPlan
from onnxtool.conversion.pytorch.tensors import numpy_dtype
from onnxtool.errors import UsageError
from onnxtool.model.spec import Dim, TensorSpec
from onnxtool.options.convert import ConvertOptions


def plan_program(program: torch.export.ExportedProgram, options: ConvertOptions) -> InputPlan:
    """The inputs of an exported program; its dims are as they were exported.

    Raises:
        UsageError: --input-shape contradicts a dim that was exported as fixed.
    """
    names = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    labels = dim_labels(program)
    specs = [
        TensorSpec(str(name), numpy_dtype(nodes[name].meta["val"].dtype), _dims(nodes[name].meta["val"].shape, labels))
        for name in names
        if _is_tensor(nodes, name)
    ]
    final = described(specs, options)
    for old, new in zip(specs, final, strict=True):
        for have, want in zip(old.shape or (), new.shape or (), strict=True):
            if isinstance(have, int) and have != want:
                raise UsageError(
                    f"--input-shape: {new.name} was exported with a fixed dim {have}. Export the program again with "
                    "dynamic_shapes, or convert the module itself."
                )
    constants = [None if _is_tensor(nodes, name) else name for name in names]
    in_spec = program.call_spec.in_spec

    def call(tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        queue = iter(tensors)
        flat = [next(queue) if constant is None else constant for constant in constants]
        args, kwargs = torch.utils._pytree.tree_unflatten(flat, in_spec)
        return tuple(args), dict(kwargs)

    return InputPlan(final, call)


def dim_labels(program: torch.export.ExportedProgram) -> dict[str, str]:
    """Symbol of an exported program ("s40") -> a name for people: "batch" for the first dim, else "dim_1"."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    labels: dict[str, str] = {}
    for first_dim in (True, False):
        for name in program.graph_signature.user_inputs:
            if not _is_tensor(nodes, name):
                continue
            for axis, dim in enumerate(nodes[name].meta["val"].shape):
                symbol = str(dim)
                if isinstance(dim, int) or symbol in labels or (axis == 0) != first_dim:
                    continue
                taken = "batch" in labels.values() or not first_dim
                labels[symbol] = f"dim_{len(labels)}" if taken else "batch"
    return labels


def relabel(expression: str, labels: dict[str, str]) -> str:
    """Replace symbols in a dim expression: "2*s40" -> "2*batch"."""
    return re.sub(r"[A-Za-z_]\w*", lambda match: labels.get(match[0], match[0]), expression)


def _is_tensor(nodes: dict[str, Any], name: Any) -> bool:
    return isinstance(name, str) and isinstance(getattr(nodes.get(name), "meta", {}).get("val"), torch.Tensor)


def _dims(shape: Sequence[Any], labels: dict[str, str]) -> tuple[Dim, ...]:
    return tuple(int(d) if isinstance(d, int) else relabel(str(d), labels) for d in shape)

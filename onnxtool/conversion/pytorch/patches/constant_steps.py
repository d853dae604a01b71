"""What a module computes of its weights alone, in complex numbers or by operators that ONNX lacks, computed once.

Orthogonal weights (a matrix exponential), determinants, poles of a state space model: torch.export follows how these
are made of parameters, and its exporter refuses the operator.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx.node import Node, map_arg
from torch.onnx._internal.exporter import _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry

from onnxtool.conversion.patches import LibraryPatch, replaced


@contextmanager
def _applied() -> Iterator[None]:
    decompose = _fx_passes.decompose_with_registry

    def decomposed(program: ExportedProgram, registry: ONNXRegistry) -> ExportedProgram:
        program = decompose(program, registry)
        compute_constants(program, registry)
        return program

    with replaced(_fx_passes, "decompose_with_registry", decomposed):
        yield


def compute_constants(program: ExportedProgram, registry: ONNXRegistry) -> None:
    """Put tensors in the place of what no input changes, from the first step that the registry does not know."""
    weights, nodes = _weights(program), list(program.graph.nodes)
    constant, unknown = dict.fromkeys(n for n in nodes if n.name in weights), set[Node]()
    for node in nodes:
        if _is_step(node) and all(n in constant for n in node.all_input_nodes):
            constant[node] = None
            if any(n in unknown for n in node.all_input_nodes) or _is_unknown(node, registry):
                unknown.add(node)
    ends = [n for n in constant if n in unknown and any(user not in unknown for user in n.users)]
    values = _computed(ends, weights)
    first = next((n for n in nodes if n.op == "placeholder"), None)
    for number, node in enumerate(ends):
        if first is None or not isinstance(values[node], torch.Tensor):
            continue
        name = f"onnxtool_constant_{number}"
        with program.graph.inserting_before(first):
            made = program.graph.placeholder(name)
        made.meta = dict(node.meta)
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(made.name), name)
        program.graph_signature.input_specs.insert(number, spec)
        program.constants[name] = values[node]
        node.replace_all_uses_with(made)
    if ends:
        program.graph.eliminate_dead_code()


def _weights(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """What no run changes, by the name of its placeholder."""
    signature = program.graph_signature
    held = {**program.constants, **program.state_dict}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    changed = {*signature.buffers_to_mutate.values()}
    return {name: held[target] for name, target in names.items() if target not in changed and target in held}


def _is_step(node: Node) -> bool:
    """Whether it gives the same each time."""
    if node.target is operator.getitem:
        return True
    plain = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable
    return plain and torch.Tag.nondeterministic_seeded not in node.target.tags


def _is_unknown(node: Node, registry: ONNXRegistry) -> bool:
    value = node.meta.get("val")
    is_complex = isinstance(value, torch.Tensor) and value.is_complex()
    return is_complex or (node.target is not operator.getitem and not registry.is_registered(node.target))


def _computed(ends: list[Node], weights: dict[str, torch.Tensor]) -> dict[Node, Any]:
    """The values of these nodes, and of those before them."""
    needed, pending = dict[Node, None](), [*ends]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed[node] = None
            pending += node.all_input_nodes
    values: dict[Node, Any] = {}
    with torch.no_grad():
        for node in sorted(needed):
            if node.op == "placeholder":
                values[node] = weights[node.name]
                continue
            args, kwargs = map_arg((node.args, dict(node.kwargs)), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    return values


PATCH = LibraryPatch("torch", "", "torch 2.13 has no ONNX form of complex numbers and others made of weights", _applied)

"""A part of a model, cut out between named tensors."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.element_types import complete_types
from onnxtool.editing.graph_builder import find_tensor
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import compare, probes_of
from onnxtool.errors import UsageError, VerdictError
from onnxtool.model import io
from onnxtool.model.ir.editing import remove_unused
from onnxtool.model.ir.queries import walk
from onnxtool.report.edit import Proof
from onnxtool.runtime.feeds import flatten

_RUN_UP_TO = 1 << 28  # bytes of weights; larger models are compared node by node, so that they stay on the disk


class Extract(Operation):
    """Keep only what lies between some tensors and others; large weights stay on the disk."""

    name: ClassVar[str] = "extract"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        # Tensor names may hold colons ("x:0"): cut where both sides are not empty, checked against the model later.
        if ":" not in text.strip(":"):
            raise UsageError(f"--{self.name} {text}: write IN,IN:OUT,OUT with names of tensors.")
        self.inputs: list[str] = []
        self.outputs: list[str] = []

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        self._split(model)
        starts = [find_tensor(model, n, self.name) for n in self.inputs]
        ends = [find_tensor(model, n, self.name) for n in self.outputs]
        for value in starts:
            if value.is_initializer() and not value.is_graph_input():
                raise UsageError(f"--{self.name}: {value.name!r} is a weight, which cannot be an input.")
        for value in ends:
            if value.producer() is None:
                raise UsageError(
                    f"--{self.name}: {value.name!r} is an input or a weight, so there is nothing before it."
                )
        complete_types(model, [*(v for v in starts if v.producer() is not None), *ends])
        before = model.graph.num_nodes()
        model.graph.outputs.clear()
        inputs = [self._cut(v) for v in starts]
        model.graph.outputs.extend(ends)
        defaults = [v for v in model.graph.inputs if v.name in model.graph.initializers and v not in inputs]
        others = [v for v in model.graph.inputs if v not in inputs and v not in defaults]
        model.graph.inputs[:] = [*inputs, *defaults]
        remove_unused(model)
        self._verify_complete(model, others)
        kept = [v for v in model.graph.inputs if v in inputs or v.uses()]
        for value in defaults:
            if value not in kept:
                model.graph.initializers.pop(value.name or "", None)
        model.graph.inputs[:] = kept
        self.done = f"{model.graph.num_nodes()} of {before} nodes are left"
        return model

    def _split(self, model: ir.Model) -> None:
        """Find the colon between inputs and outputs."""
        pieces = self.text.split(":")
        options = [(":".join(pieces[:i]), ":".join(pieces[i:])) for i in range(1, len(pieces))]
        known = {v.name for v in model.graph.inputs} | {v.name for n in model.graph for v in n.outputs}

        def parsed(sides: tuple[str, str]) -> tuple[list[str], list[str]]:
            left, right = ([n.strip() for n in side.split(",") if n.strip()] for side in sides)
            return left, right

        candidates = [c for c in map(parsed, options) if all(c)]
        if not candidates:
            raise UsageError(f"--{self.name} {self.text}: write IN,IN:OUT,OUT with names of tensors.")
        best = max(candidates, key=lambda c: sum(n in known for n in (*c[0], *c[1])) / len([*c[0], *c[1]]))
        self.inputs, self.outputs = (list(dict.fromkeys(side)) for side in best)

    def _cut(self, value: ir.Value) -> ir.Value:
        """An input in place of what a node makes."""
        if value.producer() is None:
            return value
        fresh = ir.Value(name=value.name, type=value.type, shape=value.shape)
        value.name = f"{value.name}_before"
        ir.convenience.replace_all_uses_with(value, fresh)
        return fresh

    def _verify_complete(self, model: ir.Model, others: list[ir.Value]) -> None:
        needed = [v.name for v in others if v.uses() and any(u.node.graph is not None for u in v.uses())]
        if needed:
            raise UsageError(
                f"--{self.name}: {', '.join(self.outputs)} also needs the input {needed[0]!r}; name it too: "
                f"--{self.name} {','.join([*self.inputs, *[n for n in needed if n]])}:{','.join(self.outputs)}"
            )

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        if io.weight_bytes(before) > _RUN_UP_TO:
            return self._same_nodes(before, after)
        whole = before.clone()
        names = list(dict.fromkeys([*self.inputs, *self.outputs]))
        values = [find_tensor(whole, n, self.name) for n in names]
        inner = [v for v in values if v.producer() is not None]
        complete_types(whole, inner)
        whole.graph.outputs[:] = inner
        runner = context.runner(whole)
        cases = []
        for probe in probes_of(whole, context, runner):
            found = {**probe.feeds, **flatten(probe.outputs)}
            cases.append(({n: found[n] for n in self.inputs}, {n: found[n] for n in self.outputs}))
        return compare(after, cases, context, "it gives what the whole model has at these tensors, to the last bit")

    def _same_nodes(self, before: ir.Model, after: ir.Model) -> Proof:
        """Every node and weight of the part is one of the whole model's."""
        nodes = {tuple(v.name for v in n.outputs): n for n in walk(before.graph)}
        for node in after.graph:
            twin = nodes.get(tuple(v.name for v in node.outputs))
            if twin is None or _signature(node) != _signature(twin):
                raise VerdictError(f"the proof fails: the node {node.name!r} is not that of the model.")
        for name, value in after.graph.initializers.items():
            if before.graph.initializers[name].const_value is not value.const_value:
                raise VerdictError(f"the proof fails: the weight {name!r} was changed.")
        claim = "every node and every weight is the model's own, and nothing that the outputs need is missing"
        return Proof(claim, unproven="a run: the model is large, so its weights stay on the disk")


def _signature(node: ir.Node) -> bytes:
    proto = ir.to_proto(node)
    proto.ClearField("doc_string")
    return bytes(proto.SerializeToString(deterministic=True))

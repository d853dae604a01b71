"""Names of inputs and outputs, and which tensors are outputs."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.element_types import complete_types
from onnxtool.editing.graph_builder import find_input, find_output, find_tensor, split_pair, taken_names
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import probes_of, same_outputs
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model.ir.editing import remove_unused
from onnxtool.report.edit import Proof
from onnxtool.runtime.feeds import Feeds, Outputs


class RenameInput(Operation):
    """Give an input another name."""

    name: ClassVar[str] = "rename-input"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.old, self.new = split_pair(self.name, text, form="OLD=NEW")

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        value = find_input(model, self.old, self.name)
        _verify_free(model, self.new, self.name)
        if value.name in model.graph.initializers:
            model.graph.initializers.pop(self.old)
            value.name = self.new
            model.graph.register_initializer(value)
        value.name = self.new
        self.done = f"input {self.old} is now {self.new}"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        def renamed(feeds: Feeds) -> Feeds:
            return {self.new if n == self.old else n: a for n, a in feeds.items()}

        return same_outputs(before, after, context, feeds=renamed)


class RenameOutput(Operation):
    """Give an output another name."""

    name: ClassVar[str] = "rename-output"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.old, self.new = split_pair(self.name, text, form="OLD=NEW")

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        value = find_output(model, self.old, self.name)
        _verify_free(model, self.new, self.name)
        if value.is_graph_input() or value.is_initializer():
            copied = _copy(model, value, self.new)
            for index, output in enumerate(model.graph.outputs):
                if output is value:
                    model.graph.outputs[index] = copied
        else:
            value.name = self.new
        self.done = f"output {self.old} is now {self.new}"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        def renamed(_: Feeds, outputs: Outputs) -> Outputs:
            return {self.new if n == self.old else n: a for n, a in outputs.items()}

        return same_outputs(before, after, context, expect=renamed)


class AddOutput(Operation):
    """Make an inner tensor an output too."""

    name: ClassVar[str] = "add-output"

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:

        value = find_tensor(model, self.text, self.name)
        if value.is_graph_output():
            raise UsageError(f"--{self.name}: {self.text!r} is an output already.")
        if value.is_graph_input() or value.is_initializer():
            raise UsageError(f"--{self.name}: {self.text!r} is not an inner tensor, but an input or a weight.")
        complete_types(model, [value])
        model.graph.outputs.append(value)
        self.done = f"{self.text} is an output"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        proof = same_outputs(_without(after, self.text), before, context)
        _run_again(after, context)
        return Proof(
            "the outputs that were there are equal to the last bit, and the new one is computed by the same nodes",
            proof.runs,
            proof.exact,
            proof.max_abs,
        )


class RemoveOutput(Operation):
    """Remove an output, and what was computed for it alone."""

    name: ClassVar[str] = "remove-output"

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        value = find_output(model, self.text, self.name)
        if len(model.graph.outputs) == 1:
            raise UsageError(f"--{self.name}: {self.text!r} is the only output.")
        before = model.graph.num_nodes()
        kept = [v for v in model.graph.outputs if v is not value]
        model.graph.outputs[:] = kept
        remove_unused(model)
        self.done = f"output {self.text} is gone, with {before - model.graph.num_nodes()} nodes"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        def rest(_: Feeds, outputs: Outputs) -> Outputs:
            return {n: a for n, a in outputs.items() if n != self.text and not n.startswith(f"{self.text}[")}

        return same_outputs(before, after, context, "the other outputs are equal to the last bit", expect=rest)


def _verify_free(model: ir.Model, name: str, option: str) -> None:
    if name in taken_names(model):
        raise UsageError(f"--{option}: the name {name!r} is taken in this model.")


def _copy(model: ir.Model, value: ir.Value, name: str) -> ir.Value:
    """An Identity of an input or a weight that is an output as it is: its own name must stay."""
    node = ir.node("Identity", [value], num_outputs=1)
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, value.type, value.shape
    model.graph.append(node)
    return node.outputs[0]


def _without(model: ir.Model, output: str) -> ir.Model:
    copied = model.clone()
    kept = [v for v in copied.graph.outputs if v.name != output]
    copied.graph.outputs[:] = kept
    return copied


def _run_again(model: ir.Model, context: EditContext) -> None:

    try:
        probes_of(model, context)
    except UnsupportedError as error:
        raise UnsupportedError(f"the edited model does not run: {error}") from error

"""What stands in the file beside the graph."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import split_pair, unknown
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import same_graph
from onnxtool.errors import UsageError
from onnxtool.model.provenance.metadata import HISTORY_KEY
from onnxtool.report.edit import Proof


class _BesideTheGraph(Operation):
    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        return same_graph(before, after)


class SetMetadata(_BesideTheGraph):
    """Set one entry of the model's metadata."""

    name: ClassVar[str] = "metadata"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.key, found, self.entry = text.partition("=")
        if not found or not self.key:
            raise UsageError(f"--metadata {text}: write KEY=VALUE.")
        if self.key == HISTORY_KEY:
            raise UsageError(f"--metadata {self.key}: this entry is kept by onnxtool itself.")

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        was = model.metadata_props.get(self.key)
        model.metadata_props[self.key] = self.entry
        self.done = f"{self.key} = {self.entry}" + (f" (was {was})" if was is not None else "")
        return model


class ClearMetadata(_BesideTheGraph):
    """Remove all metadata of the model, its history too."""

    name: ClassVar[str] = "clear-metadata"

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        self.done = f"{len(model.metadata_props)} entries are gone"
        model.metadata_props.clear()
        return model


class SetDoc(_BesideTheGraph):
    """Set the model's description (doc_string)."""

    name: ClassVar[str] = "doc"

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        model.doc_string = self.text
        self.done = "the description is set" if self.text else "the description is empty"
        return model


class NameDim(Operation):
    """Give a symbolic dim another name wherever it stands; INPUT[AXIS] names one that has none."""

    name: ClassVar[str] = "name-dim"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.old, self.new = split_pair(self.name, text, ":", "OLD:NEW")
        if not self.new.replace("_", "a").replace("-", "a").replace(".", "a").isalnum() or self.new[0].isdigit():
            raise UsageError(f"--name-dim {text}: {self.new!r} is not a name for a dim; write a word.")

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:

        found, known = 0, dict[str, None]()
        for value in _shaped(model):
            dims = [d if isinstance(d, int) else d.value for d in value.shape or ()]
            known |= dict.fromkeys(d for d in dims if isinstance(d, str))
            places = [i for i, d in enumerate(dims) if d == self.old or (d is None and _place(value, i) == self.old)]
            known |= {_place(value, i): None for i, d in enumerate(dims) if d is None and value.is_graph_input()}
            if places:
                value.shape = ir.Shape([self.new if i in places else d for i, d in enumerate(dims)])
                found += len(places)
        if not found:
            raise unknown(self.name, "symbolic dim", self.old, known)
        self.done = f"dim {self.old} is now {self.new}, in {found} places"
        return model


def _place(value: ir.Value, axis: int) -> str:
    return f"{value.name}[{axis}]"


def _shaped(model: ir.Model) -> list[ir.Value]:
    values = [*model.graph.inputs, *(v for v in model.graph.outputs)]
    for graph in model.graphs():
        values += [v for node in graph for v in node.outputs]
    return [v for v in dict.fromkeys(values) if v.shape is not None]

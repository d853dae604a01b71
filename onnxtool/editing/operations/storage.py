"""Where weights are stored."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

from typing import ClassVar

import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import same_graph
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.model import io
from onnxtool.model.byte_sizes import parse_bytes
from onnxtool.report.edit import Proof

_LEAST_CHUNK = 1000


class ExternalData(Operation):
    """Write the weights beside the model (always), in it (never), or beside it from some size on."""

    name: ClassVar[str] = "external-data"
    value: ClassVar[str] = "always|never|SIZE"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._limit = None if text in ("always", "never") else parse_bytes(text, f"--{self.name} {text}")

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        size = io.weight_bytes(model)
        outside = self.text == "always" or (self._limit is not None and size > self._limit)
        if not outside and size > io.INLINE_LIMIT:
            raise UnsupportedError(f"the weights take {size} bytes; a model file holds less than 2 GB.")
        context.external, context.chunk = outside, None
        self.done = f"weights {'beside' if outside else 'in'} the model file"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        return same_graph(before, after)


class Chunk(Operation):
    """Write the weights beside the model, in files of up to this size."""

    name: ClassVar[str] = "chunk"
    value: ClassVar[str] = "SIZE"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._limit = parse_bytes(text, f"--{self.name} {text}")
        if self._limit < _LEAST_CHUNK:
            raise UsageError(f"--{self.name} {text}: a file holds at least {_LEAST_CHUNK} bytes.")

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        context.external, context.chunk = True, self._limit
        self.done = f"weights beside the model file, in files of up to {self._limit} bytes"
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        return same_graph(before, after)

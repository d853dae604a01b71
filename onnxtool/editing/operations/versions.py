"""Versions: of the operator set, and of the file format."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

from typing import ClassVar

import onnx
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.operation import Operation
from onnxtool.editing.proofs import same_graph, same_outputs
from onnxtool.errors import UnsupportedError, UsageError
from onnxtool.optimization.normalize import lift_format
from onnxtool.optimization.opset import convert_opset
from onnxtool.report.edit import Proof


class SetOpset(Operation):
    """Convert the model to another version of the standard operator set."""

    name: ClassVar[str] = "opset"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.version = _number(self.name, text)

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        now = model.opset_imports.get("", 0)
        lift_format(model)
        self.done = f"opset {now} is now {self.version}" if now != self.version else f"opset {now} it was already"
        return convert_opset(model, self.version)

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        return same_outputs(before, after, context, "the outputs are equal", exact=False)


class SetIrVersion(Operation):
    """Write another version of the file format (IR version)."""

    name: ClassVar[str] = "ir-version"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.version = _number(self.name, text)

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
        least = onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True)
        if model.functions:
            least = max(least, 8)
        newest = int(onnx.IR_VERSION)
        if not 4 <= self.version <= newest:
            raise UsageError(f"--ir-version {self.version}: this onnx package knows 4 to {newest}.")
        if self.version < least:
            raise UnsupportedError(f"--ir-version {self.version}: this model's operators need {least} or newer.")
        self.done = f"IR version {model.ir_version} is now {self.version}"
        model.ir_version = self.version
        return model

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        same_graph(before, after)
        return same_outputs(before, after, context)


def _number(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise UsageError(f"--{option} {text}: write a whole number.")
    return int(text)

"""What is done with a model's outputs, as part of the model: softmax, best classes, their names, boxes that stay."""

# ruff: noqa: ARG002  (every operation has the same methods)

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from onnxtool.editing.context import EditContext
from onnxtool.editing.graph_builder import Builder, find_output
from onnxtool.editing.operation import Operation
from onnxtool.editing.operations import suppression
from onnxtool.editing.operations.suppression import NmsOptions
from onnxtool.editing.proofs import same_outputs
from onnxtool.errors import InputError, UnsupportedError, UsageError
from onnxtool.model.ir.queries import value_spec
from onnxtool.optimization.opset import lift_opset
from onnxtool.report.edit import Proof
from onnxtool.runtime.feeds import Feeds, Outputs

_KINDS = ("softmax", "argmax", "topk", "nms", "labels")
_LEAST_OPSET = 13  # in which Softmax is along one axis
_MOST_LABELS = 1 << 24  # bytes of the file
_FORM = "softmax, argmax, topk=N, labels=FILE, or nms=BOXES,SCORES,iou=0.45,score=0.25"


class Postprocess(Operation):
    """Let the model do softmax, argmax, topk=N, labels=FILE or nms=BOXES,SCORES,iou=,score= on its outputs."""

    name: ClassVar[str] = "post"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        head, found, words = text.partition(":")
        kind = words.strip() if found and head.partition("=")[0].strip() not in _KINDS else text.strip()
        self._given = head.strip() if kind is not text.strip() and found and kind != text.strip() else None
        self.kind, _, self._argument = kind.partition("=")
        if self.kind not in _KINDS:
            raise UsageError(f"--{self.name} {text}: write {_FORM}.")
        self._count, self._nms = 0, NmsOptions()
        if self.kind == "topk":
            if not (self._argument.isascii() and self._argument.isdigit() and 0 < int(self._argument) < 1 << 20):
                raise UsageError(f"--{self.name} {text}: write topk=N with a whole number from 1 up.")
            self._count = int(self._argument)
        elif self.kind == "nms":
            self._nms = suppression.parse(self._argument, text)
        elif self.kind in ("softmax", "argmax") and self._argument:
            raise UsageError(f"--{self.name} {text}: write {_FORM}.")
        elif self.kind == "labels" and not self._argument:
            raise UsageError(f"--{self.name} {text}: write labels=FILE with one name a line.")
        self._output = ""
        self._made: tuple[str, ...] = ()
        self._labels: list[str] = []

    def apply(self, model: ir.Model, context: EditContext) -> ir.Model:
        model = lift_opset(model, _LEAST_OPSET)
        build = Builder(model, self._given or self.kind)
        if self.kind == "nms":
            self._made = suppression.apply(model, build, self._nms, self.name)
            self.done = f"the boxes that stay: {', '.join(self._made)}"
            return model
        value = self._one_output(model)
        spec = value_spec(value)
        self._output = value.name or ""
        build.prefix = self._output
        if spec.shape is None or not spec.shape or isinstance(spec.dtype, str) or spec.dtype.kind != "f":
            raise UnsupportedError(
                f"{spec.info()}: --{self.name} {self.kind} takes floats with classes in the last dim."
            )
        count = spec.shape[-1]
        if self.kind == "labels":
            self._labels = _read_labels(Path(self._argument))
            if isinstance(count, int) and count != len(self._labels):
                raise UsageError(f"--{self.name}: {self._argument} has {len(self._labels)} lines for {count} classes.")
        if self.kind == "topk" and isinstance(count, int) and self._count > count:
            raise UsageError(f"--{self.name}: topk={self._count}, but {self._output!r} has {count} classes.")
        results = self._built(build, value)
        build.at_end()
        rows = spec.shape[:-1]
        shapes = {"softmax": spec.shape, "topk": (*rows, self._count)}
        for result in results:
            result.shape = ir.Shape(shapes.get(self.kind, rows))
        if self.kind == "softmax":  # the same thing in other numbers keeps its name
            value.name = build.free("raw")
            results[0].name = self._output
        self._made = tuple(r.name or "" for r in results)
        kept: list[ir.Value] = []
        for output in model.graph.outputs:
            kept += results if output is value else [output]
        model.graph.outputs[:] = kept
        self.done = f"{self._output} -> {', '.join(self._made)}"
        return model

    def _one_output(self, model: ir.Model) -> ir.Value:
        if self._given:
            return find_output(model, self._given, self.name)
        if len(model.graph.outputs) != 1:
            names = ", ".join(v.name or "" for v in model.graph.outputs)
            raise UsageError(
                f"--{self.name} needs a name ({names.split(', ')[0]}: {self.kind}): the model has {names}."
            )
        return model.graph.outputs[0]

    def _built(self, build: Builder, value: ir.Value) -> list[ir.Value]:
        assert value.dtype is not None
        if self.kind == "softmax":
            return [build.add("Softmax", [value], "softmax", {"axis": -1}, value.dtype)]
        if self.kind == "topk":
            count = build.constant([self._count], "k", np.int64)
            made = list(build.add_many("TopK", [value, count], ("values", "indices"), {"axis": -1}, value.dtype))
            made[1].type = ir.TensorType(ir.DataType.INT64)
            return made
        best = build.add("ArgMax", [value], "class", {"axis": -1, "keepdims": 0}, ir.DataType.INT64)
        if self.kind == "argmax":
            return [best]
        names = build.strings(self._labels, "names")
        return [build.add("Gather", [names, best], "label", {"axis": 0}, ir.DataType.STRING)]

    def prove(self, before: ir.Model, after: ir.Model, context: EditContext) -> Proof:
        if self.kind == "nms":
            return suppression.prove(before, after, self._nms, self._made, context)

        def expect(_: Feeds, outputs: Outputs) -> Outputs:
            result: dict[str, object] = {}
            for name, array in outputs.items():
                if name == self._output:
                    result.update(zip(self._made, self._expected(np.asarray(array)), strict=True))
                else:
                    result[name] = array
            return result

        claim = "the results are those that NumPy computes from the model's own outputs"
        return same_outputs(before, after, context, claim, expect=expect, exact=self.kind != "softmax")

    def _expected(self, array: np.ndarray) -> list[np.ndarray]:
        if self.kind == "softmax":
            wide = array.astype(np.float64)
            powers = np.exp(wide - wide.max(-1, keepdims=True))
            return [(powers / powers.sum(-1, keepdims=True)).astype(array.dtype)]
        if self.kind == "topk":
            order = np.argsort(-array, axis=-1, kind="stable")[..., : self._count]
            return [np.take_along_axis(array, order, -1), order.astype(np.int64)]
        best = array.argmax(-1)
        return [np.array(self._labels, object)[best]] if self.kind == "labels" else [best.astype(np.int64)]


def _read_labels(path: Path) -> list[str]:
    """One name a line.

    Raises:
        InputError: missing, too large, or not UTF-8 text.
    """
    try:
        if path.stat().st_size > _MOST_LABELS:
            raise InputError(f"{path}: too large for a list of names.")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as text ({getattr(error, 'strerror', None) or 'not UTF-8'})."
        ) from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{path}: holds no names.")
    return lines

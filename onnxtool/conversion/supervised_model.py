"""A loaded framework model whose every pass is watched: it may hang or balloon where its loading did not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxtool.conversion.adapter import LayeredModel, SourceModel
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import feeds_bytes
from onnxtool.runtime.runner import Runner
from onnxtool.runtime.worker.isolation import ResourceAllowance, guarded

if TYPE_CHECKING:
    import onnx_ir as ir

_BATCH, _LENGTH = 2, 32


class SupervisedModel(SourceModel):
    """Gives what the model gives, with a watch over every pass."""

    def __init__(self, model: SourceModel, what: str, size: int, allowance: ResourceAllowance) -> None:
        """Wrap a model.

        Args:
            model: what computes.
            what: "running the model with pytorch".
            size: bytes of its file.
            allowance: what a pass may take.
        """
        self._model, self._what, self._size, self._allowance = model, what, size, allowance
        self.inputs, self.outputs, self.notes = model.inputs, model.outputs, model.notes
        self.form, self.framework, self.advice = model.form, model.framework, model.advice
        self.feeds_hint, self.rounding = model.feeds_hint, model.rounding
        self.limits, self.in_doubles, self.cheap_rows = model.limits, model.in_doubles, model.cheap_rows
        self.compared_sizes, self.compared_values = model.compared_sizes, model.compared_values

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass."""
        with guarded(self._what, self._size, feeds_bytes(feeds), self._allowance):
            return self._model.run(feeds)

    def drop_tied_rows(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """As the model does; it runs for that."""
        with guarded(self._what, self._size, feeds_bytes(feeds), self._allowance):
            return self._model.drop_tied_rows(feeds)

    def rerounded(self) -> Runner | None:
        """The model's own."""
        return self._model.rerounded()

    def operator_trace(self, feeds: Mapping[str, np.ndarray]) -> ir.Model:
        """The model's own; it runs for that."""
        with guarded(self._what, self._size, feeds_bytes(feeds), self._allowance):
            return self._model.operator_trace(feeds)

    def release(self) -> None:
        """Give back the weights."""
        self._model.release()


class SupervisedLayeredModel(SupervisedModel, LayeredModel):
    """The same of a model that can show its layers."""

    def __init__(self, model: LayeredModel, what: str, size: int, allowance: ResourceAllowance) -> None:
        super().__init__(model, what, size, allowance)
        self._layered = model

    def layers(self, feeds: Mapping[str, np.ndarray], see: Callable[[str, str, np.ndarray], None]) -> None:
        """One forward pass that shows every layer's output."""
        with guarded(self._what, self._size, feeds_bytes(feeds), self._allowance):
            self._layered.layers(feeds, see)


def supervised(model: SourceModel, what: str, size: int, allowance: ResourceAllowance) -> SupervisedModel:
    """Put a model under supervision; the arguments are those of `SupervisedModel`."""
    if isinstance(model, LayeredModel):
        return SupervisedLayeredModel(model, what, size, allowance)
    return SupervisedModel(model, what, size, allowance)


def declared_bytes(specs: Sequence[TensorSpec]) -> int:
    """Bytes of inputs as an exporter traces them, with small numbers for what is dynamic."""
    total = 0
    for spec in specs:
        elements = spec.dtype.itemsize if isinstance(spec.dtype, np.dtype) else 1
        for axis, dim in enumerate(spec.shape or ()):
            elements *= dim if isinstance(dim, int) else (_LENGTH if axis else _BATCH)
        total += elements
    return total

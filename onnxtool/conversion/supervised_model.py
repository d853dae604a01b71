"""A loaded framework model whose every pass is watched: it may hang or balloon where its loading did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.conversion.adapter import SourceModel
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import feeds_bytes
from onnxtool.runtime.isolation import ResourceAllowance, guarded

_BATCH, _LENGTH = 2, 32


class Watched:
    """Gives what the model gives."""

    def __init__(self, model: SourceModel, what: str, size: int, pace: ResourceAllowance) -> None:
        """Wrap a model.

        Args:
            what: "running the model with pytorch".
            size: bytes of its file.
            pace: what a pass may take.
        """
        self._model, self._what, self._size, self._pace = model, what, size, pace

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What `run` takes."""
        return self._model.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What `run` gives."""
        return self._model.outputs

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass."""
        with guarded(self._what, self._size, feeds_bytes(feeds), self._pace):
            return self._model.run(feeds)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        if name != "layers":
            return found

        def layers(feeds: Mapping[str, np.ndarray], see: Any) -> None:
            with guarded(self._what, self._size, feeds_bytes(feeds), self._pace):
                found(feeds, see)

        return layers


def declared_bytes(specs: Sequence[TensorSpec]) -> int:
    """Bytes of inputs as an exporter traces them, with small numbers for what is dynamic."""
    total = 0
    for spec in specs:
        elements = spec.dtype.itemsize if isinstance(spec.dtype, np.dtype) else 1
        for axis, dim in enumerate(spec.shape or ()):
            elements *= dim if isinstance(dim, int) else (_LENGTH if axis else _BATCH)
        total += elements
    return total

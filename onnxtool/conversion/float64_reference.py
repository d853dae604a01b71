"""A framework's model in float64: the same function with other roundings, which tell how far rounding moves outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtool.errors import InputError
from onnxtool.runtime.runner import Runner

# Of an output's root mean square: what differs by more between float32 and float64 is no matter of rounding alone.
_FARTHEST = 0.02
# The same where the two agree on the sample, so that what the code does is one: digits lost by sums far from zero.
_LOST = 0.3


class Float64Reference:
    """A Runner that computes in float64 and gives its outputs in the types of the model that it is a copy of."""

    def __init__(
        self,
        model: Runner,
        sample: Mapping[str, np.ndarray],
        widened: Callable[[Mapping[str, np.ndarray]], list[np.ndarray]],
    ) -> None:
        """Take a copy of a model.

        Args:
            model: the original.
            sample: inputs on which the code of both is known to run.
            widened: the copy: feeds -> outputs in order, of float64 where the original gives float32; it raises an
                InputError where it does not run.
        """
        self.inputs, self.outputs = model.inputs, model.outputs
        self._model, self._sample, self._run_widened = model, sample, widened
        self._is_one: bool | None = None

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass.

        Raises:
            InputError: the model does not run in float64, or gives something else than in float32: it asks for the
                type, or draws random numbers, and what it gives says nothing of rounding.
        """
        given, plain = self._widened(feeds), self._model.run(feeds)
        if not _all_alike(plain, given, _FARTHEST) and not (self._agrees() and _all_alike(plain, given, _LOST)):
            raise InputError("the model gives something else in float64 than in float32.")
        return given

    def _widened(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        pairs = zip(self.outputs, self._run_widened(feeds), strict=True)
        with np.errstate(over="ignore"):  # beyond the smaller type it is infinite in both
            return {s.name: a.astype(s.dtype) if isinstance(s.dtype, np.dtype) else a for s, a in pairs}

    def _agrees(self) -> bool:
        """Whether the two are one on the sample."""
        if self._is_one is None:
            self._is_one = _all_alike(self._model.run(self._sample), self._widened(self._sample), _FARTHEST)
        return self._is_one


def _all_alike(plain: Mapping[str, Any], given: Mapping[str, Any], farthest: float) -> bool:
    return all(_alike(np.asarray(plain[name]), array, farthest) for name, array in given.items())


def _alike(a: np.ndarray, b: np.ndarray, farthest: float = _FARTHEST) -> bool:
    """Whether two outputs are one but for rounding, however much a network makes of it."""
    if a.shape != b.shape or a.dtype.kind not in "fc":
        return a.shape == b.shape
    with np.errstate(all="ignore"):
        both = np.isfinite(a) & np.isfinite(b)
        scale = float(np.sqrt(np.mean(np.abs(a[both].astype(np.complex128)) ** 2))) if both.any() else 0.0
        return bool((np.isfinite(a) == both).all() and (np.abs(a[both] - b[both]) <= farthest * scale).all())

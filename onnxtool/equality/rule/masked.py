"""What stands at positions that a mask leaves out means nothing: where two models differ only there, that is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtool.equality.trials.trial import is_mask
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.runner import Runner


def kept_positions(specs: Sequence[TensorSpec], feeds: Feeds) -> np.ndarray | None:
    """[batch, length] booleans: what the masks among the inputs let through; None without such a mask."""
    masks = [np.asarray(feeds[s.name]) != 0 for s in specs if is_mask(s) and np.ndim(feeds[s.name]) == 2]
    if not masks or any(m.shape != masks[0].shape for m in masks):
        return None
    return np.asarray(np.logical_and.reduce(masks))


class KeptPositions:
    """A runner whose outputs are zero at positions that a mask leaves out, and in rows of which nothing is left.

    Args:
        runner: the model.
        kept: [batch, length] booleans: what the mask lets through.
    """

    def __init__(self, runner: Runner, kept: np.ndarray) -> None:
        self.inputs, self.outputs, self._runner, self._kept = runner.inputs, runner.outputs, runner, kept

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass."""
        return {name: self._blanked(value) for name, value in self._runner.run(feeds).items()}

    def _blanked(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiubcV" or not value.ndim:
            return value
        if value.shape[:2] == self._kept.shape:
            place = self._kept
        elif value.shape[:1] == self._kept.shape[:1]:
            place = np.asarray(self._kept.any(axis=1))
        else:
            return value
        blank = value.copy()
        blank[~place] = 0
        return blank

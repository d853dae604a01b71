"""What stands at positions that a mask leaves out means nothing: where two models differ only there, that is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtool.equality.trials.trial import is_mask
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds, flatten
from onnxtool.runtime.runner import Runner


def kept_positions(specs: Sequence[TensorSpec], feeds: Feeds) -> np.ndarray | None:
    """[batch, length] booleans: what the masks among the inputs let through; None without such a mask."""
    masks = [np.asarray(feeds[s.name]) != 0 for s in specs if is_mask(s) and np.ndim(feeds[s.name]) == 2]
    if not masks or any(m.shape != masks[0].shape for m in masks):
        return None
    return np.asarray(np.logical_and.reduce(masks))


Run = Callable[[Feeds], Mapping[str, Any]]


@dataclass(frozen=True)
class Kept:
    """What of the outputs counts.

    Attributes:
        positions: [batch, length] booleans: what the mask lets through.
        steady: of each output, the elements that do not depend on what the mask leaves out; None for all of them.
    """

    positions: np.ndarray
    steady: tuple[np.ndarray | None, ...] = ()


def steady_outputs(
    runner: Runner, other: Run, specs: Sequence[TensorSpec], feeds: Feeds, kept: np.ndarray
) -> tuple[np.ndarray | None, ...]:
    """Which elements of two models' outputs do not depend on what stands where the mask leaves something out.

    Some models take an element at a place where this mask has nothing: the last, the first, a certain token. One whose
    outputs depend on what is left out even where that is only the last position does not heed its mask, and all counts;
    so does what depends on it in one of the two models only.

    Args:
        runner: the reference.
        other: runs the other model on the reference's inputs.
        specs: the reference's inputs.
        feeds: with a mask.
        kept: what it lets through.
    """
    pairs = zip(_steady(runner.run, specs, feeds, kept), _steady(other, specs, feeds, kept), strict=True)
    found = tuple(None if a is None or b is None or a.shape != b.shape else a | b for a, b in pairs)
    first = np.ones_like(kept)
    first[:, -1] = False
    masks = {s.name: first.astype(np.asarray(feeds[s.name]).dtype) for s in specs if is_mask(s)}
    usual = _steady(runner.run, specs, {**feeds, **masks}, first)
    # Even then a row may happen to have a token of its own meaning there.
    return found if all(s is None or not s.size or float(s.mean()) > 0.5 for s in usual) else ()


def _steady(run: Run, specs: Sequence[TensorSpec], feeds: Feeds, kept: np.ndarray) -> tuple[np.ndarray | None, ...]:
    other = dict(feeds)
    for spec in specs:
        array = np.asarray(feeds[spec.name])
        if not is_mask(spec) and array.shape[:2] == kept.shape and array.dtype.kind in "fiu":
            wide = (1,) * (array.ndim - 2)
            # What the row has already: a token of a meaning of its own would be found.
            first = np.take_along_axis(array, np.argmax(kept, axis=1).reshape(-1, 1, *wide), axis=1)
            beside = (
                np.where(array > 0, array - 1, array + 1).astype(array.dtype) if array.dtype.kind in "iu" else -array
            )
            filled = np.where(kept.reshape(*kept.shape, *wide), array, np.where(array == first, beside, first))
            some = kept.any(axis=1).reshape(-1, 1, *wide)
            other[spec.name] = np.where(some, filled, np.roll(array[:, ::-1], 1, axis=0))
    found: list[np.ndarray | None] = []
    again = list(flatten(run(other)).values())
    for one, two in zip(flatten(run(feeds)).values(), again, strict=True):
        a, b = np.asarray(one), np.asarray(two)
        if a.shape != b.shape or a.dtype.kind not in "fiubc" or a.shape[:2] == kept.shape:
            found.append(None)
        else:
            scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
            found.append(np.isclose(a, b, 1e-4, 1e-5 * scale, equal_nan=True))
    return tuple(found)


class KeptPositions:
    """A runner whose outputs are zero at positions that a mask leaves out, in rows of which nothing is left, and where
    they depend on what is left out.
    """

    def __init__(self, runner: Runner, kept: Kept) -> None:
        self.inputs, self.outputs, self._runner = runner.inputs, runner.outputs, runner
        self._kept, self._steady = kept.positions, kept.steady

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """One forward pass."""
        outputs = {name: self._blanked(value) for name, value in self._runner.run(feeds).items()}
        for (name, value), steady in zip(list(outputs.items()), self._steady, strict=False):
            if steady is not None and np.shape(value) == steady.shape:
                outputs[name] = np.where(steady, value, 0).astype(value.dtype)
        return outputs

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

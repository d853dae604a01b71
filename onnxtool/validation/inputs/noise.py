"""How far a reference's outputs move when its inputs change by as much as rounding does.

Where values are large, cancel or saturate, the reference itself gives other results for inputs that are equal up to the
last bits. A second model that is no further off there has shown nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtool.errors import OnnxToolError
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.runner import Runner
from onnxtool.validation.inputs.trial import Feeds, Trial

# A float32 model rounds at every step; a few units in the last place of the input stand for the roundings inside.
_UNITS = 4
_DRAWS = 4
_TIE = 1e-5  # scores this close pick the label by rounding
# Differences up to so many times what this moves are put down to it: the largest of a few draws is an estimate.
FACTOR = 4.0
# What roundings of numbers around one inside the model add up to in float32: 8 steps of 2^-23.
_ROUNDED = 1e-6
# A search towards larger differences picks the input on which rounding happens to do most, of all that it tries.
SEARCHED = 4.0


def rounding_explains(
    reference: Runner, trial: Trial, actual: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> bool:
    """Whether every difference on this input is one that the reference shows beside its own inputs.

    Args:
        reference: run on the trial's inputs, moved by a few units in the last place.
        trial: with the reference's outputs.
        actual: what the other model gives.
        names: output of the reference -> output of the other model, where they differ.
    """
    expected = flatten(trial.outputs)
    given = flatten(actual)
    factor = FACTOR * (SEARCHED if trial.kind == "search" else 1.0)
    moved = [m for m in (_moved(reference, trial.feeds, seed) for seed in range(_DRAWS)) if m is not None]
    if not moved:
        return False
    for name, array in expected.items():
        other = np.asarray(given.get((names or {}).get(name, name)))
        own = np.asarray(array)
        if other.shape != own.shape or (own.dtype.kind in "OUS") != (other.dtype.kind in "OUS"):
            return False
        draws = [np.asarray(m[name]) for m in moved if name in m and np.shape(m[name]) == own.shape]
        if not _explained(own, other, draws, factor) and not _tied(own, other, expected):
            return False
    return True


def _explained(own: np.ndarray, other: np.ndarray, draws: list[np.ndarray], factor: float = FACTOR) -> bool:
    if own.dtype.kind in "OUSb":
        unequal = own.astype(str) != other.astype(str)
        flips = np.any([own.astype(str) != d.astype(str) for d in draws], axis=0) if draws else np.zeros(own.shape)
        return not bool((unequal & ~np.asarray(flips, bool)).any())
    wide = np.complex128 if own.dtype.kind == "c" else np.float64
    a, b = own.astype(wide), other.astype(wide)
    with np.errstate(all="ignore"):
        error = np.where(a == b, 0.0, np.abs(a - b))
        noise = np.max([np.abs(d.astype(wide) - a) for d in draws], axis=0) if draws else np.zeros(own.shape)
    if own.ndim:  # one draw says little of one element: elements of a column share theirs
        noise = np.broadcast_to(noise.reshape(-1, own.shape[-1]).max(axis=0, initial=0.0), own.shape)
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    rest = error - factor * np.nan_to_num(noise, nan=0.0, posinf=0.0)
    own_steps = 1e-3 * np.abs(a) + max(_ROUNDED, 1e-5 * scale) if own.dtype.kind in "fcV" else 0.0
    return bool(np.isfinite(error).all() and (rest <= own_steps).all())


def _tied(own: np.ndarray, other: np.ndarray, expected: Mapping[str, Any]) -> bool:
    """Whether labels differ only in rows of which the reference's two best scores are equal but for rounding."""
    if own.dtype.kind not in "OUSiub" or own.ndim < 1:
        return False
    unequal = (own.astype(str) != other.astype(str)).reshape(len(own), -1).any(axis=1)
    for scores in map(np.asarray, expected.values()):
        if scores.dtype.kind == "f" and scores.ndim == 2 and len(scores) == len(own) and scores.shape[1] > 1:
            best = np.sort(scores, axis=1)[:, -2:]
            tied = best[:, 1] - best[:, 0] <= _TIE * np.maximum(1, np.abs(best[:, 1]))
            if bool(tied[unequal].all()):
                return True
    return False


def _moved(reference: Runner, feeds: Feeds, seed: int) -> dict[str, Any] | None:
    generator = np.random.default_rng(seed)
    made, changed = {}, False
    for name, array in feeds.items():
        values = np.asarray(array)
        if values.dtype.kind not in "fV":
            made[name] = array
            continue
        changed = True
        step = _UNITS * _step(values.dtype)
        wide = values.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        spread = float(np.std(finite)) if finite.size else 0.0
        with np.errstate(all="ignore"):
            # Zero is exact whatever the precision, and often means something of its own.
            size = np.where(wide == 0, 0.0, np.abs(wide) + max(spread, 1e-3))
            shift = step * generator.uniform(-1, 1, wide.shape) * size
            made[name] = (wide + shift).astype(values.dtype)
    if not changed:
        return None
    try:
        with np.errstate(all="ignore"):
            return flatten(reference.run(made))
    except OnnxToolError:
        return None


def _step(dtype: np.dtype) -> float:
    return {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}.get(dtype.name, 2.0**-24)

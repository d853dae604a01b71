"""How far two models' outputs move when their inputs change by as much as rounding does.

Where values are large, cancel or lie next to a threshold, a model gives other results for inputs that are equal up to
the last bits. A difference is put down to that where both models move so: what one alone decides is no rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from onnxtool.equality.rule.rounding import shared_noise
from onnxtool.equality.rule.tolerance import LEAST_SCALE, ColumnScales, column_sums, most_rounding
from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import OnnxToolError
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds, flatten

Run = Callable[[Feeds], Mapping[str, Any]]
# A float32 model rounds at every step; a few units in the last place of the input stand for the roundings inside.
_UNITS = 4.0
_DRAWS = 4
_PATIENT = 48  # draws, before it is said that a model does not give somewhere beside the input what the other one gives
_TIE = 1e-5  # scores this close pick the label by rounding
# Differences up to so many times what this moves are put down to it: the largest of a few draws is an estimate.
FACTOR = 4.0
# What roundings of numbers around one inside the model add up to in float32: 8 steps of 2^-23.
_ROUNDED = 1e-6
# One of two models may be so many times steadier than the other: a variance by squares is that much worse than one by
# differences.
STEADIER = 256.0
_ANY = 1e30
# A search towards larger differences picks the input on which rounding happens to do most, of all that it tries.
SEARCHED = 4.0


@dataclass(frozen=True)
class _Left:
    """Elements of an output that are not explained yet, and how close to the other's each model must come there."""

    elements: np.ndarray
    close: np.ndarray


def rounding_explains(
    reference: Run,
    candidate: Run,
    trial: Trial,
    *,
    certified: bool = False,
    usual: Mapping[str, float] = MappingProxyType({}),
) -> bool:
    """Whether every difference on this input is one that both models show beside it.

    An element may be off by `FACTOR` times what moves its column, up to `most_rounding` of the column's scale, a whole
    number by one. What is further off must come about in each of the two models, to within that, for inputs moved by a
    few units in the last place; what does not move so far (the leaf of a tree next to a threshold, a label) exactly.

    Args:
        reference: run on the trial's inputs, moved by a few units in the last place.
        candidate: the other model, on the same inputs, with the outputs in the reference's names.
        trial: with the reference's outputs.
        certified: both are the same real function, so that however far rounding moves both, it is rounding.
        usual: outputs -> the scale of their largest column on usual inputs; where everything cancels, a trial has none.
    """
    expected, given = flatten(trial.outputs), run_or_none(candidate, trial.feeds)
    if given is None:
        return False
    factor = FACTOR * (SEARCHED if trial.kind == TrialKind.SEARCH else 1.0)
    draws = [d for seed in range(_DRAWS) if (d := _beside(reference, candidate, trial.feeds, seed)) is not None]
    left: dict[str, _Left] = {}
    for name, array in expected.items():
        own, other = np.asarray(array), np.asarray(given.get(name))
        if other.shape != own.shape or (own.dtype.kind in "OUS") != (other.dtype.kind in "OUS"):
            return False
        if not own.size:
            continue
        pairs = [(np.asarray(a.get(name)), np.asarray(b.get(name))) for a, b in draws]
        alike = [pair for pair in pairs if all(x.shape == own.shape for x in pair)]
        if alike and not _tied(own, other, expected):
            left[name] = _left(own, other, alike, factor, usual.get(name, 0.0), certified=certified)
        elif not alike:
            return False
    return _give_one_anothers(reference, candidate, trial.feeds, (given, expected), left, factor)


def _give_one_anothers(
    reference: Run,
    candidate: Run,
    feeds: Feeds,
    others: tuple[Mapping[str, Any], Mapping[str, Any]],
    left: Mapping[str, _Left],
    factor: float,
) -> bool:
    """Whether, close beside the input, each of the two gives what the other gives at it, in every element left.

    Then both have the threshold, and the two are apart by rounding. Few draws miss that where one of them is at the
    edge of what is drawn. A model that lacks a decision never does, nor one that is taken at one point alone.
    """
    waiting = [{name: item.elements for name, item in left.items()} for _ in others]
    for seed in range(_PATIENT):
        if not any(part.any() for one in waiting for part in one.values()):
            return True
        found = _beside(reference, candidate, feeds, seed, _UNITS * (factor if seed % 2 else 1.0))
        if found is None:
            return False
        for one, beside, here in zip(waiting, found, others, strict=True):
            for name, part in one.items():
                a, b = np.asarray(beside.get(name)), np.asarray(here[name])
                one[name] = part & (~(_apart(a, b) <= left[name].close) if a.shape == b.shape else True)
    return not any(part.any() for one in waiting for part in one.values())


def _beside(
    reference: Run, candidate: Run, feeds: Feeds, seed: int, units: float = _UNITS
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What the two give for inputs moved a little; None where nothing can be moved or one of them refuses."""
    made = perturbed(feeds, seed, units)
    first = None if made is None else run_or_none(reference, made)
    second = None if made is None or first is None else run_or_none(candidate, made)
    return None if first is None or second is None else (first, second)


def _left(
    own: np.ndarray,
    other: np.ndarray,
    draws: list[tuple[np.ndarray, np.ndarray]],
    factor: float,
    usual: float,
    *,
    certified: bool,
) -> _Left:
    """Which elements are further off than both models move, or than may be put down to rounding."""
    if own.dtype.kind in "OUSb":
        return _Left(own.astype(str) != other.astype(str), np.zeros(own.shape))
    with np.errstate(all="ignore"):
        moved = np.max([np.nan_to_num(_apart(a, own), nan=0.0, posinf=0.0) for a, _ in draws], axis=0)
        theirs = np.max([np.nan_to_num(_apart(b, other), nan=_ANY, posinf=_ANY) for _, b in draws], axis=0)
        error, steps = _apart(own, other), _own_steps(own)
        moves = error - factor * np.minimum(_in_column(moved, own), STEADIER * _in_column(theirs, own)) <= steps
        if certified:  # what rounding alone moves beyond the tolerance in both says nothing of equal functions
            moves |= (moved > steps) & (theirs > steps) & np.isfinite(error)
        far = np.zeros(own.shape, bool) if certified else ~(error <= _bound(own, usual) + steps)
    floats = own.dtype.kind in "fcV"
    return _Left(~moves | far, steps + np.where(moves, _bound(own, usual), 0.0) if floats else np.zeros(own.shape))


def _in_column(moved: np.ndarray, own: np.ndarray) -> np.ndarray:
    """A few draws say little of one element: elements of a column share theirs, and columns of about one scale."""
    if not moved.ndim:
        return moved
    columns = moved.size // moved.shape[-1], moved.shape[-1], 1
    return np.broadcast_to(shared_noise(moved, columns, column_sums(own, columns)), moved.shape)


def _bound(own: np.ndarray, usual: float) -> np.ndarray:
    """How far off an element may be and still be put down to rounding, whatever the models do; of integers one."""
    if not own.size or own.dtype.kind not in "fcV":
        return np.ones(own.shape)
    scale = ColumnScales().add(own).at(0, own.size).reshape(own.shape)
    return np.asarray(most_rounding(own.dtype.name) * np.maximum(scale, LEAST_SCALE * min(1.0, usual)))


def _own_steps(own: np.ndarray) -> np.ndarray:
    """What is allowed whatever the models do: of the element, and of the roundings inside."""
    if own.dtype.kind not in "fcV":
        return np.zeros(own.shape)
    wide = np.abs(own.astype(np.complex128 if own.dtype.kind == "c" else np.float64))
    wide = np.where(np.isfinite(wide), wide, 0.0)
    return np.asarray(1e-3 * wide + max(_ROUNDED, 1e-5 * float(wide.max(initial=0.0))))


def _apart(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far elements are apart; texts and booleans by one."""
    if own.dtype.kind in "OUSb" or other.dtype.kind in "OUSb":
        return np.asarray(own.astype(str) != other.astype(str), np.float64)
    wide = np.complex128 if own.dtype.kind == "c" else np.float64
    a, b = own.astype(wide), other.astype(wide)
    with np.errstate(all="ignore"):
        return np.asarray(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b)))


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


def perturbed(feeds: Feeds, seed: int, units: float = _UNITS) -> Feeds | None:
    """Inputs moved by so many units in the last place; None where nothing can be moved."""
    generator = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}
    changed = False
    for name, array in feeds.items():
        values = np.asarray(array)
        if values.dtype.kind not in "fV":
            made[name] = array
            continue
        changed = True
        same = next((n for n in made if _same(feeds[n], values)), None)
        if same is not None:  # that two inputs are equal is no matter of rounding
            made[name] = made[same]
            continue
        step = units * _step(values.dtype)
        wide = values.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        spread = float(np.std(finite)) if finite.size else 0.0
        with np.errstate(all="ignore"):
            # Zero is exact whatever the precision, and often means something of its own.
            size = np.where(wide == 0, 0.0, np.abs(wide) + max(spread, 1e-3))
            shift = step * generator.uniform(-1, 1, wide.shape) * size
            made[name] = (wide + shift).astype(values.dtype)
    return made if changed else None


def run_or_none(run: Run, feeds: Feeds) -> dict[str, Any] | None:
    """The flattened outputs; None where the model refuses."""
    try:
        with np.errstate(all="ignore"):
            return flatten(run(feeds))
    except OnnxToolError:
        return None


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.shape(a) == np.shape(b) and np.asarray(a).dtype == b.dtype and bool(np.array_equal(a, b))


def _step(dtype: np.dtype) -> float:
    return {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}.get(dtype.name, 2.0**-24)

"""How far a reference's outputs move when its inputs change by as much as rounding does.

Where values are large, cancel or saturate, the reference itself gives other results for inputs that are equal up to the
last bits. A second model that is no further off there has shown nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxtool.equality.rule.tolerance import ColumnScales, most_rounding
from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import OnnxToolError
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import Feeds
from onnxtool.runtime.flatten_outputs import flatten
from onnxtool.runtime.runner import Runner

# A float32 model rounds at every step; a few units in the last place of the input stand for the roundings inside.
_UNITS = 4.0
_DRAWS = 4
_PATIENT = 48  # draws, before a model is said not to decide what the other one decides
_TIE = 1e-5  # scores this close pick the label by rounding
# Differences up to so many times what this moves are put down to it: the largest of a few draws is an estimate.
FACTOR = 4.0
# What roundings of numbers around one inside the model add up to in float32: 8 steps of 2^-23.
_ROUNDED = 1e-6
# One of two models may be so many times steadier than the other: a variance by squares is that much worse than one by
# differences.
_STEADIER = 256.0
_ANY = 1e30
_AROUND = (-3, -2, -1, 1, 2, 3)  # steps of the last place
_STEP = 1e-3  # of what a decision changes, at least: where all numbers of a row are equal, norms give rounding alone
_LEAST = 1e-30  # what zero is moved by steps of
# A search towards larger differences picks the input on which rounding happens to do most, of all that it tries.
SEARCHED = 4.0


def rounding_explains(
    reference: Runner,
    trial: Trial,
    actual: Mapping[str, Any],
    names: Mapping[str, str] | None = None,
    candidate: Callable[[Feeds], Mapping[str, Any]] | None = None,
    *,
    certified: bool = False,
) -> bool:
    """Whether every difference on this input is one that the reference shows beside its own inputs.

    Args:
        reference: run on the trial's inputs, moved by a few units in the last place.
        trial: with the reference's outputs.
        actual: what the other model gives.
        names: output of the reference -> output of the other model, where they differ.
        candidate: runs the other model on inputs of the reference.
        certified: both are the same real function, so that however far rounding moves one, it is rounding.
    """
    expected = flatten(trial.outputs)
    given = {own: v for own, v in _by_own_names(flatten(actual), expected, names).items() if v is not None}
    factor = FACTOR * (SEARCHED if trial.kind == TrialKind.SEARCH else 1.0)
    beside = [made for seed in range(_DRAWS) if (made := perturbed(trial.feeds, seed)) is not None]
    runs = [(made, out) for made in beside if (out := run_or_none(reference.run, made)) is not None]
    moved = [out for _, out in runs]
    if not moved:
        return False
    if candidate is not None:
        others = [run_or_none(candidate, made) for made, _ in runs]
        theirs = [_by_own_names(out, expected, names) for out in others if out is not None]
        if len(theirs) == len(moved) and only_reference_jumps(expected, given, moved, theirs):
            return same_threshold(reference, candidate, trial.feeds, expected, given, names)
    for name, array in expected.items():
        other = np.asarray(given.get(name))
        own = np.asarray(array)
        if other.shape != own.shape or (own.dtype.kind in "OUS") != (other.dtype.kind in "OUS"):
            return False
        draws = [np.asarray(m[name]) for m in moved if np.shape(m[name]) == own.shape]
        if not _explained(own, other, draws, factor) and not _tied(own, other, expected):
            return candidate is not None and same_threshold(reference, candidate, trial.feeds, expected, given, names)
    return certified or reference_attains(reference, trial.feeds, expected, given, factor)


def reference_attains(
    reference: Runner, feeds: Feeds, expected: Mapping[str, Any], given: Mapping[str, Any], factor: float = FACTOR
) -> bool:
    """Whether the reference itself gives the other model's values, within the bound, on inputs beside these.

    However far the reference moves there: what is off by more than `most_rounding` of its column's scale is excused
    only where the reference comes as close to it as that, for each element, when its inputs move by a few units in the
    last place.

    Args:
        reference: run on moved inputs, only where something is further off.
        feeds: the inputs.
        expected: what the reference gives for them.
        given: what the other model gives, in the reference's names.
        factor: inputs move by so many times `_UNITS` too.
    """
    bounds = {n: _bound(np.asarray(a)) for n, a in expected.items() if np.asarray(a).dtype.kind in "fcV"}
    left = {n: _apart(np.asarray(expected[n]), np.asarray(given[n])) > b for n, b in bounds.items()}
    for seed in range(_PATIENT):
        if not any(part.any() for part in left.values()):
            return True
        made = perturbed(feeds, seed, _UNITS * (factor if seed % 2 else 1.0))
        found = None if made is None else run_or_none(reference.run, made)
        if found is None:
            return False
        for name, part in left.items():
            beside = np.asarray(found.get(name))
            if beside.shape == part.shape:
                left[name] = part & (_apart(beside, np.asarray(given[name])) > bounds[name])
    return not any(part.any() for part in left.values())


def _bound(own: np.ndarray) -> np.ndarray:
    """How far off an element may be and still be put down to rounding, whatever the reference does."""
    if not own.size:
        return np.zeros(own.shape)
    scale = ColumnScales().add(own).at(0, own.size).reshape(own.shape)
    with np.errstate(all="ignore"):
        return np.asarray(most_rounding(own.dtype.name) * scale + _own_steps(own))


def _own_steps(own: np.ndarray) -> np.ndarray:
    """What is allowed whatever the reference does: of the element, and of the roundings inside."""
    wide = np.abs(own.astype(np.complex128 if own.dtype.kind == "c" else np.float64))
    scale = float(wide[np.isfinite(wide)].max(initial=0.0))
    return np.asarray(1e-3 * wide + max(_ROUNDED, 1e-5 * scale))


def _apart(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    wide = np.complex128 if own.dtype.kind == "c" else np.float64
    a, b = own.astype(wide), other.astype(wide)
    with np.errstate(all="ignore"):
        return np.asarray(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b)))


def differs_there_alone(
    reference: Runner, candidate: Callable[[Feeds], Mapping[str, Any]], feeds: Feeds, names: Mapping[str, str] | None
) -> bool:
    """Whether two models take a step at one number, and the number itself to either side of it.

    On inputs of that number they differ by a step that the reference takes between the floats beside it, and at the
    floats around it they agree (one has greater, the other greater or equal). Had rounding moved the step of one, it
    would lie between other floats.
    """
    runs: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
    for steps in (0, *_AROUND):
        made = {name: _stepped(np.asarray(array), steps) for name, array in feeds.items()}
        found, theirs = run_or_none(reference.run, made), run_or_none(candidate, made)
        if found is None or theirs is None:
            return False
        given = _by_own_names(theirs, found, names)
        unequal = any(_unequal_rows(np.asarray(a), np.asarray(given.get(n))).any() for n, a in found.items())
        if unequal != (steps == 0):
            return False
        runs[steps] = found, given
    (own, other), below, above = runs[0], runs[-1][0], runs[1][0]
    return any(_takes_a_step(*(np.asarray(run[name]) for run in (own, other, below, above))) for name in own)


def _stepped(array: np.ndarray, steps: int) -> np.ndarray:
    """Floats moved by so many steps of the last place."""
    if array.dtype.kind != "f":
        return array
    values = array.astype(np.float64)
    moved: np.ndarray = values + 2 * steps * _step(array.dtype) * np.maximum(np.abs(values), _LEAST)
    return moved.astype(array.dtype)


def _takes_a_step(own: np.ndarray, other: np.ndarray, below: np.ndarray, above: np.ndarray) -> bool:
    if not own.shape == other.shape == below.shape == above.shape:
        return False
    if own.dtype.kind != "f":
        return bool(((own.astype(str) != other.astype(str)) & (below.astype(str) != above.astype(str))).any())
    with np.errstate(all="ignore"):
        apart, step = (np.abs(a.astype(np.float64) - b) for a, b in ((own, other), (above, below)))
    return bool(((apart > _STEP) & (step >= apart / 2)).any())


def _by_own_names(
    outputs: Mapping[str, Any], expected: Mapping[str, Any], names: Mapping[str, str] | None
) -> dict[str, Any]:
    return {own: outputs.get((names or {}).get(own, own)) for own in expected}


def only_reference_jumps(
    expected: Mapping[str, Any],
    given: Mapping[str, Any],
    moved: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
) -> bool:
    """Whether the reference decides something at exactly this input that the other model does not decide: its outputs
    jump there, and those of the other hardly move. Where both decide, rounding may well part them.
    """
    for name, array in expected.items():
        own, other = np.asarray(array), np.asarray(given.get(name))
        pairs = [(np.asarray(a.get(name)), np.asarray(b.get(name))) for a, b in zip(moved, theirs, strict=True)]
        if other.shape != own.shape or any(x.shape != own.shape for pair in pairs for x in pair):
            continue
        if own.dtype.kind == "f" and other.dtype.kind == "f":
            wide = own.astype(np.float64)
            with np.errstate(all="ignore"):
                # Where the other gives NaN, it is anything but steady.
                steps = [np.nan_to_num(b.astype(np.float64) - other, nan=_ANY, posinf=_ANY) for _, b in pairs]
                draws = [wide + _STEADIER * step for step in steps]
            if not _explained(own, other, draws):
                return True
            continue
        differs = own.astype(str) != other.astype(str)
        agree = sum(bool((a.astype(str) == b.astype(str))[differs].all()) for a, b in pairs)
        steady = all(bool((b.astype(str) == other.astype(str))[differs].all()) for _, b in pairs)
        if differs.any() and steady and 2 * agree > len(pairs):
            return True
    return False


def same_threshold(
    reference: Runner,
    candidate: Callable[[Feeds], Mapping[str, Any]],
    feeds: Feeds,
    expected: Mapping[str, Any],
    given: Mapping[str, Any],
    names: Mapping[str, str] | None,
) -> bool:
    """Whether, close beside the input, each of the two gives what the other gives at it, in every row that differs.

    Then both have the threshold, and the two are apart by rounding. Few draws miss that where one of them is at the
    edge of what is drawn. A model that lacks a decision never does, nor one that is taken at one point alone.
    """
    rows = {name: _unequal_rows(np.asarray(a), np.asarray(given.get(name))) for name, a in expected.items()}
    left = [dict(rows), dict(rows)]
    for seed in range(_PATIENT):
        made = perturbed(feeds, seed)
        if made is None:
            return False
        found, theirs = run_or_none(reference.run, made), run_or_none(candidate, made)
        if found is None or theirs is None:
            return False
        pairs = ((found, given), (_by_own_names(theirs, expected, names), expected))
        for open_rows, (beside, here) in zip(left, pairs, strict=True):
            for name in expected:
                unequal = _unequal_rows(np.asarray(here.get(name)), np.asarray(beside.get(name)))
                if unequal.shape == open_rows[name].shape:
                    open_rows[name] = open_rows[name] & unequal
        if not any(r.any() for one in left for r in one.values()):
            return True
    return False


def _unequal_rows(own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """bool[rows]: where the two are not equal but for a tolerance; one row where the shapes differ."""
    if other.shape != own.shape:
        return np.ones(1, bool)
    if own.dtype.kind == "f" and other.dtype.kind == "f":
        unequal = ~np.isclose(other.astype(np.float64), own.astype(np.float64), rtol=1e-3, atol=1e-6, equal_nan=True)
    else:
        unequal = own.astype(str) != other.astype(str)
    return np.asarray(unequal.reshape(len(own) if own.ndim else 1, -1).any(axis=1))


def _explained(own: np.ndarray, other: np.ndarray, draws: list[np.ndarray], factor: float = FACTOR) -> bool:
    if own.dtype.kind in "OUSb":
        unequal = own.astype(str) != other.astype(str)
        # The reference itself has to give what the other model gives.
        flips = np.any([other.astype(str) == d.astype(str) for d in draws], axis=0) if draws else np.zeros(own.shape)
        return not bool((unequal & ~np.asarray(flips, bool)).any())
    wide = np.complex128 if own.dtype.kind == "c" else np.float64
    a, b = own.astype(wide), other.astype(wide)
    error = _apart(a, b)
    with np.errstate(all="ignore"):
        noise = np.max([np.abs(d.astype(wide) - a) for d in draws], axis=0) if draws else np.zeros(own.shape)
    if own.ndim:  # one draw says little of one element: elements of a column share theirs
        noise = np.broadcast_to(noise.reshape(-1, own.shape[-1]).max(axis=0, initial=0.0), own.shape)
    rest = error - factor * np.nan_to_num(noise, nan=0.0, posinf=0.0)
    own_steps = _own_steps(own) if own.dtype.kind in "fcV" else 0.0
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


def run_or_none(run: Callable[[Feeds], Mapping[str, Any]], feeds: Feeds) -> dict[str, Any] | None:
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

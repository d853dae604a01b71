"""Are dims of one name equal? The file says so; a run in which they differ tells whether the model holds them to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from onnxtool.equality.trials.trial import Trial
from onnxtool.errors import OnnxToolError
from onnxtool.model.spec import TensorSpec, distinct_dims
from onnxtool.report.proof import Assumption, TrialKind
from onnxtool.runtime.feeds import Feeds, feeds_bytes
from onnxtool.runtime.runner import Runner

_MOST_BYTES = 1 << 26
_SECONDS = 5.0  # for all names together; a name that was not settled by then is not believed
_ALL_GROUPS = 5  # of so many dims of one name, every part is moved; of more, each dim, each input and each axis

Place = tuple[str, int]  # an input, and one of its axes


@dataclass(frozen=True)
class SharedName:
    """A name that stands for several dims of a model's inputs.

    Attributes:
        name: of the dims.
        places: where it stands, two at least.
        assumption: that all these dims are equal whenever the model runs, and whether runs have shown it.
        apart: a run in which they differ, if the model takes one.
    """

    name: str
    places: tuple[Place, ...]
    assumption: Assumption
    apart: Trial | None = None


def shared_names(runner: Runner, specs: Sequence[TensorSpec], runs: Sequence[Feeds]) -> list[SharedName]:
    """Try inputs in which dims of one name differ.

    The model takes `old` and `new` where all dims of the name have that size. Then some of them get the one, and the
    others the other: where it refuses every such input, the dims are equal whenever it gives an output.

    Args:
        runner: the model.
        specs: its inputs.
        runs: inputs that it takes; sizes are changed by leaving out or repeating some of their elements.

    Returns:
        Every name that stands for several dims.
    """
    places: dict[str, list[Place]] = {}
    for spec in distinct_dims(specs):
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str):
                places.setdefault(dim, []).append((spec.name, axis))
    until = time.perf_counter() + _SECONDS
    return [_settle(runner, name, where, runs, until) for name, where in places.items() if len(where) > 1]


def _settle(runner: Runner, name: str, places: Sequence[Place], runs: Sequence[Feeds], until: float) -> SharedName:
    claim = f"dims named {name!r} are equal"
    base = runs[0]
    sizes = {np.shape(base[tensor])[axis] for tensor, axis in places}
    if len(sizes) > 1:
        broken = Assumption(claim, "broken", "the inputs given have other sizes")
        return SharedName(name, tuple(places), broken)
    (old,) = sizes
    if not old:
        return SharedName(name, tuple(places), Assumption(claim, "unproven", "the inputs given are empty"))
    taken = [n for n in _sizes(old, places, runs) if n == old or _run(runner, _resized(base, places, n)) is not None]
    if len(taken) < 2:
        reason = "the model takes no other size, so no run tells"
        return SharedName(name, tuple(places), Assumption(claim, "unproven", reason))
    one, other = taken[:2]
    for moved in _parts(places):
        if time.perf_counter() > until:
            return SharedName(name, tuple(places), Assumption(claim, "unproven", "there was no time to try it"))
        trial = _run(runner, _resized(_resized(base, places, one), moved, other), f"dims named {name!r} apart")
        if trial is not None:
            told = ", ".join(f"{tensor} {list(np.shape(trial.feeds[tensor]))}" for tensor in dict(places))
            return SharedName(name, tuple(places), Assumption(claim, "broken", f"the model takes {told}"), trial)
    reason = f"the model takes {one} and {other} for all of them, and refuses the two beside each other"
    return SharedName(name, tuple(places), Assumption(claim, "held", reason))


def _sizes(old: int, places: Sequence[Place], runs: Sequence[Feeds]) -> list[int]:
    """Sizes that all dims of a name may have. None is 1: operators take it beside any other, which tells nothing."""
    tensor, axis = places[0]
    seen = [int(np.shape(run[tensor])[axis]) for run in runs[1:]]
    return [n for n in dict.fromkeys((old, *seen, 2 * old, 3 * old, old + 1, 4 * old)) if n > 1]


def _parts(places: Sequence[Place]) -> Iterator[tuple[Place, ...]]:
    """Some of the places, never all."""
    if len(places) <= _ALL_GROUPS:
        for count in range(1, len(places)):
            yield from combinations(places, count)
        return
    yield from ((place,) for place in places)
    groups: dict[tuple[str, str], list[Place]] = {}
    for tensor, axis in places:
        groups.setdefault(("input", tensor), []).append((tensor, axis))
        groups.setdefault(("axis", str(axis)), []).append((tensor, axis))
    for group in groups.values():
        if 1 < len(group) < len(places):
            yield tuple(group)
            yield tuple(p for p in places if p not in group)


def _resized(feeds: Feeds, places: Sequence[Place], size: int) -> Feeds:
    """The same inputs with another size in these places, their elements left out or repeated."""
    changed: dict[str, np.ndarray] = dict(feeds)
    for tensor, axis in places:
        array = changed[tensor]
        changed[tensor] = np.take(array, np.arange(size) % array.shape[axis], axis)
    return changed


def _run(runner: Runner, feeds: Feeds, label: str = "") -> Trial | None:
    """What the model gives; None where it takes no such input."""
    if feeds_bytes(feeds) > _MOST_BYTES:
        return None
    try:
        return Trial(label, TrialKind.SIZE, feeds, dict(runner.run(feeds)))
    except OnnxToolError:
        return None

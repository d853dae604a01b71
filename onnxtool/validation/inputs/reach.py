"""Inputs on which the conditions of a graph come out the other way, sought by walking down their distances.

Source: Korel 1990, "Automated software test data generation", section 5: the alternating variable method. One variable
at a time is moved, by what a straight line through two distances says (Newton's method), as long as that helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxtool.errors import InputError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import random_feeds
from onnxtool.validation.inputs.conditions import ConditionWatch, Outcome
from onnxtool.validation.inputs.facts import Facts
from onnxtool.validation.inputs.sizes import DynamicDims
from onnxtool.validation.inputs.trial import Budget, Feeds
from onnxtool.validation.inputs.values import is_mask

# Runs for each outcome that was not reached, and for all of them.
_RUNS = {"quick": (60, 400), "normal": (300, 3000), "thorough": (5000, 200_000)}
_SINGLE = 48  # elements of an input that are moved one by one
_FURTHER = (1.5, 3.0)  # a found input is moved on, so that the outcome is no matter of rounding
_ELEMENTS = 1 << 18  # of inputs at sizes that are sought


@dataclass(frozen=True)
class Found:
    """An input that reaches an outcome.

    Attributes:
        outcome: which.
        feeds: the input.
    """

    outcome: Outcome
    feeds: Feeds


def reach(
    watch: ConditionWatch,
    specs: Sequence[TensorSpec],
    runs: Sequence[Feeds],
    dims: DynamicDims,
    facts: Facts,
    budget: Budget,
    *,
    seed: int = 0,
) -> tuple[list[Found], list[Outcome]]:
    """Look for inputs on which conditions come out as they have not yet.

    Args:
        watch: the conditions.
        specs: the inputs.
        runs: inputs tried so far.
        dims: which sizes may change.
        facts: what is known of the inputs.
        budget: how long.
        seed: of random numbers.

    Returns:
        Inputs that reach more, and the outcomes that nothing reached.
    """
    walk = _Walk(watch, specs, dims, facts, budget, np.random.default_rng(seed + 5))
    for run in runs:
        walk.look(run)
        if budget.left <= 0 or not walk.open():
            break
    order = sorted(walk.open(), key=lambda place: walk.best[place][0])
    for place in order:
        if walk.best[place][0] > 0:
            walk.towards(place)
    # An outcome may have come about on the way to another.
    found = [Found(watch.outcomes[p], walk.best[p][1]) for p in order if walk.best[p][0] == 0]
    return found, [watch.outcomes[p] for p in walk.open()]


class _Walk:
    """Distances seen so far, and the steps that make them smaller."""

    def __init__(
        self,
        watch: ConditionWatch,
        specs: Sequence[TensorSpec],
        dims: DynamicDims,
        facts: Facts,
        budget: Budget,
        generator: np.random.Generator,
    ) -> None:
        self._watch, self._specs, self._dims, self._facts = watch, specs, dims, facts
        self._budget, self._generator = budget, generator
        self._each, self._left = _RUNS[budget.effort]
        self.best: list[tuple[float, Feeds]] = [(np.inf, {}) for _ in watch.outcomes]

    def open(self) -> list[int]:
        """Places of the outcomes that nothing has reached."""
        return [i for i, (distance, _) in enumerate(self.best) if distance > 0]

    def look(self, feeds: Feeds) -> np.ndarray:
        """The distances on an input, which count among those seen."""
        distances = self._watch.distances(feeds)
        for place, distance in enumerate(distances):
            if distance < self.best[place][0]:
                self.best[place] = (float(distance), feeds)
        return distances

    def towards(self, place: int) -> None:
        """Walk towards one outcome, from the input that is nearest to it."""
        if not self.best[place][1]:
            return
        outcome = self._watch.outcomes[place]
        allowed = min(self._each, self._left)
        before = allowed
        while allowed > 0 and self.best[place][0] > 0 and self._budget.left > 0:
            start, feeds = self.best[place]
            variables = self._sizes() if outcome.of_sizes else self._values(feeds)
            for move in variables:
                allowed -= self._line(place, self.best[place][1] if not outcome.of_sizes else feeds, move)
                if allowed <= 0 or self.best[place][0] == 0 or self._budget.left <= 0:
                    break
            if self.best[place][0] >= start:
                break
        self._left -= before - allowed

    def _line(self, place: int, feeds: Feeds, move: Move) -> int:
        """Along one variable: a probe on either side, then where a straight line says that the distance is zero.

        Returns:
            How many runs it took.
        """
        start = self._at(place, feeds, move, 0.0)
        count = 1
        at, distance = 0.0, start
        for probe in (move.probe, -move.probe):
            near = self._at(place, feeds, move, probe)
            count += 1
            slope = (near - distance) / probe if np.isfinite(near) else 0.0
            if slope == 0:
                continue
            for _ in range(6):
                step = -distance / slope
                to = at + (step * 1.0001 if not move.whole else float(np.sign(step) * np.ceil(abs(step))))
                there = self._at(place, feeds, move, to)
                count += 1
                if there == 0:
                    return count + self._beyond(place, feeds, move, to)
                if not there < distance or to == at:
                    break
                slope = (there - distance) / (to - at)
                at, distance = to, there
                if slope == 0:
                    break
            if distance < start:
                break
        return count

    def _beyond(self, place: int, feeds: Feeds, move: Move, to: float) -> int:
        for factor in _FURTHER:
            further = move.moved(feeds, to * factor)
            if further is None or self._watch.distances(further)[place] > 0:
                return 1
            self.best[place] = (0.0, further)
        return len(_FURTHER)

    def _at(self, place: int, feeds: Feeds, move: Move, by: float) -> float:
        made = move.moved(feeds, by)
        return np.inf if made is None else float(self.look(made)[place])

    def _values(self, feeds: Feeds) -> Iterator[Move]:
        """Parts of inputs that move together: all of one, a row, a column, an element."""
        for spec in self._specs:
            array = np.asarray(feeds[spec.name])
            if array.dtype.kind not in "fiubV" or not array.size:
                continue
            limits = self._limits(spec, array)
            for part in self._parts(array):
                yield Move(_shift(spec.name, part, limits), self._probe(array, part), array.dtype.kind in "iub")

    def _parts(self, array: np.ndarray) -> Iterator[tuple[np.ndarray | slice | int, ...]]:
        yield (slice(None),) * array.ndim
        if array.ndim > 1:
            for row in range(min(array.shape[0], 4)):
                yield (row,)
            for column in range(array.shape[-1]) if array.shape[-1] <= 16 else ():
                yield (*(slice(None),) * (array.ndim - 1), column)
        if array.size > 1:
            for place in self._generator.permutation(array.size)[:_SINGLE]:
                yield tuple(np.unravel_index(place, array.shape))

    def _probe(self, array: np.ndarray, part: tuple[np.ndarray | slice | int, ...]) -> float:
        if array.dtype.kind in "iub":
            return 1.0
        with np.errstate(all="ignore"):
            size = float(np.abs(np.nan_to_num(array[part].astype(np.float64))).mean())
        return 1e-2 * max(size, 1e-2) if size < 1e30 else 1.0

    def _limits(self, spec: TensorSpec, array: np.ndarray) -> tuple[float, float]:
        if array.dtype.kind == "b" or is_mask(spec):
            return 0.0, 1.0
        domain = self._facts.domains.get(spec.name)
        if array.dtype.kind in "iu":
            info = np.iinfo(array.dtype)
            low, high = max(float(info.min), -(2.0**53)), min(float(info.max), 2.0**53)
            if domain is not None:
                return max(low, domain.low), min(high, domain.high - 1)
            if spec.name in self._facts.structural:
                return max(low, 0.0), 4096.0
            return low, high
        if domain is not None and domain.low > 0:
            return domain.low * 1e-3, 1e30
        return (-6e4, 6e4) if array.dtype.itemsize == 2 else (-1e30, 1e30)

    def _sizes(self) -> Iterator[Move]:
        """Groups of dims that grow and shrink together."""
        for group in (*self._dims.lengths, *self._dims.batches):
            yield Move(self._resized(group), 1.0, True)
        everything = [g for groups in (self._dims.lengths, self._dims.batches) for g in groups]
        if len(everything) > 1:
            yield Move(self._resized(tuple(n for g in everything for n in g)), 1.0, True)

    def _resized(self, group: tuple[str, ...]) -> Callable[[Feeds, float], Feeds | None]:
        def made(feeds: Feeds, by: float) -> Feeds | None:
            sizes: dict[str, int] = {}
            batch = length = 1
            for spec in self._specs:
                for axis, dim in enumerate(spec.shape or ()):
                    size = int(np.shape(feeds[spec.name])[axis])
                    if isinstance(dim, str):
                        sizes[dim] = size + int(by) if dim in group else size
                    elif dim is None:
                        batch, length = (size, length) if axis == 0 else (batch, size)
            if min(sizes.values(), default=1) < 1 or not by:
                return feeds if not by else None
            total = 0.0
            for spec in self._specs:
                dims = [sizes.get(d, 1) if isinstance(d, str) else d or 1 for d in spec.shape or ()]
                total += float(np.prod(np.array(dims, dtype=np.float64)))
            if total > _ELEMENTS:
                return None
            try:
                return random_feeds(
                    self._specs, 11, dims=sizes, batch=batch, length=length, domains=self._facts.domains
                )
            except InputError:
                return None

        return made


@dataclass(frozen=True)
class Move:
    """A variable of the walk.

    Attributes:
        moved: an input and by how much -> the input with the variable changed; None where that is not possible.
        probe: a small change.
        whole: only whole numbers count.
    """

    moved: Callable[[Feeds, float], Feeds | None]
    probe: float
    whole: bool


def _shift(
    name: str, part: tuple[np.ndarray | slice | int, ...], limits: tuple[float, float]
) -> Callable[[Feeds, float], Feeds | None]:
    def moved(feeds: Feeds, by: float) -> Feeds | None:
        array = np.array(feeds[name])
        with np.errstate(all="ignore"):
            wide = np.clip(array[part].astype(np.float64) + by, *limits)
            array[part] = wide.astype(array.dtype) if array.dtype.kind != "b" else wide > 0
        return {**feeds, name: array}

    return moved

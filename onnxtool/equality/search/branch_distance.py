"""Inputs on which the conditions of a graph come out the other way, sought by walking down their distances.

Source: Korel 1990, "Automated software test data generation", section 5: the alternating variable method. One variable
at a time is moved, by what a straight line through two distances says (Newton's method), as long as that helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxtool.equality.search.boolean_distances import NOT_YET
from onnxtool.equality.search.conditions import ConditionWatch, Outcome
from onnxtool.equality.search.mutations import Move, Moves, is_varied
from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.sizes import DynamicDims
from onnxtool.equality.trials.trial import Budget
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds

# Runs for each outcome that was not reached, and for all of them.
_RUNS = {"quick": (60, 400), "normal": (600, 4000), "thorough": (5000, 200_000)}
_FURTHER = (1.5, 3.0)  # a found input is moved on, so that the outcome is no matter of rounding
_MORE = 1.0001  # a little more than what a straight line says: comparisons may be strict
_COARSE = 100  # so much larger is a probe where small ones change nothing: what is rounded has steps
_ROUNDED = 1e-4  # by so much the slope of a straight line in float32 may be off
_ALMOST = 1e-3  # of a whole number
_STEPS = 6  # of Newton's method along a line
_VARIED = 16  # outcomes that only inputs of equal numbers reached, for which others are sought


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
    facts: GraphHints,
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
    walk = _Walk(watch, Moves(specs, dims, facts, np.random.default_rng(seed + 5)), budget)
    for run in runs:
        walk.look(run)
        if budget.left <= 0 or not walk.open():
            break
    order = sorted(walk.open(), key=lambda place: walk.best[place][0])
    for place in order:
        walk.towards(place)
    # An outcome may have come about on the way to another.
    found = [Found(watch.outcomes[p], walk.best[p][1]) for p in order if walk.best[p][0] == 0]
    missed = [watch.outcomes[p] for p in walk.open()]
    # Zeros and equal numbers reach much, and show little of what follows.
    plain = [p for p, (distance, _) in enumerate(walk.varied) if distance > 0 and walk.best[p][0] == 0]
    freed = [*walk.redrawn(plain, runs[:3])]
    of_values = [p for p in plain if not watch.outcomes[p].of_sizes]
    short = [p for p in of_values if watch.outcomes[p].branch is None and not walk.moves.has_lengths(walk.best[p][1])]
    walk.best = walk.varied
    for place in sorted(plain, key=lambda place: walk.best[place][0])[:_VARIED]:
        walk.towards(place)
        if walk.best[place][0] == 0:
            found.append(Found(watch.outcomes[place], walk.best[place][1]))
    # Where only lengths of one reach it, next to nothing followed from it.
    missed += [watch.outcomes[p] for p in short if walk.best[p][0] > 0]
    edges = [Found(watch.outcomes[place], feeds) for place, feeds in walk.edges.items()]
    return [*found, *edges, *freed], missed


class _Walk:
    """Distances seen so far, and the steps that make them smaller.

    Attributes:
        moves: what can be changed.
        best: of each outcome, the smallest distance and the input that has it.
        varied: the same, of inputs whose numbers differ among themselves, at lengths of more than one.
        edges: of outcomes that depend on sizes, the first size at which they came about on the way.
    """

    def __init__(self, watch: ConditionWatch, moves: Moves, budget: Budget) -> None:
        self._watch, self.moves, self._budget = watch, moves, budget
        self._each, self._left = _RUNS[budget.effort]
        self.best: list[tuple[float, Feeds]] = [(np.inf, {}) for _ in watch.outcomes]
        self.varied = list(self.best)
        self.edges: dict[int, Feeds] = {}

    def open(self) -> list[int]:
        """Places of the outcomes that nothing has reached."""
        return [i for i, (distance, _) in enumerate(self.best) if distance > 0]

    def look(self, feeds: Feeds) -> np.ndarray:
        """The distances on an input, which count among those seen."""
        distances = self._watch.distances(feeds)
        varied: bool | None = None
        for place, distance in enumerate(distances):
            if distance < self.varied[place][0]:
                varied = is_varied(feeds) and self.moves.has_lengths(feeds) if varied is None else varied
                if varied:
                    self.varied[place] = (float(distance), feeds)
            if self.best is not self.varied and distance < self.best[place][0]:
                self.best[place] = (float(distance), feeds)
        return distances

    def towards(self, place: int) -> None:
        """Walk towards one outcome, from the input that is nearest to it."""
        if not self.best[place][1]:
            return
        of_sizes = self._watch.outcomes[place].of_sizes
        allowed = before = min(self._each, self._left)
        while allowed > 0 and self._goes_on(place):
            start = self.best[place][0]
            allowed -= self._by_sizes(place, allowed) if of_sizes else self._by_values(place, allowed)
            if self.best[place][0] >= start and not of_sizes:
                allowed -= self._along(place, self.moves.sizes(keep=True), allowed)
            if self.best[place][0] >= start:
                break
        self._left -= before - allowed

    def _goes_on(self, place: int) -> bool:
        return self.best[place][0] > 0 and self._budget.left > 0

    def _by_values(self, place: int, allowed: int) -> int:
        """Parts of the inputs are moved; where that does not help, they are set to values that mean something."""
        start, feeds = self.best[place]
        used = self._along(place, self.moves.shifts(feeds), allowed // 2)
        if self.best[place][0] < start:
            return used
        for made in self.moves.sets(feeds):
            if used >= 3 * allowed // 4 or not self._goes_on(place) or self.best[place][0] < start:
                break
            self.look(made)
            used += 1
        return used

    def _by_sizes(self, place: int, allowed: int) -> int:
        """Sizes are moved from where they are, and from one."""
        feeds = self.best[place][1]
        used = 0
        for start in (feeds, *self.moves.starts(feeds)):
            used += self._along(place, self.moves.sizes(), allowed - used, start)
        return used

    def _along(self, place: int, moves: Iterable[Move], allowed: int, start: Feeds | None = None) -> int:
        used = 0
        for move in moves:
            if used >= allowed or not self._goes_on(place):
                break
            used += self._line(place, self.best[place][1] if start is None else start, move)
        return used

    def _line(self, place: int, feeds: Feeds, move: Move) -> int:
        """Along one variable: a probe on either side, then where a straight line says that the distance is zero.

        Returns:
            How many runs it took.
        """
        start = self._at(place, feeds, move, 0.0)
        count = 1
        at, distance = 0.0, start
        flat = True
        for probe in (move.probe, -move.probe, *(_COARSE * p for p in (move.probe, -move.probe))):
            if abs(probe) > move.probe and (move.whole or not flat):
                break
            near = self._at(place, feeds, move, probe)
            count += 1
            slope = (near - distance) / probe if np.isfinite(near) else 0.0
            if slope == 0:
                continue
            flat = False
            before = (probe, near)
            for _ in range(_STEPS):
                to, there = at, np.inf
                for by in _where_zero(at, distance, _whole_slope(slope), whole=move.whole):
                    found = self._at(place, feeds, move, by)
                    count += 1
                    if found == 0:
                        return count + self._beyond(place, feeds, move, by)
                    to, there = min((to, there), (by, found), key=lambda pair: pair[1])
                lowest = None if there < distance or move.whole else _lowest(before, (at, distance), (to, there))
                if lowest is not None:  # too far, past where the distance is smallest
                    to, there = lowest, self._at(place, feeds, move, lowest)
                    count += 1
                    if there == 0:
                        return count + self._beyond(place, feeds, move, to)
                if not there < distance or to == at:
                    break
                before = at, distance
                slope = (there - distance) / (to - at)
                at, distance = to, there
                if slope == 0:
                    break
            if distance < start:
                break
        return count

    def redrawn(self, places: Iterable[int], usual: Sequence[Feeds]) -> Iterator[Found]:
        """Inputs that reach outcomes still, with usual numbers wherever equal ones are not what it takes."""
        for place in places:
            feeds = made = self.best[place][1]
            for name, array in feeds.items():
                if is_varied({name: array}):
                    continue
                for run in usual if self._budget.left > 0 else ():
                    other = {**made, name: np.resize(run[name], np.shape(array))}
                    if self._watch.distances(other)[place] == 0:
                        made = other
                        break
            if made is not feeds:
                yield Found(self._watch.outcomes[place], made)

    def _beyond(self, place: int, feeds: Feeds, move: Move, to: float) -> int:
        edge = move.moved(feeds, to) if self._watch.outcomes[place].of_sizes else None
        if edge is not None:
            self.edges.setdefault(place, edge)
        for factor in _FURTHER:
            further = move.moved(feeds, to * factor)
            if further is None or self._watch.distances(further)[place] > 0:
                return 1
            self.best[place] = (0.0, further)
        return len(_FURTHER)

    def _at(self, place: int, feeds: Feeds, move: Move, by: float) -> float:
        made = move.moved(feeds, by)
        return np.inf if made is None else float(self.look(made)[place])


def _whole_slope(slope: float) -> float:
    """A slope without what rounding in float32 adds to it: only so are two numbers ever exactly equal."""
    near = float(f"{slope:.3g}")
    return near if near and abs(slope / near - 1) < _ROUNDED else slope


def _lowest(*points: tuple[float, float]) -> float | None:
    """Where the parabola through three points is lowest; None where it has no such place."""
    (a, da), (b, db), (c, dc) = points
    if len({a, b, c}) < 3 or not np.isfinite([da, db, dc]).all():
        return None
    first, second = (db - da) / (b - a), (dc - db) / (c - b)
    curve = (second - first) / (c - a)
    return (a + b) / 2 - first / (2 * curve) if curve > 0 else None


def _where_zero(at: float, distance: float, slope: float, *, whole: bool) -> tuple[float, ...]:
    """Where a straight line says that a distance is zero: exactly there, and a little further."""
    step = -distance / slope
    if whole:  # an equality is there at the nearest whole number, a strict comparison one further
        steps = dict.fromkeys((np.ceil(abs(step) - _ALMOST), np.ceil(abs(step))))
        return tuple(at + float(np.sign(step) * by) for by in steps if by)
    return (at - max(0.0, distance - NOT_YET) / slope, at + step * _MORE)

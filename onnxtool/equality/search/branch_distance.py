"""Inputs on which the conditions of a graph come out the other way, sought by walking down their distances.

Source: Korel 1990, "Automated software test data generation", section 5: the alternating variable method. One variable
at a time is moved, by what a straight line through two distances says (Newton's method), as long as that helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
_MORE = 1.0001  # a little more than what a straight line says: comparisons may be strict
_COARSE = 100  # so much larger is a probe where small ones change nothing: what is rounded has steps
_ALMOST = 1e-3  # of a whole number
_HALVINGS = 3  # of a step that went too far
_STEPS = 6  # of Newton's method along a line
_AT_RANDOM = 12  # inputs of very many random numbers that are looked at
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
    walk.at_random()
    for place in order:
        walk.towards(place)
    # An outcome may have come about on the way to another.
    found = [Found(watch.outcomes[p], walk.best[p][1]) for p in order if walk.best[p][0] == 0]
    missed = [watch.outcomes[p] for p in walk.open()]
    # Zeros and equal numbers reach much, and show little of what follows.
    plain = [p for p, (distance, _) in enumerate(walk.varied) if distance > 0 and walk.best[p][0] == 0]
    of_values = [p for p in plain if not watch.outcomes[p].of_sizes]
    short = [p for p in of_values if not watch.outcomes[p].branch and not walk.moves.has_lengths(walk.best[p][1])]
    walk.best = walk.varied
    for place in sorted(plain, key=lambda place: walk.best[place][0])[:_VARIED]:
        walk.towards(place)
        if walk.best[place][0] == 0:
            found.append(Found(watch.outcomes[place], walk.best[place][1]))
    # Where only lengths of one reach it, next to nothing followed from it.
    missed += [watch.outcomes[p] for p in short if walk.best[p][0] > 0]
    return found, missed


class _Walk:
    """Distances seen so far, and the steps that make them smaller.

    Attributes:
        moves: what can be changed.
        best: of each outcome, the smallest distance and the input that has it.
        varied: the same, of inputs whose numbers differ among themselves, at lengths of more than one.
    """

    def __init__(self, watch: ConditionWatch, moves: Moves, budget: Budget) -> None:
        self._watch, self.moves, self._budget = watch, moves, budget
        self._each, self._left = _RUNS[budget.effort]
        self.best: list[tuple[float, Feeds]] = [(np.inf, {}) for _ in watch.outcomes]
        self.varied = list(self.best)

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

    def at_random(self) -> None:
        """Look at many random inputs at once: no walk leads to a row of a table behind the remainder of a product."""
        for _ in range(_AT_RANDOM):
            rows = [p for p in self.open() if self._watch.outcomes[p].row is not None and self.best[p][1]]
            if not rows or self._budget.left <= 0:
                return
            self.look(self.moves.many(self.best[rows[0]][1]))
            for place in rows:
                while self.best[place][0] == 0:
                    halves = self.moves.halves(self.best[place][1])
                    smaller = next((half for half in halves if self._watch.distances(half)[place] == 0), None)
                    if smaller is None:
                        break
                    self.best[place] = 0.0, smaller

    def towards(self, place: int) -> None:
        """Walk towards one outcome, from the input that is nearest to it."""
        if not self.best[place][1]:
            return
        of_sizes = self._watch.outcomes[place].of_sizes
        allowed = before = min(self._each, self._left)
        while allowed > 0 and self._goes_on(place):
            start = self.best[place][0]
            allowed -= 0 if of_sizes else self._by_values(place, allowed)
            if self.best[place][0] >= start:
                allowed -= self._along(place, self.moves.sizes(), allowed)
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

    def _along(self, place: int, moves: Iterable[Move], allowed: int) -> int:
        used = 0
        for move in moves:
            if used >= allowed or not self._goes_on(place):
                break
            used += self._line(place, self.best[place][1], move)
        return used

    def _line(self, place: int, feeds: Feeds, move: Move) -> int:
        """Along one variable: a probe on either side, then where a straight line says that the distance is zero.

        Returns:
            How many runs it took.
        """
        start = self._at(place, feeds, move, 0.0)
        count = 1
        flat = True
        for probe in (move.probe, -move.probe, *(_COARSE * p for p in (move.probe, -move.probe))):
            if abs(probe) > move.probe and (move.whole or not flat):
                break
            at, distance = 0.0, start
            near = self._at(place, feeds, move, probe)
            count += 1
            slope = (near - distance) / probe if np.isfinite(near) else 0.0
            flat = flat and slope == 0
            for _ in range(_STEPS if slope else 0):
                to, there = at, np.inf
                for by in _where_zero(at, distance, slope, whole=move.whole):
                    found = self._at(place, feeds, move, by)
                    count += 1
                    if found == 0:
                        return count
                    to, there = min((to, there), (by, found), key=lambda pair: pair[1])
                for _ in range(0 if move.whole else _HALVINGS):
                    if there < distance:
                        break
                    to = (at + to) / 2
                    there = self._at(place, feeds, move, to)
                    count += 1
                if not there < distance or to == at:
                    break
                slope = (there - distance) / (to - at)
                at, distance = to, there
                if slope == 0:
                    break
            if distance < start:
                break
        return count

    def _at(self, place: int, feeds: Feeds, move: Move, by: float) -> float:
        made = move.moved(feeds, by)
        return np.inf if made is None else float(self.look(made)[place])


def _where_zero(at: float, distance: float, slope: float, *, whole: bool) -> tuple[float, ...]:
    """Where a straight line says that a distance is zero: exactly there, and a little further."""
    step = -distance / slope
    if whole:  # an equality is there at the nearest whole number, a strict comparison one further
        steps = dict.fromkeys((np.ceil(abs(step) - _ALMOST), np.ceil(abs(step))))
        return tuple(at + float(np.sign(step) * by) for by in steps if by)
    return (at - max(0.0, distance - NOT_YET) / slope, at + step * _MORE)

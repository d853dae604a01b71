"""Integers at which two models may part: signs, large ones, those that a graph compares with, counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxtool.equality.trials.changed_inputs import Changed, is_kind, is_mask
from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.model.spec import TensorSpec
from onnxtool.report.trial_kind import TrialKind
from onnxtool.runtime.feeds import Feeds

_DOUBLES = 1 << 53  # beyond it doubles skip integers, which identifiers may well be
_SIGNED = (
    ("integers from -100 to 100", -100, 101),
    ("integers up to 100,000", 0, 100_000),
    ("integers above 2^24", 1 << 24, 1 << 26),
    ("integers above 2^31", 1 << 31, 1 << 40),
    ("integers above 2^53", _DOUBLES, 1 << 62),
)
_MOST_COUNT = 4096  # of something that an input says how much there is of


def integer_values(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """Integers over their meaning: rows of the tables that they index, counts, else signed and large ones."""
    own = [s for s in specs if is_kind(s, "iu") and s.name not in facts.structural and not is_mask(s)]
    free = [s for s in own if s.name not in facts.domains]
    if free:
        for label, low, high in (("all integers of the type", -(1 << 15), 1 << 15), *_SIGNED):
            if not any(np.iinfo(s.dtype).max > low for s in free):
                continue
            made = {s.name: _whole(s, np.shape(feeds[s.name]), low, high, generator) for s in free}
            yield label, TrialKind.VALUES if low < _DOUBLES else TrialKind.EXTREME_VALUES, {**feeds, **made}
        for number in (0, 1, -1, 2, 7):
            made = {s.name: np.full(np.shape(feeds[s.name]), number).astype(s.dtype) for s in free}
            yield f"integers of {number}", TrialKind.VALUES, {**feeds, **made}
        for value in facts.integers[:16]:
            for number in (value, value + 1, value - 1):
                made = {s.name: np.full(np.shape(feeds[s.name]), fitting(s, number), s.dtype) for s in free}
                yield f"integers of {number}", TrialKind.VALUES, {**feeds, **made}
    limited = [s for s in own if s.name in facts.domains]
    for number in dict.fromkeys([*facts.integers[:16], 0, 1] if limited else ()):
        fits = [s for s in limited if facts.domains[s.name].low <= number < facts.domains[s.name].high]
        if fits:
            made = {s.name: np.full(np.shape(feeds[s.name]), number).astype(s.dtype) for s in fits}
            yield f"indices of {number}", TrialKind.VALUES, {**feeds, **made}


def counts(specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints) -> Iterator[Changed]:
    """Numbers that say how much of something there is: how often a loop runs, how many elements are taken."""
    own = [s for s in specs if s.name in facts.structural and is_kind(s, "iu") and np.size(feeds[s.name]) == 1]
    beside = [n + d for n in (*facts.integers[:8], *facts.sizes[:8]) for d in (1, 0)]
    numbers = dict.fromkeys([0, 1, 2, *beside, 5, 17, 40, 100, 600])
    for number in numbers if own else ():
        if 0 <= number <= _MOST_COUNT:
            made = {s.name: np.full(np.shape(feeds[s.name]), fitting(s, number), s.dtype) for s in own}
            yield f"{own[0].name} of {number}", TrialKind.VALUES, {**feeds, **made}


def fitting(spec: TensorSpec, number: int) -> int:
    """The number, or the nearest that the type holds."""
    assert isinstance(spec.dtype, np.dtype)
    info = np.iinfo(spec.dtype)
    return max(int(info.min), min(int(info.max), number))


def _whole(spec: TensorSpec, shape: tuple[int, ...], low: int, high: int, generator: np.random.Generator) -> np.ndarray:
    assert isinstance(spec.dtype, np.dtype)
    info = np.iinfo(spec.dtype)
    high = min(high, int(info.max) + 1)
    return generator.integers(min(max(low, info.min), high - 1), high, shape).astype(spec.dtype)

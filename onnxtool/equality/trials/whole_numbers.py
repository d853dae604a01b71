"""Integers at which two models may part: signs, large ones, those that a graph compares with, counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.trial import Changed, is_kind, is_mask
from onnxtool.model.spec import TensorSpec
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds

_DOUBLES = 1 << 53  # beyond it doubles skip integers, which identifiers may well be
_SIGNED = (
    ("integers from -100 to 100", -100, 101),
    ("integers up to 100,000", 0, 100_000),
    ("integers above 2^24", 1 << 24, 1 << 26),
    ("integers above 2^30", 1 << 30, 1 << 31),  # a time in seconds since 1970 is one; sums leave the type
    ("integers above 2^31", 1 << 31, 1 << 40),
    ("integers above 2^53", _DOUBLES, 1 << 62),
    ("integers of 32 bits", -(1 << 31), 1 << 31),  # differences leave the type
)
_PARTS = 8  # runs that the numbers which a graph names are spread over
_MOST_SIZES = 16  # of a shape that an input gives
_MOST_COUNT = 10_000  # of something that an input says how much there is of


def integer_values(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """Integers over their meaning: rows of the tables that they index, counts, else signed and large ones."""
    own = [s for s in specs if is_kind(s, "iu") and s.name not in facts.structural and not is_mask(s)]
    free = [s for s in own if s.name not in facts.domains]
    if free:
        largest = max(np.iinfo(s.dtype).max for s in free)
        held = [signed for signed in _SIGNED if largest > max(signed[1], -2 - signed[1])]
        for label, low, high in (("all integers of the type", -(1 << 15), 1 << 15), *held):
            made = {s.name: _whole(s, np.shape(feeds[s.name]), low, high, generator) for s in free}
            yield label, TrialKind.VALUES if low < _DOUBLES else TrialKind.EXTREME_VALUES, {**feeds, **made}
        for number in (0, 1, -1, 2, 7):
            made = {s.name: np.full(np.shape(feeds[s.name]), number).astype(s.dtype) for s in free}
            yield f"integers of {number}", TrialKind.VALUES, {**feeds, **made}
        for label, number in (("least", -1 << 63), ("largest", 1 << 63)):
            kind = TrialKind.VALUES if all(np.dtype(s.dtype).itemsize < 8 for s in free) else TrialKind.EXTREME_VALUES
            made = {s.name: np.full(np.shape(feeds[s.name]), fitting(s, number), s.dtype) for s in free}
            yield f"the {label} integer of the type", kind, {**feeds, **made}
        for value in facts.integers[:16]:
            for number in (value, value + 1, value - 1):
                made = {s.name: np.full(np.shape(feeds[s.name]), fitting(s, number), s.dtype) for s in free}
                yield f"integers of {number}", TrialKind.VALUES, {**feeds, **made}
    limited = [s for s in own if s.name in facts.domains]
    for number in dict.fromkeys([*facts.integers[:16], 0, 1, -1] if limited else ()):  # from the end: -1
        fits = [s for s in limited if (facts.domains[s.name].low or -1) <= number < facts.domains[s.name].high]
        if fits:
            made = {s.name: np.full(np.shape(feeds[s.name]), number).astype(s.dtype) for s in fits}
            yield f"indices of {number}", TrialKind.VALUES, {**feeds, **made}
    # A model may take what lies outside of its table: OneHot gives no mark for it, and indices count from the end.
    for spec in limited:
        rows = int(facts.domains[spec.name].high)
        for label, low in (("beyond the table", rows), ("below zero", -rows)) if rows > 1 else ():
            drawn = generator.integers(low, low + min(rows, 5), np.shape(feeds[spec.name])).astype(spec.dtype)
            yield f"{spec.name}: indices {label}", TrialKind.VALUES, {**feeds, spec.name: drawn}


def in_order(specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints) -> Iterator[Changed]:
    """Integers in order along the last dim, and the numbers that the graph names one after the other."""
    own = [s for s in specs if is_kind(s, "iu") and s.name not in facts.structural and not is_mask(s)]
    own = [s for s in own if np.ndim(feeds[s.name]) and np.size(feeds[s.name])]
    rows: list[tuple[str, Sequence[int]]] = [("integers in ascending order", range(1 << 16))]
    if len(facts.integers) > 1:
        rows.append(("the integers of the graph in a row", facts.integers[:16]))
    for label, numbers in rows:
        made = {}
        for spec in own:
            limit = facts.domains.get(spec.name)
            fits = [n for n in numbers if limit is None or limit.low <= n < limit.high]
            array = np.array(feeds[spec.name])
            part = [n for n in fits[: array.shape[-1]] if fitting(spec, n) == n]
            array[..., : len(part)] = part
            made[spec.name] = array
        if made:
            yield label, TrialKind.VALUES, {**feeds, **made}
            turned = {name: np.ascontiguousarray(array[..., ::-1]) for name, array in made.items()}
            yield f"{label}, turned round", TrialKind.VALUES, {**feeds, **turned}


def named_numbers(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """All numbers that the graphs name, spread over the elements of a few runs; then among usual ones."""
    own = [s for s in specs if is_kind(s, "fiu") and not is_mask(s) and np.size(feeds[s.name])]
    own = [s for s in own if s.name not in facts.structural and s.name not in facts.domains]
    if not own or not (facts.integers or facts.values):
        return
    numbers = generator.permutation(np.array([*facts.integers, *facts.values], np.float64))
    size = max(np.size(feeds[s.name]) for s in own)
    kind = TrialKind.THRESHOLDS if any(is_kind(s, "f") for s in own) else TrialKind.VALUES
    for turn in range(min(_PARTS, -(-len(numbers) // size))):
        made = {}
        for spec in own:
            part = np.resize(np.roll(numbers, -turn * size), np.shape(feeds[spec.name]))
            fits = part if is_kind(spec, "f") else np.array([fitting(spec, int(n)) for n in part.flat])
            made[spec.name] = np.reshape(fits, part.shape).astype(spec.dtype)
        label = f"numbers that the graph names{f', part {turn + 1}' if turn else ''}"
        yield label, kind, {**feeds, **made}
        mixed = {n: np.where(generator.random(np.shape(a)) < 0.3, a, feeds[n]) for n, a in made.items()}
        yield f"{label}, among others", kind, {**feeds, **mixed}


def counts(specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints) -> Iterator[Changed]:
    """Numbers that say how much of something there is: how often a loop runs, how many elements are taken."""
    own = [s for s in specs if s.name in facts.structural and is_kind(s, "iu") and np.size(feeds[s.name]) == 1]
    named = [*facts.integers[:8], *facts.sizes[:8]]
    beside = [n + d for n in named for d in (1, 0)]
    # A sum of one step more than a limit is within the tolerance of it: one of twice as many is not.
    numbers = dict.fromkeys([0, 1, 2, *beside, 5, 17, 40, 100, 600, *(2 * n for n in named)])
    for number in numbers if own else ():
        if 0 <= number <= _MOST_COUNT:
            made = {s.name: np.full(np.shape(feeds[s.name]), fitting(s, number), s.dtype) for s in own}
            yield f"{own[0].name} of {number}", TrialKind.VALUES, {**feeds, **made}
    several = (s for s in specs if s.name in facts.structural and 1 < np.size(feeds[s.name]) <= _MOST_SIZES)
    for spec in several:
        for label, array in _other_sizes(np.asarray(feeds[spec.name])):
            yield f"{spec.name}: {label}", TrialKind.VALUES, {**feeds, spec.name: array}


def _other_sizes(usual: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Sizes in another order, of one element more or less, and small ones: a model may take one for another."""
    flat = usual.reshape(-1)
    made = [("turned round", flat[::-1]), ("rolled", np.roll(flat, 1))]
    made += [("in ascending order", np.arange(1, flat.size + 1)), ("in descending order", np.arange(flat.size, 0, -1))]
    for place in range(min(flat.size, _PARTS)):
        for step in (1, -1):
            made.append((f"element {place} {step:+}", flat + step * (np.arange(flat.size) == place)))
    for label, numbers in made:
        if (numbers != flat).any():
            yield label, np.ascontiguousarray(numbers.astype(usual.dtype).reshape(usual.shape))


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

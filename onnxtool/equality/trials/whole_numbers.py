"""Integers at which two models may part: signs, large ones, those that a graph compares with, all rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from onnxtool.equality.trials.changed_inputs import Changed, cast, is_kind, is_mask
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
_PARTS = 8  # runs that the numbers which a graph lists are spread over
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
        for value in facts.sizes[:16]:
            made = {s.name: (value + generator.integers(-2, 3, np.shape(feeds[s.name]))).astype(s.dtype) for s in free}
            yield f"integers around {value}", TrialKind.VALUES, {**feeds, **made}
    limited = [s for s in own if s.name in facts.domains]
    for number in dict.fromkeys([*facts.integers[:16], 0, 1] if limited else ()):
        fits = [s for s in limited if facts.domains[s.name].low <= number < facts.domains[s.name].high]
        if fits:
            made = {s.name: np.full(np.shape(feeds[s.name]), number).astype(s.dtype) for s in fits}
            yield f"indices of {number}", TrialKind.VALUES, {**feeds, **made}
            mixed = {
                s.name: np.where(generator.random(np.shape(feeds[s.name])) < 0.3, made[s.name], feeds[s.name])
                for s in fits
            }
            yield f"some indices of {number}", TrialKind.VALUES, {**feeds, **mixed}
    for spec in own:
        rows = facts.tables.get(spec.name)
        if rows is not None:
            for label, low in (("beyond the table", rows), ("below zero", -rows)):
                drawn = generator.integers(low, low + max(1, min(rows, 5)), np.shape(feeds[spec.name]))
                yield f"{spec.name}: indices {label}", TrialKind.VALUES, {**feeds, spec.name: drawn.astype(spec.dtype)}


def known_numbers(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """Numbers that the graphs list, each at least once, as far as they fit into a few runs; then among others."""
    own = [s for s in specs if is_kind(s, "fiu") and not is_mask(s) and np.size(feeds[s.name])]
    own = [s for s in own if s.name not in facts.structural and s.name not in facts.domains]
    if not own or not facts.known:
        return
    known = generator.permutation(np.array(facts.known, np.float64))
    # Those that no rounding has changed stand where a model decides, and nothing excuses a difference there.
    exact = np.array([_is_short(number) for number in known])
    for kind, numbers in ((TrialKind.THRESHOLDS, known[exact]), (TrialKind.VALUES, known[~exact])):
        yield from _in_parts(own, feeds, numbers, kind, generator)


def _in_parts(
    own: Sequence[TensorSpec], feeds: Feeds, numbers: np.ndarray, kind: TrialKind, generator: np.random.Generator
) -> Iterator[Changed]:
    size = max(np.size(feeds[s.name]) for s in own)
    for turn in range(min(_PARTS, -(-len(numbers) // size))):
        made = {}
        for spec in own:
            part = np.resize(np.roll(numbers, -turn * size), np.shape(feeds[spec.name]))
            fits = part if is_kind(spec, "f") else np.array([fitting(spec, int(n)) for n in part.flat])
            made[spec.name] = np.reshape(fits, part.shape).astype(spec.dtype)
        label = f"numbers that the graph lists{f', part {turn + 1}' if turn else ''}"
        yield label, kind, {**feeds, **made}
        mixed = {n: np.where(generator.random(np.shape(a)) < 0.3, a, feeds[n]) for n, a in made.items()}
        yield f"{label}, among others", kind, {**feeds, **mixed}


def _is_short(number: float) -> bool:
    """Whether a number has few digits: any type holds it as it was meant."""
    return number.is_integer() or (number * 1024).is_integer()


def ordered(specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints) -> Iterator[Changed]:
    """Integers in order along the last dim, and the numbers that the graph compares with one after the other."""
    own = [s for s in specs if is_kind(s, "iu") and s.name not in facts.structural and not is_mask(s)]
    own = [s for s in own if np.ndim(feeds[s.name]) and np.size(feeds[s.name])]
    if not own:
        return
    for label, step in (("ascending", 1), ("descending", -1)):
        made = {s.name: np.sort(feeds[s.name], axis=-1)[..., ::step] for s in own}
        steps = {}
        for spec in own:
            length = np.shape(feeds[spec.name])[-1]
            limit = facts.domains.get(spec.name)
            low = int(limit.low) if limit is not None and limit.low > 0 else 0
            if limit is None or limit.high >= low + length:
                steps[spec.name] = np.broadcast_to(low + np.arange(length)[::step], np.shape(feeds[spec.name]))
        yield f"integers in {label} order", TrialKind.VALUES, {**feeds, **cast(own, {**made, **steps})}
    numbers = list(reversed(facts.integers[:16]))
    for found in (facts.integers[:16], numbers) if len(facts.integers) > 1 else ():
        made = {}
        for spec in own:
            limit = facts.domains.get(spec.name)
            fits = [n for n in found if limit is None or limit.low <= n < limit.high]
            fits = [n for n in fits if fitting(spec, n) == n][: np.shape(feeds[spec.name])[-1]]
            if fits:
                array = np.array(feeds[spec.name])
                array[..., : len(fits)] = fits
                made[spec.name] = array
        if made:
            yield "the integers of the graph in a row", TrialKind.VALUES, {**feeds, **made}


def counts(specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints) -> Iterator[Changed]:
    """Numbers that say how much of something there is: how often a loop runs, how many elements are taken."""
    own = [s for s in specs if s.name in facts.structural and is_kind(s, "iu") and np.size(feeds[s.name]) == 1]
    beside = [n + d for n in (*facts.integers[:8], *facts.sizes[:8]) for d in (1, 0)]
    numbers = dict.fromkeys([0, 1, 2, *beside, 5, 17, 40, 100, 600])
    for number in numbers if own else ():
        if 0 <= number <= _MOST_COUNT:
            made = {s.name: np.full(np.shape(feeds[s.name]), fitting(s, number), s.dtype) for s in own}
            yield f"{own[0].name} of {number}", TrialKind.VALUES, {**feeds, **made}


def table_rows(
    specs: Sequence[TensorSpec], feeds: Feeds, facts: GraphHints, generator: np.random.Generator
) -> Iterator[Changed]:
    """Indices that read every row of a table, as far as they fit; first and last, and those that differ, always."""
    own = [s for s in specs if s.name in facts.tables and is_kind(s, "iu")]
    if not own:
        return
    most = 1 + max(
        (max(facts.tables[s.name], len(facts.rows.get(s.name, ()))) - 1) // max(1, np.size(feeds[s.name])) for s in own
    )
    wanted = {s.name: np.array([*facts.rows.get(s.name, ()), 0, facts.tables[s.name] - 1], np.int64) for s in own}
    all_rows = {s.name: generator.permutation(facts.tables[s.name]) for s in own}
    for turn in range(min(most + 1, 64)):
        made = {}
        for spec in own:
            size = np.size(feeds[spec.name])
            queue = np.concatenate([wanted[spec.name], all_rows[spec.name]])
            part = queue[turn * size : (turn + 1) * size]
            filled = np.concatenate([part, generator.integers(0, facts.tables[spec.name], size - len(part))])
            made[spec.name] = filled.reshape(np.shape(feeds[spec.name])).astype(spec.dtype)
        first = f"{own[0].name}: rows " if len(own) == 1 else "rows "
        yield f"{first}{'first, last and others' if turn == 0 else 'of every table'}", TrialKind.ROWS, {**feeds, **made}


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

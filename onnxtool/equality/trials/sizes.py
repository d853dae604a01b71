"""Sizes of dynamic dims at which two models may part: one, long ones, both sides of what sizes are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds

# One, a long one, batches of several kinds; then powers of two, which block sizes are, with their neighbours.
_LENGTHS_FIRST = (1, 300, 65)
_LENGTHS_THEN = (520, 2, 129, 33, 257, 8, 31, 32, 64, 100, 128, 256, 3, 7, 17, 48, 63, 127, 255, 511, 512, 1030)
_BATCHES_FIRST = (9, 65, 1)
_BATCHES_THEN = (3, 17, 33, 64, 129, 8, 16, 300)
_EVERY = range(1, 81)  # sizes that are all tried where a program may do anything at any of them
_MOST_NUMBERS = 24  # constants of the graph that are taken for sizes
_MOST_DOUBLED = 4096  # twice as much is tried of no larger one


@dataclass(frozen=True)
class Sizes:
    """Numbers for dynamic dims.

    Attributes:
        label: what is particular about them.
        dims: by name.
        batch: for unnamed first dims.
        length: for other unnamed dims.
        empty: an input has no elements because of them.
    """

    label: str
    dims: Mapping[str, int]
    batch: int
    length: int
    empty: bool = False


@dataclass(frozen=True)
class DynamicDims:
    """The dynamic dims of inputs, in groups that have always had one size.

    Attributes:
        batches: groups of names that are some input's first.
        lengths: groups of other names.
        unnamed_batch, unnamed_length: there are dims without a name.
        usual: the sizes of one input on which the reference runs.
        batch, length: for its unnamed dims.
    """

    batches: tuple[tuple[str, ...], ...]
    lengths: tuple[tuple[str, ...], ...]
    unnamed_batch: bool
    unnamed_length: bool
    usual: Mapping[str, int]
    batch: int
    length: int

    @property
    def any(self) -> bool:
        """Whether anything is dynamic."""
        return bool(self.batches or self.lengths or self.unnamed_batch or self.unnamed_length)


def of_the_past(specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Dims of what earlier steps left behind, which at the first step is nothing: lengths of caches."""
    kept = [s for s in specs if "past" in s.name.lower() or "cache" in s.name.lower()]
    return tuple(dict.fromkeys(d for s in kept for d in (s.shape or ())[1:] if isinstance(d, str)))


def dynamic_dims(specs: Sequence[TensorSpec], runs: Sequence[Feeds]) -> DynamicDims:
    """Read the dynamic dims off the inputs and off runs that worked: dims of one size in all of them go together.

    Args:
        specs: the inputs.
        runs: at least one.
    """
    seen: dict[str, list[int]] = {}
    first: set[str] = set()
    unnamed: list[list[int]] = [[], []]
    for spec in specs:
        for axis, dim in enumerate(spec.shape or ()):
            sizes = [int(np.shape(run[spec.name])[axis]) for run in runs if np.ndim(run[spec.name]) > axis]
            if isinstance(dim, str):
                seen.setdefault(dim, sizes)
                if axis == 0:
                    first.add(dim)
            elif dim is None and sizes:
                unnamed[axis > 0].append(sizes[0])
    groups: dict[tuple[bool, tuple[int, ...]], list[str]] = {}
    for name, sizes in seen.items():
        alike = (name in first, tuple(sizes) if len(runs) > 1 else (len(groups),))
        groups.setdefault(alike, []).append(name)
    return DynamicDims(
        tuple(tuple(g) for (is_first, _), g in groups.items() if is_first),
        tuple(tuple(g) for (is_first, _), g in groups.items() if not is_first),
        bool(unnamed[0]),
        bool(unnamed[1]),
        {name: sizes[0] for name, sizes in seen.items() if sizes},
        unnamed[0][0] if unnamed[0] else 2,
        unnamed[1][0] if unnamed[1] else 16,
    )


def sizes_to_try(
    dims: DynamicDims, numbers: Sequence[int], *, rows_needed: bool = True, every: bool = False
) -> Iterator[Sizes]:
    """Sizes, the most telling first.

    Args:
        dims: what may change.
        numbers: what the graph or its source compares sizes with, likeliest first; both sides of each and twice as
            much are tried.
        rows_needed: batches are never empty.
        every: all small sizes are tried in the end.
    """
    named = numbers[:_MOST_NUMBERS]
    sides = list(dict.fromkeys(s for n in named for s in (n + 1, n, n - 1) if s >= 1))
    # Next to a limit a mean over it is off by one part of many: at twice as much by half.
    twice = tuple(2 * n for n in named if 1 < n <= _MOST_DOUBLED)
    has_lengths = bool(dims.lengths) or dims.unnamed_length
    has_batches = bool(dims.batches) or dims.unnamed_batch
    lengths = _merged(_LENGTHS_FIRST, sides, (*_LENGTHS_THEN, *twice)) if has_lengths else []
    batches = _merged(_BATCHES_FIRST, sides, (*_BATCHES_THEN, *twice)) if has_batches else []
    tried: set[tuple[tuple[str, int], ...]] = set()
    for turn in range(max(len(lengths), len(batches))):
        found: list[Sizes] = []
        if turn < len(lengths):
            found += [_lengths(dims, lengths[turn], apart=apart) for apart in (True, False)]
        if turn < len(batches):
            found.append(_batch(dims, batches[turn]))
        if turn == 1 and not rows_needed:
            found += _without_rows(dims)
        if turn == 0 and has_lengths and has_batches:
            ones = {name: 1 for groups in (dims.lengths, dims.batches) for group in groups for name in group}
            found.append(Sizes("batch 1 and length 1", {**dims.usual, **ones}, 1, 1))
        for sizes in found:
            key = (*sorted(sizes.dims.items()), ("", sizes.batch), ("", sizes.length))
            if key not in tried:
                tried.add(key)
                yield sizes
    yield from _alone(dims, sides)
    for size in _EVERY if every else ():
        if has_batches and size not in batches:
            yield _batch(dims, size)
        if has_lengths and size not in lengths:
            yield _lengths(dims, size, apart=False)


def _without_rows(dims: DynamicDims) -> list[Sizes]:
    """No row in any input, and in one at a time."""
    if not (dims.batches or dims.unnamed_batch):
        return []
    found = [replace(_batch(dims, 0), label="an empty batch", empty=True)]
    names = [name for group in dims.batches for name in group]
    for name in names if len(names) > 1 else ():
        found.append(Sizes(f"{name} of 0", {**dims.usual, name: 0}, dims.batch, dims.length, empty=True))
    return found


def _alone(dims: DynamicDims, sides: Sequence[int]) -> Iterator[Sizes]:
    """One group of dims at a time, the others staying as they are."""
    for size in _merged(_LENGTHS_FIRST, sides, (128, 2))[:40]:
        for group in dims.lengths if len(dims.lengths) > 1 else ():
            label = f"{group[0]} {size}"
            yield Sizes(label, {**dims.usual, **dict.fromkeys(group, size)}, dims.batch, dims.length)


def _merged(first: Sequence[int], numbers: Sequence[int], then: Sequence[int]) -> list[int]:
    """Usual sizes and the graph's own, in turns."""
    return list(dict.fromkeys([*first, *numbers, *then]))


def _lengths(dims: DynamicDims, size: int, *, apart: bool) -> Sizes:
    chosen = dict(dims.usual)
    for place, group in enumerate(dims.lengths):
        chosen |= dict.fromkeys(group, size + place if apart else size)
    return Sizes(f"length {size}", chosen, dims.batch, size)


def _batch(dims: DynamicDims, size: int) -> Sizes:
    chosen = dict(dims.usual)
    for group in dims.batches:
        chosen |= dict.fromkeys(group, size)
    return Sizes(f"batch {size}", chosen, size, dims.length)

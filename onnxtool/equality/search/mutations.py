"""Changes to inputs that a walk towards an outcome is made of: parts moved by a number or set to one, other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.sizes import DynamicDims, of_the_past
from onnxtool.equality.trials.trial import count_elements, is_mask
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds

Part = tuple[np.ndarray | slice | int, ...]
_SINGLE = 48  # elements of an input that are moved one by one
_SET = 12  # values that elements are set to
_COUNTED = 1e4  # values of inputs that a loop may count up to
_ELEMENTS = 1 << 18  # of many random numbers at once
_SIZED = 1 << 20  # of inputs at sizes that are sought


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


class Moves:
    """All that can be changed about the inputs of a model."""

    def __init__(
        self, specs: Sequence[TensorSpec], dims: DynamicDims, facts: GraphHints, generator: np.random.Generator
    ) -> None:
        self._specs, self._dims, self._facts, self._generator = specs, dims, facts, generator
        self._past = of_the_past(specs)

    def shifts(self, feeds: Feeds) -> Iterator[Move]:
        """Parts of inputs that move together: all of one, a row, a column, an element."""
        for spec in self._specs:
            array = np.asarray(feeds[spec.name])
            if array.dtype.kind not in "fiubV" or not array.size:
                continue
            limits = self._limits(spec, array)
            for part in self._parts(array):
                yield Move(_shift(spec.name, part, limits), self._probe(array, part), array.dtype.kind in "iub")

    def sets(self, feeds: Feeds) -> Iterator[Feeds]:
        """Single elements, rows and whole inputs set to values that mean something, and to one another's."""
        for spec in self._specs:
            array = np.asarray(feeds[spec.name])
            values = self._telling(spec, array)
            if not array.size or not values:
                continue
            for part in [*self._parts(array)][: 2 * _SINGLE]:
                for value in values:
                    made = np.array(array)
                    made[part] = value
                    yield {**feeds, spec.name: made}

    def sizes(self) -> Iterator[Move]:
        """Groups of dims that grow and shrink together; the values that are there are repeated."""
        everything = [*self._dims.lengths, *self._dims.batches]
        # Dims that have always had one size may have others all the same.
        single = [(name,) for group in everything if len(group) > 1 for name in group]
        for group in (*everything, *single):
            yield Move(self._resized(group), 1.0, True)
        if len(everything) > 1:
            yield Move(self._resized(tuple(n for g in everything for n in g)), 1.0, True)

    def many(self, feeds: Feeds) -> Feeds:
        """Random numbers of all magnitudes, as many as a search may run a model on."""
        groups = [*self._dims.batches, *self._dims.lengths]
        sizes = {name: self._size(feeds, name) or 1 for name in groups[0]} if groups else {}
        grown = max(1, _ELEMENTS // max(1, int(count_elements(feeds))))
        wider = self._resized(groups[0])(feeds, (grown - 1) * max(sizes.values())) if sizes else None
        made = {}
        for spec in self._specs:
            array = np.asarray((wider or feeds)[spec.name])
            known = array.dtype.kind not in "fiu" or is_mask(spec) or spec.name in self._facts.structural
            made[spec.name] = array if known else self._drawn(array, self._limits(spec, array))
        return made

    def _drawn(self, array: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
        most = 53 if array.dtype.kind in "iu" else 20
        sizes = 2.0 ** self._generator.uniform(0, most * self._generator.random(), array.shape)
        low, high = limits
        drawn = sizes * self._generator.choice([-1.0, 1.0] if low < -1 else [1.0], array.shape)
        inside = (drawn >= low) & (drawn <= high)
        return np.where(
            inside, drawn, self._generator.uniform(max(low, -most), min(high, 2.0**most), array.shape)
        ).astype(array.dtype)

    def halves(self, feeds: Feeds) -> Iterator[Feeds]:
        """Either half along each group of dims."""
        for group in (*self._dims.batches, *self._dims.lengths):
            size = self._size(feeds, group[0]) or 1
            for part in (slice(None, size // 2), slice(size // 2, None)) if size > 1 else ():
                yield {s.name: _part(np.asarray(feeds[s.name]), s, group, part) for s in self._specs}

    def has_lengths(self, feeds: Feeds) -> bool:
        """Whether every dynamic length is longer than one."""
        return all((self._size(feeds, group[0]) or 2) > 1 for group in self._dims.lengths)

    def _size(self, feeds: Feeds, name: str) -> int | None:
        for spec in self._specs:
            for axis, dim in enumerate(spec.shape or ()):
                if dim == name:
                    return int(np.shape(feeds[spec.name])[axis])
        return None

    def _parts(self, array: np.ndarray) -> Iterator[Part]:
        yield (slice(None),) * array.ndim
        if array.ndim > 1:
            for row in range(min(array.shape[0], 4)):
                yield (row,)
            for column in range(array.shape[-1]) if array.shape[-1] <= 16 else ():
                yield (*(slice(None),) * (array.ndim - 1), column)
        if array.size > 1:
            for place in self._generator.permutation(array.size)[:_SINGLE]:
                yield tuple(np.unravel_index(place, array.shape))

    def _telling(self, spec: TensorSpec, array: np.ndarray) -> list[object]:
        """Values that elements of an input are set to."""
        if array.dtype.kind in "OUS":
            return list(self._facts.texts[:_SET])
        if array.dtype.kind == "b" or is_mask(spec):
            return [0, 1]
        if array.dtype.kind in "iu":
            low, high = self._limits(spec, array)
            numbers = dict.fromkeys([*self._facts.integers[: _SET - 2], 0, 1])
            return [n for n in numbers if low <= n <= high]
        if array.dtype.kind != "f":
            return []
        domain = self._facts.domains.get(spec.name)
        missing = [np.nan] if self._facts.missing else []
        return [v for v in (*missing, 0.0, *self._facts.values[: _SET - 2]) if domain is None or not v <= domain.low]

    def _probe(self, array: np.ndarray, part: Part) -> float:
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
        most = {2: 6e4, 8: 1e290}.get(array.dtype.itemsize, 1e30) if not self._facts.endless else _COUNTED
        if domain is not None and domain.low > 0:
            return domain.low * 1e-3, most
        return -most, most

    def _resized(self, group: tuple[str, ...]) -> Callable[[Feeds, float], Feeds | None]:
        def made(feeds: Feeds, by: float) -> Feeds | None:
            sizes: dict[str, int] = {}
            for spec in self._specs:
                for axis, dim in enumerate(spec.shape or ()):
                    if isinstance(dim, str):
                        sizes[dim] = int(np.shape(feeds[spec.name])[axis]) + (int(by) if dim in group else 0)
            if any(size < (name not in self._past) for name, size in sizes.items()) or not by:
                return feeds if not by else None
            total = 0.0
            for spec in self._specs:
                dims = [sizes.get(d, 1) if isinstance(d, str) else d or 1 for d in spec.shape or ()]
                total += float(np.prod(np.array(dims, dtype=np.float64)))
            if total > _SIZED:
                return None
            return {s.name: _repeated(np.asarray(feeds[s.name]), s, sizes) for s in self._specs}

        return made


def _repeated(array: np.ndarray, spec: TensorSpec, sizes: dict[str, int]) -> np.ndarray:
    """An array of another size with the values of one, over and over."""
    for axis, dim in enumerate(spec.shape or ()):
        size = sizes.get(dim) if isinstance(dim, str) else None
        if size is not None and size != array.shape[axis]:
            array = np.take(array, np.arange(size) % array.shape[axis], axis)
    return array


def _part(array: np.ndarray, spec: TensorSpec, group: tuple[str, ...], part: slice) -> np.ndarray:
    """Of an array what a part of some dims holds."""
    return np.asarray(array[tuple(part if dim in group else slice(None) for dim in spec.shape or ())])


def _shift(name: str, part: Part, limits: tuple[float, float]) -> Callable[[Feeds, float], Feeds | None]:
    def moved(feeds: Feeds, by: float) -> Feeds | None:
        array = np.array(feeds[name])
        with np.errstate(all="ignore"):
            wide = np.clip(array[part].astype(np.float64) + by, *limits)
            array[part] = wide.astype(array.dtype) if array.dtype.kind != "b" else wide > 0
        return {**feeds, name: array}

    return moved


def is_varied(feeds: Feeds) -> bool:
    """Whether the numbers of every input differ among themselves, and few of them are zero or missing."""
    for array in map(np.asarray, feeds.values()):
        if array.dtype.kind not in "fiuV" or array.size < 2:
            continue
        wide = array.astype(np.float64).reshape(-1)
        with np.errstate(invalid="ignore"):
            if 2 * np.count_nonzero(np.isfinite(wide) & (wide != 0)) < wide.size or bool((wide == wide[0]).all()):
                return False
    return True

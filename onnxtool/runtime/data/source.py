"""Samples to feed a model: one at a time, in memory that does not grow with their number.

With those of a model whose outputs are fed back into it.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxtool.errors import InputError, OnnxToolError, UsageError
from onnxtool.model.spec import TensorSpec
from onnxtool.runtime.feeds import Feeds, adapt, check_feeds


@dataclass(frozen=True)
class DataSource:
    """Samples to feed a model, read afresh on every pass.

    Attributes:
        label: where they come from, for messages.
        count: how many there are; None when only a pass can tell.
        open: starts a pass over raw samples: named arrays, or a lone array under "".
        specs: what the model takes; every sample is held against it.
        notes: what is done with the samples that the user may not expect.
        joins: samples may be joined along their first dim; the steps of a model with states may not.
        number_of: the number of the n-th sample where they come from, of which these may be a part.
    """

    label: str
    count: int | None
    open: Callable[[], Iterator[Mapping[str, np.ndarray]]]
    specs: tuple[TensorSpec, ...]
    notes: tuple[str, ...] = ()
    joins: bool = True
    number_of: Callable[[int], int] = int

    def samples(self, *, finite: bool = True) -> Iterator[Feeds]:
        """Feeds of one sample each, checked.

        Args:
            finite: refuse NaN and infinity.

        Raises:
            InputError: wrong names, shapes or dtypes, or NaN or infinity; names the sample.
        """
        for index, raw in enumerate(self.open()):
            try:
                feeds = adapt(self.specs, raw)
                check_feeds(self.specs, feeds)
                if finite:
                    _check_finite(feeds)
            except OnnxToolError as error:
                raise type(error)(f"{self.place(index)}: {error}") from error
            yield feeds

    def place(self, index: int) -> str:
        """Where the sample is found, for a message: "calib.npz, sample 5"."""
        return f"{self.label}, sample {self.number_of(index)}"

    def subset(self, keep: Callable[[int], bool]) -> DataSource:
        """The samples whose index `keep` accepts."""
        count = None if self.count is None else sum(1 for i in range(self.count) if keep(i))

        def chosen() -> Iterator[Mapping[str, np.ndarray]]:
            return (raw for i, raw in enumerate(self.open()) if keep(i))

        def number_of(index: int) -> int:
            return self.number_of(next(itertools.islice(filter(keep, itertools.count()), index, None)))

        return replace(self, count=count, open=chosen, number_of=number_of)

    def followed_by(self, other: DataSource) -> DataSource:
        """These samples and then those of another source for the same model."""
        count = None if self.count is None or other.count is None else self.count + other.count

        def number_of(index: int) -> int:
            own = self.count is None or index < self.count
            return self.number_of(index) if own else other.number_of(index - (self.count or 0))

        return replace(self, count=count, open=lambda: itertools.chain(self.open(), other.open()), number_of=number_of)

    def limited(self, number: int | None) -> DataSource:
        """At most `number` samples: spread evenly when the count is known (data is often sorted), else the first."""
        if number is None or (self.count is not None and self.count <= number):
            return self
        if self.count is None:
            source = self.open

            def first() -> Iterator[Mapping[str, np.ndarray]]:
                return (raw for _, raw in zip(range(number), source(), strict=False))

            return replace(self, open=first)
        chosen = {int(i) for i in np.linspace(0, self.count - 1, number)}
        return self.subset(chosen.__contains__)

    def until(self, moment: float, least: int, cut: Callable[[int], None] | None = None) -> DataSource:
        """Samples as long as the clock (`time.perf_counter`) is before `moment`, and `least` of them in any case.

        `cut` is told the number of samples when time ends a pass early.
        """

        def timely() -> Iterator[Mapping[str, np.ndarray]]:
            for index, raw in enumerate(self.open()):
                if index >= least and time.perf_counter() > moment:
                    if cut is not None:
                        cut(index)
                    return
                yield raw

        return replace(self, open=timely)

    def locate(self, name: str, value: int) -> str:
        """Which sample holds a value in one input, for a message: "calib.npz, sample 3"; else where they come from."""
        for index, feeds in enumerate(self.samples(finite=False)):
            if name in feeds and bool((feeds[name] == value).any()):
                return self.place(index)
        return self.label

    def first(self) -> Feeds:
        """The first sample.

        Raises:
            InputError: there is none.
        """
        for feeds in self.samples():
            return feeds
        raise InputError(f"{self.label}: there are no samples in it.")

    def batches(self, size: int, *, finite: bool = True) -> Iterator[Feeds]:
        """Samples joined along their first dim, up to `size`, where the model takes any batch and shapes agree.

        A sample whose first dim is not 1 stays alone: that may be time, which does not go on in the next one.
        """
        dynamic = self.joins and all(s.shape and not isinstance(s.shape[0], int) for s in self.specs)
        pending: list[Feeds] = []
        for feeds in self.samples(finite=finite):
            alone = not dynamic or any(a.shape[:1] != (1,) for a in feeds.values())
            if pending and (len(pending) >= size or alone or _shapes(feeds) != _shapes(pending[0])):
                yield _join(pending)
                pending = []
            pending.append(feeds)
        if pending:
            yield _join(pending)


def _check_finite(feeds: Feeds) -> None:
    for name, array in feeds.items():
        if isinstance(array, np.ndarray) and array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = "NaN" if np.isnan(array).any() else "infinity"
            raise InputError(f"{name!r} holds {bad}; ranges cannot be measured on it. Clean or drop this sample.")


def _shapes(feeds: Feeds) -> list[tuple[int, ...]]:
    return [a.shape for a in feeds.values()]


def _join(pending: list[Feeds]) -> Feeds:
    if len(pending) == 1:
        return pending[0]
    return {name: np.concatenate([f[name] for f in pending]) for name in pending[0]}


# What people add to a state's name to call its next value.
_MARKS = re.compile(r"(_?(next|new|out|output|n|in|input|prev|0|1|t)_?$)|(^(next|new|out|prev|in)_)", re.IGNORECASE)


def state_pairs(texts: Sequence[str], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> dict[str, str]:
    """Input -> the output whose value is its next one.

    Args:
        texts: "OUTPUT:INPUT" for each state; none for pairs whose names tell ("h" and "hn", "state" and "new_state")
            and whose shapes agree.
        inputs, outputs: of the model.

    Raises:
        UsageError: another form, no such tensor, or no pair at all.
    """
    names = {s.name for s in inputs}, {s.name for s in outputs}
    found = {}
    for text in texts:
        output, colon, name = text.rpartition(":")
        if not colon or output not in names[1] or name not in names[0]:
            raise UsageError(
                f"--state {text}: write OUTPUT:INPUT; the model takes {', '.join(sorted(names[0]))} and gives "
                f"{', '.join(sorted(names[1]))}."
            )
        found[name] = output
    if not texts:
        roots = {_root(s.name): s for s in outputs}
        for spec in inputs:
            match = roots.get(_root(spec.name))
            if match is not None and match.dtype == spec.dtype and _rank(match) == _rank(spec):
                found[spec.name] = match.name
    if not found:
        raise UsageError("--steps: no output looks like the next value of an input; name them: --state OUTPUT:INPUT.")
    return found


def with_states(
    source: DataSource,
    specs: tuple[TensorSpec, ...],
    pairs: Mapping[str, str],
    steps: int,
    run: Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]],
) -> DataSource:
    """Fill in the states of consecutive samples: zeros at first, then what the model gave, for so many steps.

    Args:
        source: samples of the other inputs; states that a sample brings are those of a first step.
        specs: all inputs of the model.
        pairs: of `state_pairs`.
        steps: after so many samples the states start anew.
        run: the float model.
    """
    states = {s.name: s for s in specs if s.name in pairs}

    def walk() -> Iterator[Mapping[str, np.ndarray]]:
        last: Mapping[str, Any] = {}
        for index, raw in enumerate(source.open()):
            first = index % steps == 0
            given = dict(raw) if first else {n: a for n, a in raw.items() if n not in states}
            if "" in given:  # a lone array, of the one input that is no state
                given[next(s.name for s in specs if s.name not in states)] = given.pop("")
            own = {n: _start(s) if first else np.asarray(last[pairs[n]]) for n, s in states.items()}
            feeds = adapt(specs, {**own, **given})
            yield feeds
            if (index + 1) % steps:
                last = run(feeds)

    return replace(source, open=walk, specs=specs, joins=False)


def _start(spec: TensorSpec) -> np.ndarray:
    dtype = spec.dtype if isinstance(spec.dtype, np.dtype) else np.dtype("float32")
    return np.zeros([d if isinstance(d, int) else 1 for d in spec.shape or ()], dtype)


def _root(name: str) -> str:
    shorter = _MARKS.sub("", name)
    return (shorter or name).lower()


def _rank(spec: TensorSpec) -> int | None:
    return None if spec.shape is None else len(spec.shape)


@dataclass(frozen=True)
class DataPath(os.PathLike[str]):
    """A path, and what stands before the decimals in the texts that it leads to."""

    path: str
    decimal: str

    def __fspath__(self) -> str:
        """The path."""
        return self.path

    def __str__(self) -> str:
        return self.path

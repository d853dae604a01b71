"""Run a reference on more inputs than the usual ones, as many as the time allows, the most telling first."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from onnxtool.equality.trials.graph_hints import GraphHints
from onnxtool.equality.trials.sizes import DynamicDims, Sizes, dynamic_dims, of_the_past, sizes_to_try
from onnxtool.equality.trials.trial import Budget, Trial, count_elements, is_kind
from onnxtool.equality.trials.values import value_changes
from onnxtool.errors import InputError, OnnxToolError, UnsupportedError
from onnxtool.model.spec import TensorSpec, is_placeholder
from onnxtool.report.proof import TrialKind
from onnxtool.runtime.feeds import Feeds, feeds_bytes, flatten, random_feeds
from onnxtool.runtime.runner import Runner
from onnxtool.runtime.worker.isolation import crashed_before, guarded, memory_bounded

_MOST_TRIALS = {"quick": 40, "normal": 160, "thorough": 2000}
_LEAST_TRIALS, _SLOW = 12, 0.5  # so many are tried whatever the time, unless one takes longer than that (seconds)
_MOST_BYTES = 1 << 27  # of inputs and outputs that are kept
_FEW = 128  # elements of inputs whose batch is made larger for other values
_ROOMY = 1 << 20  # elements of an input that gets other values
_GROWTH, _ELEMENTS = 8, 1 << 18  # inputs may grow to so many times the usual ones, or to so many elements
_USUAL = 1e4  # larger inputs overflow in one of two models sooner than in the other
_HUGE, _HUGE_DOUBLE = 1e30, 1e290  # beyond it, floats may overflow on one side only


@dataclass
class Observed:
    """What a reference gave on further inputs.

    Attributes:
        trials: inputs with its outputs.
        refused: what it does not take, in words.
        unusable: what gave results that prove nothing: not finite, or nearly so.
        broken: of these, usual numbers for which the reference gives NaN or infinity.
        untried: there was no time for more.
        attempted: inputs that the reference refused, or gave nothing for that proves anything.
    """

    trials: list[Trial] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    broken: list[Trial] = field(default_factory=list)
    untried: bool = False
    attempted: list[Feeds] = field(default_factory=list)


def observe(
    runner: Runner,
    specs: Sequence[TensorSpec],
    runs: Sequence[Feeds],
    facts: GraphHints,
    budget: Budget,
    *,
    seed: int = 0,
    sizes: bool = True,
    values: bool = True,
    only: Collection[TrialKind] | None = None,
    prepare: Callable[[Feeds], Feeds] = dict,
) -> Observed:
    """Run the reference on inputs of other sizes and values than it was run on.

    What it refuses is left out, and so is what it gives no finite numbers for: neither is a test of another model.

    Args:
        runner: the reference.
        specs: its inputs.
        runs: inputs on which it runs; others are made in their likeness.
        facts: what its graph, or another's, tells of the inputs.
        budget: how long this may take.
        seed: of random numbers.
        sizes: try other sizes of dynamic dims.
        values: try other values.
        only: the kinds to try; None for all.
        prepare: what becomes of an input before it is run.
    """
    observed = Observed()
    dims = dynamic_dims(specs, runs)
    pace = _Pace(runner, runs[0])
    kept = 0
    for label, kind, made in _candidates(specs, runs, dims, facts, seed, pace, budget, sizes=sizes, values=values):
        spent = budget.left <= 0 and (len(observed.trials) >= _LEAST_TRIALS or pace.slowest > _SLOW)
        if len(observed.trials) >= _MOST_TRIALS[budget.effort] * (1 + facts.programmed) or spent or kept > _MOST_BYTES:
            observed.untried = True
            break
        if only is not None and kind not in only:
            continue
        try:
            feeds = prepare(made)
            outputs = pace.run(feeds)
        except UnsupportedError:
            raise
        except OnnxToolError:
            observed.refused.append(label)
            observed.attempted.append(made)
            continue
        usable = telling(outputs, kind, doubles=takes_doubles(specs), missing=facts.missing)
        held = kind if usable else _beyond_judging(kind, feeds, outputs, facts)
        if held is not None:
            kept += feeds_bytes(feeds) + feeds_bytes({k: v for k, v in outputs.items() if isinstance(v, np.ndarray)})
            (observed.trials if usable else observed.broken).append(Trial(label, held, feeds, outputs))
        if not usable:
            observed.unusable.append(label)
            observed.attempted.append(made)
    return observed


class _Pace:
    """Runs the reference and knows what an input of another size may cost."""

    def __init__(self, runner: Runner, usual: Feeds) -> None:
        self._runner = runner
        self._seconds: list[tuple[float, float]] = []  # elements, seconds
        self.elements = count_elements(usual)
        self.slowest = 0.0

    def run(self, feeds: Feeds) -> dict[str, Any]:
        start = time.perf_counter()
        size = feeds_bytes(feeds)
        # A source in numpy warns of what infinities become; that is no news here. What a size takes in memory cannot be
        # told before (attention between all pixels): too much is refused, as a size that the source does not take.
        with guarded("running the model", inputs=size), memory_bounded(size), np.errstate(all="ignore"):
            outputs = self._runner.run(feeds)
        took = time.perf_counter() - start
        self._seconds.append((count_elements(feeds), took))
        self.slowest = max(self.slowest, took)
        return {k: np.array(v) if isinstance(v, np.ndarray) else v for k, v in outputs.items()}

    def cost(self, feeds: Feeds) -> float:
        """Seconds that a run on these inputs may take, by the largest one so far."""
        if not self._seconds:
            return 0.0
        elements, seconds = max(self._seconds)
        grown = count_elements(feeds) / max(1.0, elements)
        return float(seconds * max(1.0, grown) ** 1.5)


def _candidates(
    specs: Sequence[TensorSpec],
    runs: Sequence[Feeds],
    dims: DynamicDims,
    facts: GraphHints,
    seed: int,
    pace: _Pace,
    budget: Budget,
    *,
    sizes: bool,
    values: bool,
) -> Iterator[tuple[str, TrialKind, Feeds]]:
    """Sizes and values in turns; every so often both at once."""
    generator = np.random.default_rng(seed + 1)
    roomy = max(runs, key=lambda feeds: count_elements(feeds) * (count_elements(feeds) < _ROOMY))
    roomy = _many_rows(specs, roomy, pace) if sizes and values and dims.any else roomy
    other_sizes: Iterator[Sizes] = iter(())
    if sizes and dims.any and not crashed_before():
        other_sizes = sizes_to_try(dims, facts.sizes, rows_needed=facts.rows_needed, every=facts.programmed)
    if sizes and (past := of_the_past(specs)):
        other_sizes = chain(
            [Sizes("no past", {**dims.usual, **dict.fromkeys(past, 0)}, dims.batch, dims.length)], other_sizes
        )
    other_values = value_changes(specs, roomy, facts, generator) if values else iter(())
    streams: list[Iterator[tuple[str, TrialKind, Feeds]]] = [
        _sized(specs, other_sizes, facts, seed, pace, budget),
        other_values,
    ]
    if values and sizes and (dims.lengths or dims.batches):
        streams.append(_masked_long(specs, dims, facts, seed, generator))
    while streams:
        for stream in list(streams):
            try:
                label, kind, made = next(stream)
            except StopIteration:
                streams.remove(stream)
            else:
                yield from ((label, kind, feeds) for feeds in both_sides(specs, made))


def both_sides(specs: Sequence[TensorSpec], feeds: Feeds) -> Iterator[Feeds]:
    """Inputs as they are, and with single truth values the other way: both sides of a switch are tried."""
    yield feeds
    own = [s.name for s in specs if is_kind(s, "b") and np.size(feeds[s.name]) == 1]
    if own:
        yield {**feeds, **{name: np.asarray(np.logical_not(feeds[name])) for name in own}}


def _many_rows(specs: Sequence[TensorSpec], feeds: Feeds, pace: _Pace) -> Feeds:
    """`feeds` with so many rows that no value of a kind is missed by chance; as they are where those are refused.

    Where another dim has the name of a batch, rows alone would break what the name says.
    """
    named = {d for s in specs for d in (s.shape or ())[1:] if isinstance(d, str) and not is_placeholder(d)}
    if any(s.shape and s.shape[0] in named for s in specs):
        return feeds
    of_batch = {s.name for s in specs if s.shape and not isinstance(s.shape[0], int) and np.ndim(feeds[s.name])}
    most = max((np.size(feeds[name]) for name in of_batch), default=0)
    if not 0 < most < _FEW:
        return feeds
    made = {n: np.concatenate([a] * (_FEW // most)) if n in of_batch else a for n, a in feeds.items()}
    try:
        pace.run(made)
    except UnsupportedError:
        raise
    except OnnxToolError:
        return feeds
    return made


def _sized(
    specs: Sequence[TensorSpec],
    wanted: Iterator[Sizes],
    facts: GraphHints,
    seed: int,
    pace: _Pace,
    budget: Budget,
) -> Iterator[tuple[str, TrialKind, Feeds]]:
    for index, sizes in enumerate(wanted):
        feeds = _of_size(specs, sizes, facts, seed + 100 + index)
        if feeds is None or count_elements(feeds) > max(_GROWTH * pace.elements, _ELEMENTS):
            continue
        if pace.cost(feeds) > max(0.25, budget.left / 3):
            continue
        yield sizes.label, TrialKind.EMPTY if sizes.empty else TrialKind.SIZE, feeds


def _of_size(specs: Sequence[TensorSpec], sizes: Sizes, facts: GraphHints, seed: int) -> Feeds | None:
    try:
        return random_feeds(specs, seed, dims=sizes.dims, batch=sizes.batch, length=sizes.length, domains=facts.domains)
    except InputError:  # too large
        return None


def _masked_long(
    specs: Sequence[TensorSpec], dims: DynamicDims, facts: GraphHints, seed: int, generator: np.random.Generator
) -> Iterator[tuple[str, TrialKind, Feeds]]:
    """Other values at other sizes than the usual ones."""
    for batch, length in ((3, 40), (2, 130)) if dims.lengths else ((130, dims.length),):
        chosen = {n: batch for group in dims.batches for n in group}
        for place, group in enumerate(dims.lengths):
            chosen |= dict.fromkeys(group, length + place)
        label = f"batch {batch}, length {length}" if dims.lengths else f"batch {batch}"
        sizes = Sizes(label, chosen, batch, length)
        feeds = _of_size(specs, sizes, facts, seed + length)
        if feeds is None or count_elements(feeds) > _ELEMENTS:
            continue
        for count, (label, kind, made) in enumerate(value_changes(specs, feeds, facts, generator)):
            if count >= 8:
                break
            yield f"{sizes.label}, {label}", kind, made


def breaks(feeds: Feeds, outputs: Mapping[str, Any], *, missing: bool = False) -> bool:
    """Whether a model gives NaN or infinity for usual numbers: finite ones that are not large.

    Args:
        feeds: what it was given.
        outputs: what it gave.
        missing: NaN is usual, because a graph asks for it.
    """
    for array in map(np.asarray, feeds.values()):
        if array.dtype.kind in "fV":
            wide = np.abs(array.astype(np.float64))
            if not bool(((wide <= _USUAL) | (missing & np.isnan(wide))).all()):
                return False
    floats = [a for a in map(np.asarray, flatten(outputs).values()) if a.dtype.kind in "fV"]
    with np.errstate(all="ignore"):
        return any(not bool(np.isfinite(a).all()) for a in floats)


def _beyond_judging(kind: TrialKind, feeds: Feeds, outputs: Mapping[str, Any], facts: GraphHints) -> TrialKind | None:
    """The kind of an input on which a difference is said, and no failure; None where nothing can be learnt from it."""
    if breaks(feeds, outputs, missing=facts.missing):
        return TrialKind.BROKEN
    return TrialKind.MISSING_BROKEN if kind in (TrialKind.MISSING, TrialKind.VALUES, TrialKind.EXTREME_VALUES) else None


def takes_doubles(specs: Sequence[TensorSpec]) -> bool:
    """Whether an input is of double precision."""
    return any(s.dtype == np.float64 for s in specs)


def _largest(dtype: np.dtype) -> float:
    """The largest number of a type, which models give on purpose: for what is masked, or in the place of infinity."""
    return float(np.finfo(dtype).max) if dtype.kind == "f" else np.inf


def telling(outputs: Mapping[str, Any], kind: TrialKind, *, doubles: bool = False, missing: bool = False) -> bool:
    """Whether the outputs can be held against others: all finite, and not at the edge of what floats hold.

    Args:
        outputs: of the reference.
        kind: of the trial.
        doubles: the model takes doubles, so that it computes in them.
        missing: a graph asks for NaN or infinity, so that what it gives for them is meant.
    """
    most = _HUGE_DOUBLE if doubles else _HUGE
    floats = 0
    for value in flatten(outputs).values():
        array = np.asarray(value)
        if array.dtype.kind not in "fV" or not array.size:
            continue
        floats += 1
        with np.errstate(all="ignore"):
            sizes = np.abs(array)
            if not np.isfinite(array).all() or bool((sizes[sizes < _largest(array.dtype)] > most).any()):
                return False
    return floats > 0 or missing or kind not in (TrialKind.MISSING, TrialKind.MISSING_ROWS)

"""Candidates timed side by side, for as long as it takes to tell which of them can win, and no longer.

A candidate is compared with the fastest one so far, not with the float model, which takes two or three times as long:
their ratio, times what the fastest has against the float model, is what it has. Timing ends as soon as it surely cannot
win. The leaders are timed once more in one alternation with the float model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from onnxtool.quantization.search.time_budget import TimeBudget
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.runtime.in_turn import RunnerInTurn
from onnxtool.runtime.runner import OnnxRunner
from onnxtool.runtime.timing.timing import (
    Ratio,
    Timing,
    block_ratio,
    clock_for,
    measure,
    measure_in_turn,
    ratio,
    session_run,
)

ABOUT_AS_FAST = 1.03  # within this of the fastest, accuracy or size decides
TOO_CLOSE = 1.12  # quick timings this near each other do not rank
SHORT = 0.003  # seconds: of such models each session has a latency of its own, by where its memory lies
TINY = 0.0005  # of such models a single session tells nothing within several percent
QUICK_SECONDS = 0.2
_LEAST_ROUNDS = 5
_MOST_ROUNDS = 250
_SETTLED = 0.04  # width of an interval, relative to the ratio, from which on more rounds tell nothing that matters
_FINAL_SECONDS = 1.5
_FINAL_SETTLED = 0.015
_BLOCKS = 10  # with fresh sessions, for short models
_ENOUGH_BLOCKS = {2: 1.03, 4: 1.0}  # after so many blocks, what was this much slower in each of them has lost
_BLOCK_SECONDS = 0.1
_FLOAT = -1  # in place of a candidate's number
_BLOCK_SETTLED = 0.02


def beside_fastest(
    runner: OnnxRunner,
    fastest: OnnxRunner,
    known: LatencyRatio | None,
    sample: Mapping[str, np.ndarray],
    threads: int,
) -> tuple[LatencyRatio, bool]:
    """Latency against the float model of a candidate that is timed beside the fastest one so far.

    Args:
        runner: the candidate.
        fastest: what it is compared with; the float model itself where nothing is known yet.
        known: latency of the fastest against the float model; None when it is the float model.
        sample: feeds.
        threads: of all sessions.

    Returns:
        The latency, whose interval is that of the comparison alone, and whether the candidate surely is slower than
        what it was compared with.
    """
    timings = _alternate(
        [fastest, runner],
        sample,
        threads,
        QUICK_SECONDS,
        _LEAST_ROUNDS,
        lambda found: found[0].low > TOO_CLOSE or _settled(found[0], _SETTLED),
    )
    found = ratio(timings[1], timings[0])
    slower = found.low > 1
    if known is None:
        return _against_float(found, timings[0], timings[1], threads), slower
    value = known.value
    against_float = LatencyRatio(
        found.value * value,
        found.low * value,
        found.high * value,
        known.before,
        found.value * value * known.before,
        threads,
    )
    return against_float, slower


def time_leaders(
    opened: Callable[[int, Sequence[int]], Sequence[OnnxRunner]],
    count: int,
    sample: Mapping[str, np.ndarray],
    threads: int,
    clock: TimeBudget,
    *,
    short: bool,
    patience: float = 1.0,
) -> list[LatencyRatio]:
    """Latency of several candidates and the float model in one alternation, so that they can be ranked.

    Args:
        opened: sessions for a block by its number: the float model's first, then those of the candidates asked for.
        count: of candidates.
        sample: feeds.
        threads: of all sessions.
        clock: the time limit.
        short: in blocks with fresh sessions.
        patience: so many times the usual seconds, as far as there is time.
    """
    left = max((clock.left - clock.writing) / 2, QUICK_SECONDS)
    if not short:
        seconds = min(patience * _FINAL_SECONDS, left)
        timings = _alternate(
            opened(0, range(count)),
            sample,
            threads,
            seconds,
            7,
            lambda found: _ranked(found, _FINAL_SETTLED),
            maximum=math.ceil(patience * _MOST_ROUNDS),
        )
        return [_against_float(ratio(t, timings[0]), timings[0], t, threads) for t in timings[1:]]
    blocks = _in_blocks(opened, count, sample, threads, min(patience * _BLOCK_SECONDS, left / _BLOCKS))
    results = []
    for index in range(count):
        before, after = ([block[i] for block in blocks if index in block] for i in (_FLOAT, index))
        results.append(_against_float(block_ratio(after, before), _usual(before), _usual(after), threads))
    return results


def _in_blocks(
    opened: Callable[[int, Sequence[int]], Sequence[OnnxRunner]],
    count: int,
    sample: Mapping[str, np.ndarray],
    threads: int,
    seconds: float,
) -> list[dict[int, Timing]]:
    """Timings of each block, with fresh sessions, by candidate; the float model's too.

    What was clearly slower than the best in each of two blocks drops out, and after four what was slower in each of
    them or is surely so on average; with nobody else left, or none that may be more than a few percent slower, it is
    over. Of two that are equally fast, one in eight drops out by chance, which costs nothing.
    """
    blocks: list[dict[int, Timing]] = []
    remaining = list(range(count))
    for block in range(_BLOCKS):
        runners = opened(block, remaining)
        enough = lambda found: _ranked(found, _BLOCK_SETTLED)  # noqa: E731
        timings = _alternate(runners, sample, threads, seconds, _LEAST_ROUNDS, enough)
        blocks.append(dict(zip((_FLOAT, *remaining), timings, strict=True)))
        margin = next((m for count, m in reversed(_ENOUGH_BLOCKS.items()) if len(blocks) >= count), math.inf)
        best = min(remaining, key=lambda i: math.prod(b[i].median for b in blocks))
        remaining = [i for i in remaining if any(b[i].median <= margin * b[best].median for b in blocks)]
        if len(blocks) < max(_ENOUGH_BLOCKS):
            continue
        ratios = {i: block_ratio([b[i] for b in blocks], [b[best] for b in blocks]) for i in remaining if i != best}
        remaining = [i for i in remaining if i == best or ratios[i].low <= 1]
        if all(ratios[i].high < ABOUT_AS_FAST for i in remaining if i != best):
            break
    return blocks


def _usual(blocks: Sequence[Timing]) -> Timing:
    return Timing(tuple(block.median for block in blocks))


def _against_float(found: Ratio, before: Timing, after: Timing, threads: int) -> LatencyRatio:
    return LatencyRatio(found.value, found.low, found.high, before.median, after.median, threads)


def _alternate(
    runners: Sequence[OnnxRunner],
    sample: Mapping[str, np.ndarray],
    threads: int,
    seconds: float,
    minimum: int,
    enough: Callable[[list[Ratio]], bool],
    maximum: int = _MOST_ROUNDS,
) -> list[Timing]:
    """Rounds until `enough` holds for the ratios of all others to the first."""
    in_turn = [runner for runner in runners if isinstance(runner, RunnerInTurn)]
    if in_turn:
        return measure_in_turn(in_turn, sample, threads, seconds)
    calls = [session_run(runner, sample) for runner in runners]
    for call in calls:
        call()  # the first run of a session is not like the others
    return measure(
        calls,
        budget=seconds,
        minimum=minimum,
        maximum=maximum,
        warmup=1,
        clock=clock_for(threads),
        enough=lambda timings: enough([ratio(t, timings[0]) for t in timings[1:]]),
    )


def _settled(ratio: Ratio, width: float) -> bool:
    return ratio.high - ratio.low < width * ratio.value


def _ranked(found: Sequence[Ratio], width: float) -> bool:
    """True when more rounds would tell nothing: each is settled, or surely slower than the fastest."""
    fastest = min(found, key=lambda r: r.value)
    return all(_settled(r, width) or r.low > fastest.high for r in found if r is not fastest) and _settled(
        fastest, width
    )

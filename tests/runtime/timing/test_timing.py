"""Alternating measurement. Nothing here asserts how fast anything is."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.runtime.timing.timing import Timing, measure, ratio, student_quantile


def test_every_round_calls_every_candidate_in_changing_order() -> None:
    calls: list[str] = []
    timings = measure([lambda: calls.append("a"), lambda: calls.append("b")], budget=0, minimum=40, warmup=1)
    rounds = ["".join(calls[i : i + 2]) for i in range(0, len(calls), 2)]
    assert len(rounds) == 41
    assert set(rounds) == {"ab", "ba"}
    assert [len(t.samples) for t in timings] == [40, 40]


def test_uses_the_clock_that_it_is_given() -> None:
    ticks = iter(range(1000))
    (timing,) = measure([lambda: next(ticks)], budget=0, minimum=5, clock=lambda: float(next(ticks)))
    assert timing.samples == (2.0,) * 5


def test_a_clock_that_stands_still_gives_no_zero() -> None:
    timings = measure([lambda: None, lambda: None], budget=0, minimum=5, clock=lambda: 1.0)
    assert ratio(*timings).value == 1.0


def test_ratio_of_twins_is_same_and_a_slower_one_is_named() -> None:
    noise = np.random.default_rng(1).normal(1.0, 0.05, size=200)
    twin = Timing(tuple(noise[::-1]))
    base = Timing(tuple(noise))
    assert ratio(twin, base).verdict == "same"
    slow = ratio(Timing(tuple(noise * 1.1)), base)
    assert slow.verdict == "slower"
    assert slow.low <= slow.value <= slow.high
    assert ratio(Timing(tuple(noise * 0.8)), base).verdict == "faster"


def test_a_measurement_ends_as_soon_as_there_is_enough() -> None:
    asked: list[int] = []

    def enough(found: list[Timing]) -> bool:
        asked.append(len(found[0].samples))
        return len(found[0].samples) >= 9

    found = measure([lambda: None], budget=60.0, minimum=4, warmup=0, enough=enough)
    assert asked == [4, 6, 9] and len(found[0].samples) == 9


@pytest.mark.parametrize(
    ("confidence", "free", "quantile"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 9, 2.262),
        (0.95, 3, 2.353),
        (0.95, 30, 1.697),
        (0.95, 5000, 1.645),
    ],
)
def test_quantiles_of_students_t_are_those_of_the_tables(confidence: float, free: int, quantile: float) -> None:
    assert student_quantile(confidence, free) == pytest.approx(quantile, abs=5e-4)

"""Alternating measurement. Nothing here asserts how fast anything is."""

from __future__ import annotations

import numpy as np

from onnxtool.runtime.timing import Timing, measure, ratio


def test_candidates_alternate_and_the_first_place_rotates() -> None:
    calls: list[str] = []
    timings = measure([lambda: calls.append("a"), lambda: calls.append("b")], budget=0, minimum=4, warmup=1)
    assert calls == ["a", "b", "a", "b", "b", "a", "a", "b", "b", "a"]
    assert [len(t.samples) for t in timings] == [4, 4]


def test_ratio_of_twins_is_same_and_a_slower_one_is_named() -> None:
    noise = np.random.default_rng(1).normal(1.0, 0.05, size=200)
    twin = Timing(tuple(noise[::-1]))
    base = Timing(tuple(noise))
    assert ratio(twin, base).verdict == "same"
    slow = ratio(Timing(tuple(noise * 1.1)), base)
    assert slow.verdict == "slower"
    assert slow.low <= slow.value <= slow.high
    assert ratio(Timing(tuple(noise * 0.8)), base).verdict == "faster"

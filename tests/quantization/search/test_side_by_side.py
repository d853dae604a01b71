"""How long candidates are timed, beside what, and what is told of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onnxtool.quantization.search import side_by_side as module
from onnxtool.quantization.search.side_by_side import SHORT, TINY, beside_fastest, time_leaders
from onnxtool.quantization.search.time_budget import TimeBudget
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.runtime.timing import timing as timings
from onnxtool.runtime.timing.timing import Ratio, Timing, ratio


def timing(*samples: float) -> Timing:
    return Timing(samples)


@pytest.mark.parametrize(("count", "low", "high"), [(3, 1, 3), (5, 1, 5), (7, 1, 7), (10, 2, 9), (100, 41, 60)])
def test_the_interval_of_paired_ratios_lies_between_two_of_them(count: int, low: float, high: float) -> None:
    ratios = [float(i + 1) for i in range(count)]
    candidate, baseline = timing(*(2 * r for r in reversed(ratios))), timing(*[2.0] * count)
    assert ratio(candidate, baseline) == Ratio((count + 1) / 2, low, high)


def test_short_is_below_three_milliseconds() -> None:
    assert SHORT == 0.003 and TINY == 0.0005


def test_a_slow_moment_of_the_machine_is_in_both_and_does_not_count() -> None:
    assert ratio(timing(1, 10, 1, 1, 20), timing(2, 20, 2, 2, 40)) == Ratio(0.5, 0.5, 0.5)


class Clockwork:
    """In place of `measure`: what each session takes in each round, and after how many rounds it was enough."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: Callable[[str, int], float]) -> None:
        self.takes, self.asked, self.run, self.warm = takes, [], [], []  # type: ignore[var-annotated]
        monkeypatch.setattr(module, "measure", self.measure)
        monkeypatch.setattr(timings, "fit_dtypes", lambda _, feeds: feeds)

    def runner(self, name: str) -> Any:
        return SimpleNamespace(session=SimpleNamespace(run=lambda *_: self.warm.append(name)), name=name)

    def measure(self, calls: Sequence[Any], *, enough: Any, minimum: int, maximum: int, **rest: Any) -> list[Timing]:
        names = self.warm[-len(calls) :]
        self.asked.append(rest | {"minimum": minimum, "names": names})
        for rounds in range(minimum, maximum + 1):
            found = [Timing(tuple(self.takes(name, i) for i in range(rounds))) for name in names]
            if enough(found):
                break
        self.run.append(rounds)
        return found


def steady(**seconds: float) -> Callable[[str, int], float]:
    return lambda name, _: seconds[name]


def beside(clockwork: Clockwork, name: str, known: LatencyRatio | None = None) -> tuple[LatencyRatio, bool]:
    fastest = "float" if known is None else "fastest"
    return beside_fastest(clockwork.runner(name), clockwork.runner(fastest), known, {}, 1)


def test_the_first_candidate_is_timed_beside_the_float_model(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady(float=0.02, new=0.01))
    assert beside(clockwork, "new") == (LatencyRatio(0.5, 0.5, 0.5, 0.02, 0.01, 1), False)
    assert clockwork.run == [5], "it is settled at once"
    assert clockwork.asked[0]["budget"] == 0.2


def test_others_are_timed_beside_the_fastest_and_told_against_the_float_model(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady(fastest=0.01, new=0.0125))
    latency, slower = beside(clockwork, "new", LatencyRatio(0.5, 0.4, 0.6, 0.02, 0.01, 1))
    assert latency == LatencyRatio(0.625, 0.625, 0.625, 0.02, 0.0125, 1) and slower


def test_timing_goes_on_until_the_candidate_has_lost_or_the_interval_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    known = LatencyRatio(0.5, 0.49, 0.51, 0.02, 0.01, 1)

    def noisy(middle: float) -> Callable[[str, int], float]:
        return lambda name, i: 1.0 if name == "fastest" else middle + (0.2 if i < 2 else 0.0) * (-1) ** i

    lost = Clockwork(monkeypatch, noisy(1.4))
    _, slower = beside(lost, "new", known)
    assert lost.run == [5] and slower, "1.2 and more"
    close = Clockwork(monkeypatch, noisy(1.3))
    _, slower = beside(close, "new", known)
    assert close.run[0] > 5, "1.1 may still win"
    equal = Clockwork(monkeypatch, noisy(1.0))
    _, slower = beside(equal, "new", known)
    assert not slower and equal.run[0] > 5
    never = Clockwork(monkeypatch, lambda name, i: 1.0 if name == "fastest" else 1.0 + 0.02 * (-1) ** i)
    beside(never, "new", known)
    assert never.run == [5], "4 % of width is narrow"
    wide = Clockwork(monkeypatch, lambda name, i: 1.0 if name == "fastest" else 1.0 + 0.03 * (-1) ** i)
    beside(wide, "new", known)
    assert wide.run == [250]


def leaders(clockwork: Clockwork, names: str, **options: Any) -> tuple[list[LatencyRatio], list[int]]:
    blocks: list[int] = []

    def opened(block: int, wanted: Sequence[int]) -> list[Any]:
        blocks.append(block)
        return [clockwork.runner(name) for name in ("float", *(names[i] for i in wanted))]

    options = {"clock": TimeBudget(1000), "short": False} | options
    return time_leaders(opened, len(names), {}, 1, **cast(Any, options)), blocks


def test_leaders_are_timed_in_one_alternation_with_the_float_model(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady(float=0.02, a=0.01, b=0.015))
    found, blocks = leaders(clockwork, "ab", patience=3.0)
    assert [f.value for f in found] == [0.5, 0.75] and blocks == [0]
    assert found[1].before == 0.02 and found[1].after == 0.015
    assert clockwork.asked[0]["budget"] == 4.5 and clockwork.asked[0]["minimum"] == 7
    hurried, _ = leaders(clockwork, "ab", clock=TimeBudget(0.0))
    assert clockwork.asked[-1]["budget"] == 0.2 and hurried == found


def test_timing_of_leaders_ends_when_their_order_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes(name: str, i: int) -> float:
        return {"float": 1.0, "a": 0.5, "b": 0.8 + 0.2 * (i % 2), "c": 0.5 + 0.2 * (i % 2)}[name]

    clockwork = Clockwork(monkeypatch, takes)
    leaders(clockwork, "ab")
    assert clockwork.run == [7], "b is unsteady, and surely slower"
    leaders(clockwork, "ac")
    assert clockwork.run[-1] == 250
    leaders(clockwork, "c")
    assert clockwork.run[-1] == 250, "the fastest itself must be known well"


@pytest.mark.parametrize(("spread", "rounds"), [(0.007, 7), (0.008, 250)])
def test_leaders_are_settled_within_a_percent_and_a_half(
    spread: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clockwork = Clockwork(monkeypatch, lambda name, i: 1.0 if name == "float" else 0.5 * (1 + spread * (-1) ** i))
    leaders(clockwork, "a")
    assert clockwork.run == [rounds]


def test_each_of_the_leaders_has_to_be_settled_or_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes(name: str, i: int) -> float:
        return {"float": 1.0, "a": 0.5, "b": 0.8, "c": 0.5 + 0.2 * (i % 2)}[name]

    clockwork = Clockwork(monkeypatch, takes)
    leaders(clockwork, "abc")
    assert clockwork.run == [250], "b is, c is not"


@pytest.mark.parametrize(("left", "seconds"), [(2.0, 1.0), (0.2, 0.2)])
def test_timing_of_leaders_takes_half_of_what_is_left(
    left: float, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clockwork = Clockwork(monkeypatch, steady(float=0.02, a=0.01))
    leaders(clockwork, "a", clock=SimpleNamespace(left=left + 0.25, writing=0.25))
    leaders(clockwork, "a", clock=SimpleNamespace(left=left + 0.25, writing=0.25), short=True)
    assert [a["budget"] for a in clockwork.asked] == [seconds, *[min(0.1, seconds / 10)] * 4]


@pytest.mark.parametrize(("spread", "rounds"), [(0.009, 5), (0.012, 250)])
def test_a_block_is_settled_within_two_percent(spread: float, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, lambda name, i: 1.0 if name == "float" else 0.5 * (1 + spread * (-1) ** i))
    leaders(clockwork, "a", short=True)
    assert clockwork.run == [rounds] * 4


def test_each_candidate_of_a_block_keeps_its_own_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady(float=1.0, a=0.5, b=0.25))
    found, _ = leaders(clockwork, "ab", short=True)
    assert [f.value for f in found] == pytest.approx([0.5, 0.25])
    assert all(a["warmup"] == 1 for a in clockwork.asked)


def in_blocks(
    clockwork: Clockwork, names: str, ratios: Callable[[str, int], float]
) -> tuple[list[LatencyRatio], list[str]]:
    """What is found, and what was timed in each block; `ratios` by name and block."""
    told: list[str] = []

    def opened(block: int, wanted: Sequence[int]) -> list[Any]:
        present = [names[i] for i in wanted]
        told.append("".join(present))
        clockwork.takes = lambda name, _: 1.0 if name == "float" else ratios(name, block)
        return [clockwork.runner(name) for name in ("float", *present)]

    return time_leaders(opened, len(names), {}, 1, TimeBudget(1000), short=True), told


def test_what_was_slower_in_every_block_drops_out_after_four(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady())
    close = {"a": 0.5, "b": 0.514}
    found, told = in_blocks(clockwork, "abc", lambda name, block: close.get(name, 0.45 if block == 5 else 0.51))
    assert told == ["abc"] * 4, "c as well: its better block did not come"
    assert [f.value for f in found] == pytest.approx([0.5, 0.514, 0.51])


def test_what_was_clearly_slower_in_two_blocks_drops_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady())

    def ratios(name: str, block: int) -> float:
        return {"a": 0.5, "b": 0.516, "c": 0.515, "d": 0.51 if block else 0.7}[name]

    found, told = in_blocks(clockwork, "abcd", ratios)
    assert told == ["abcd"] * 2 + ["acd"] * 2, "from three percent on, in both"
    assert found[1].value == pytest.approx(0.516), "and it keeps what it was found to have"
    alone = Clockwork(monkeypatch, steady())
    assert in_blocks(alone, "ab", lambda name, _: {"a": 0.5, "b": 0.7}[name])[1] == ["ab", "ab", "a", "a"]


def test_those_that_take_turns_are_timed_in_ten_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady())

    def ratios(name: str, block: int) -> float:
        return {"a": 0.5, "b": 0.48 if block % 2 else 0.54, "c": 0.7}[name]

    found, told = in_blocks(clockwork, "abc", ratios)
    assert told == ["abc"] * 2 + ["ab"] * 8
    assert found[1].value == pytest.approx(math.sqrt(0.48 * 0.54)), "over all of them"
    assert found[2].value == pytest.approx(0.7)


@pytest.mark.parametrize(("behind", "blocks"), [(0.5149, 4), (0.5151, 10)])
def test_timing_ends_where_all_that_are_left_are_as_fast(
    behind: float, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them wins is within three percent of the others."""
    clockwork = Clockwork(monkeypatch, steady())
    _, told = in_blocks(clockwork, "ab", lambda name, block: 0.5)
    assert told == ["ab"] * 4
    # As slow as that on average in the upper end of the interval: the spread of one block in two is what it is.
    monkeypatch.setattr(module, "block_ratio", lambda *_: Ratio(1.0, 0.99, behind / 0.5))
    assert in_blocks(clockwork, "ab", lambda *_: 0.5)[1] == ["ab"] * blocks


def test_what_is_surely_slower_on_average_drops_out_though_it_was_faster_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady())

    def ratios(name: str, block: int) -> float:
        return {"a": 0.5, "b": 0.52 if block else 0.499, "c": 0.49 if block % 2 else 0.51}[name]

    _, told = in_blocks(clockwork, "abc", ratios)
    gone = next(i for i, present in enumerate(told) if "b" not in present)
    assert 4 < gone < 10 and "c" in told[-1]


def test_one_that_may_be_exactly_as_far_behind_as_is_too_close_is_timed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, lambda name, i: 1.0 if name == "fastest" else 1.12 + (0.3 if i % 2 else 0.0))
    beside(clockwork, "new", LatencyRatio(0.5, 0.49, 0.51, 0.02, 0.01, 1))
    assert clockwork.run == [250]


def test_short_models_are_timed_in_blocks_which_are_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    clockwork = Clockwork(monkeypatch, steady(float=1.0, a=0.5))
    speeds = iter([0.9, 1.0, 0.9, 1.0])

    def measure(calls: Sequence[Any], **rest: Any) -> list[Timing]:
        clockwork.asked.append(rest)
        return [timing(1.0, 1.0), timing(*[next(speeds)] * 2)]

    monkeypatch.setattr(module, "measure", measure)
    (found,), blocks = leaders(clockwork, "a", short=True)
    assert blocks == [0, 1, 2, 3]
    assert found.value == pytest.approx(math.sqrt(0.9))
    assert found.low < 0.9 and found.high > 1.0, "sessions differ by more than rounds"
    assert found.before == 1.0 and found.after == 0.95
    assert {a["budget"] for a in clockwork.asked} == {0.1} and {a["minimum"] for a in clockwork.asked} == {5}

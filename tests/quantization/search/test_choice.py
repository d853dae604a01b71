"""The last choice: what is surely faster than float, and not beaten by another of its own table."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search import smaller_weights as refinement
from onnxtool.quantization.search.accuracy_repair import AccuracyRepairs
from onnxtool.quantization.search.choice import (
    COMPACTING,
    FINALISTS,
    TIMING_AGAIN,
    dominates,
    finalists,
    is_faster,
    not_faster,
    surely_faster,
    surely_slower,
    undominated,
)
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.smaller_weights import _as_accurate
from onnxtool.quantization.search.stages import RecipeSearch
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.quantize import Fidelity


def latency(value: float, half: float = 0.01) -> LatencyRatio:
    return LatencyRatio(value, value - half, value + half, 1.0, value, 1)


def trial(name: str, ratio: float = 0.5, size: int = 100, db: float = 30.0, half: float = 0.01) -> RecipeTrial:
    fidelity = Fidelity(db, 1.0, None, 8, channel_db=db, margin_db=db - 25)
    return RecipeTrial(name, QuantRecipe(mode="auto"), size, fidelity, latency(ratio, half))


class Lab:
    """Times again as it is told, and counts."""

    def __init__(self, **again: LatencyRatio) -> None:
        self.again, self.asked = again, 0
        self.clock = SimpleNamespace(allows=lambda *_: True)

    def time_again(self, trials: list[RecipeTrial], *_: float) -> None:
        self.asked += 1
        for one in trials:
            one.latency = self.again.get(one.name, one.latency)


def evaluator(**again: LatencyRatio) -> Any:
    return cast(CandidateEvaluator, Lab(**again))


def fastest(trials: list[RecipeTrial]) -> RecipeTrial | None:
    return min(trials, key=lambda t: t.speed, default=None)


def test_what_was_not_judged_neither_dominates_nor_is_dominated() -> None:
    winner, unknown = trial("winner"), trial("unknown", 0.4, 90, 35)
    unknown.fidelity = None
    assert not dominates(unknown, winner)
    assert not dominates(trial("better", 0.3, 80, 40), unknown)


@pytest.mark.parametrize(
    ("low", "high", "asked"),
    [(0.98, 1.0, 5), (0.98, 0.999, 0), (1.0, 1.01, 0), (0.999, 1.01, 5)],
)
def test_a_gain_is_unclear_while_its_interval_holds_one(low: float, high: float, asked: int) -> None:
    found, unclear = evaluator(), trial("unclear")
    unclear.latency = LatencyRatio(0.99, low, high, 1.0, 0.99, 1)
    assert surely_faster(found, [unclear], fastest) is unclear
    assert found.asked == asked


def test_one_whose_interval_ends_at_one_is_not_surely_faster() -> None:
    unclear, equal, sure = trial("unclear", 0.97), trial("equal", 0.98), trial("sure", 0.985)
    unclear.latency, equal.latency = (LatencyRatio(t.speed, 0.96, 1.0, 1.0, t.speed, 1) for t in (unclear, equal))
    assert surely_faster(evaluator(), [unclear, equal, sure], fastest) is sure


def test_without_a_winner_or_its_timing_nothing_is_timed() -> None:
    found, untimed = evaluator(), trial("untimed")
    untimed.latency = None
    assert surely_faster(found, [], fastest) is None
    assert surely_faster(found, [untimed], lambda trials: trials[0]) is untimed
    assert found.asked == 0


def test_dominance_needs_all_three() -> None:
    winner = trial("winner")
    assert dominates(trial("a", 0.4, 90, 35), winner)
    assert dominates(trial("a", 0.5, 100, 31), winner)
    assert not dominates(trial("a"), winner), "equal in everything"
    for other in (trial("a", 0.6, 90, 35), trial("a", 0.4, 110, 35), trial("a", 0.4, 90, 25)):
        assert not dominates(other, winner)


def test_what_beats_the_winner_in_everything_takes_its_place() -> None:
    winner, better, broken = trial("winner"), trial("better", 0.4, 90, 35), trial("broken", 0.3, 80, 40)
    kept = {"winner", "better"}
    assert undominated(evaluator(), winner, [broken, better, winner], lambda t: t.name in kept) is better
    assert undominated(evaluator(), winner, [winner], lambda _: True) is winner


def test_two_that_were_timed_apart_are_timed_together_first() -> None:
    winner, other = trial("winner"), trial("other", 0.49, 90, 35)
    found = evaluator(winner=latency(0.45), other=latency(0.5))
    assert undominated(found, winner, [winner, other], lambda _: True) is winner
    assert found.asked == 1


def test_one_that_is_surely_faster_goes_before_one_that_is_not() -> None:
    unclear, sure = trial("unclear", 0.97, half=0.05), trial("sure", 0.98)
    assert surely_faster(evaluator(), [unclear, sure], fastest) is sure


def test_what_is_unclear_is_timed_longer() -> None:
    unclear = trial("unclear", 0.97, half=0.05)
    found = evaluator(unclear=latency(0.96))
    assert surely_faster(found, [unclear], fastest) is unclear
    assert found.asked == 1
    assert unclear.latency is not None
    assert unclear.latency.high < 1


def test_what_is_surely_slower_is_not_timed_again() -> None:
    found = evaluator()
    slow = trial("slow", 1.2)
    assert surely_faster(found, [slow], fastest) is slow
    assert found.asked == 0


def test_the_verdict_gives_the_interval_and_says_unclear() -> None:
    assert "takes 1.200 times as long (95 %: 1.190 to 1.210)" in not_faster("r", latency(1.2))
    assert not_faster("r", latency(1.2)).startswith("nothing within the budget is faster")
    assert not_faster("r", latency(0.976, 0.05)).startswith("unclear")


@pytest.mark.parametrize(
    ("winner", "rescued"), [(None, True), (trial("slow", 1.0), True), (trial("fast", 0.99), False)]
)
def test_hopeless_candidates_are_repaired_only_where_nothing_is_faster(
    winner: RecipeTrial | None, rescued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(AccuracyRepairs, "of_the_fastest", lambda *_: asked.append("fastest"))
    monkeypatch.setattr(AccuracyRepairs, "of_noisy", lambda *_: asked.append("noisy"))
    found: Any = object.__new__(RecipeSearch)
    found.evaluator, found.nodes = SimpleNamespace(trials=[]), []
    found._winner = lambda: winner
    found._repairs()
    assert asked == (["fastest", "noisy"] if rescued else ["fastest"])


@pytest.mark.parametrize(("before", "after", "kept"), [(20.0, 17.5, True), (20.0, 16.5, False), (45.0, 31.0, True)])
def test_weights_in_8_bits_may_add_as_much_noise_as_there_was(before: float, after: float, kept: bool) -> None:
    assert _as_accurate(trial("compact", db=after), trial("winner", db=before)) == kept


@pytest.mark.parametrize(
    ("noise_of_floats", "within", "smaller"), [(31.0, True, True), (29.0, True, False), (31.0, False, False)]
)
def test_without_time_weights_in_8_bits_are_taken_where_they_add_next_to_nothing(
    noise_of_floats: float, within: bool, smaller: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refinement.io, "to_bytes", lambda _: b"x" * 60)
    floats = trial("float", 1.0, db=noise_of_floats)
    floats.recipe = QuantRecipe(mode="auto", plan={}, compact=8)
    winner = trial("winner", size=100, db=20.0)
    evaluator = SimpleNamespace(
        trials=[floats, winner], look=lambda _: None, likely=lambda _: within, build=lambda recipe: recipe
    )
    found = refinement.compacted_unjudged(cast(Any, evaluator), winner)
    assert (found.recipe.compact == 8) == smaller == (found.bytes == 60)
    assert found.latency == winner.latency and found.fidelity == winner.fidelity
    assert refinement.compacted_unjudged(cast(Any, evaluator), found) is found, (
        "it has them already" if smaller else found
    )


def test_of_several_that_beat_the_winner_the_fastest_and_then_the_smallest_takes_its_place() -> None:
    winner = trial("winner")
    others = [trial("slow", 0.45, 80, 40), trial("fast", 0.4, 95, 35), trial("fast and small", 0.4, 90, 35)]
    assert undominated(evaluator(), winner, others, lambda _: True).name == "fast and small"


def test_what_is_as_fast_by_the_same_timing_is_not_timed_again() -> None:
    found = evaluator()
    assert undominated(found, trial("winner"), [trial("smaller", size=90)], lambda _: True).name == "smaller"
    assert found.asked == 0


def test_one_faster_among_those_that_are_as_fast_is_enough_to_time_them() -> None:
    found = evaluator()
    undominated(found, trial("winner"), [trial("smaller", size=90), trial("faster", 0.4, 90)], lambda _: True)
    assert found.asked == 1


def test_a_longer_timing_takes_three_times_as_long_and_leaves_time_for_what_follows() -> None:
    told: list[Any] = []
    found = evaluator(unclear=latency(0.9))
    found.clock = SimpleNamespace(allows=lambda *args: told.append(args) or True)
    found.time_again = lambda trials, patience: told.append(patience)
    surely_faster(found, [trial("unclear", 0.99, half=0.05)], fastest)
    asked = ("choice", "a longer timing", 2)
    assert told == [asked, 3.0, asked, 9.0, asked, 27.0, asked, 81.0, asked, 243.0], "until it is settled"
    assert (TIMING_AGAIN, COMPACTING, FINALISTS) == (1, 1, 5)
    assert "unclear" not in not_faster("x", LatencyRatio(1.1, 1.0, 1.2, 1.0, 1.1, 1))


def test_of_candidates_with_one_timing_the_most_accurate_is_timed_again() -> None:
    first, plain, third, fourth = trial("first", 0.4), trial("plain"), trial("third", 0.6), trial("fourth", 0.7)
    smoothed, noisier, unknown = trial("smoothed", db=35), trial("noisier", db=20), trial("unknown")
    unknown.fidelity = None
    for other in (smoothed, noisier, unknown):
        other.latency = plain.latency
    near = [first, plain, noisier, smoothed, unknown, third, fourth, trial("fifth", 0.8), trial("sixth", 0.9)]
    assert [t.name for t in finalists(near)] == ["first", "smoothed", "third", "fourth", "fifth"]
    assert finalists([unknown, plain]) == [plain]
    twin = trial("twin")
    twin.latency = plain.latency
    assert finalists([plain, twin]) == [plain], "the first of two alike"


@pytest.mark.parametrize(("low", "slower"), [(0.52, False), (0.521, True)])
def test_one_is_surely_slower_when_the_intervals_lie_apart(low: float, slower: bool) -> None:
    fast, slow = trial("fast", 0.51), trial("slow", 0.53)
    fast.latency, slow.latency = (
        LatencyRatio(0.51, 0.5, 0.52, 0.0029, 1, 1),
        LatencyRatio(0.53, low, 0.54, 0.0029, 1, 1),
    )
    assert surely_slower(slow, fast) == slower and not surely_slower(fast, slow)
    slow.latency = LatencyRatio(0.53, low, 0.54, 0.003, 1, 1)
    assert surely_slower(slow, fast), "not short"
    slow.latency, slow.estimate = None, 0.511
    assert surely_slower(slow, fast), "estimates are exact"
    slow.estimate = 0.51
    assert not surely_slower(slow, fast)


def test_what_was_timed_quickly_alone_has_to_leave_room() -> None:
    assert is_faster(latency(0.98, 0.01), True) and not is_faster(latency(0.98, 0.01), False)
    assert is_faster(latency(0.9, 0.04), False) and not is_faster(latency(0.9, 0.05), False)
    assert not is_faster(latency(0.98, 0.02), True)


@pytest.mark.parametrize(("bits", "low", "db", "kept"), [(8, 0.51, 32, 8), (8, 0.52, 32, 0), (8, 0.51, 29, 16)])
def test_smaller_float_weights_are_timed_beside_the_winner(bits: int, low: float, db: float, kept: int) -> None:
    winner, asked = trial("winner", db=30.0), list[list[str]]()
    winner.recipe = QuantRecipe(mode="auto", plan={"a": "static"})

    def try_out(name: str, recipe: QuantRecipe, *, timed: bool) -> RecipeTrial:
        assert not timed
        made = trial(name, db=db - 4 if recipe.compact == bits else 30)
        made.recipe = recipe
        return made

    def time_again(trials: list[RecipeTrial]) -> None:
        asked.append([t.recipe.compact for t in trials])  # type: ignore[misc]
        trials[1].latency = LatencyRatio(low + 0.01, low, low + 0.02, 1.0, low, 1)

    clock = SimpleNamespace(allows=lambda *_: True)
    built = lambda _: SimpleNamespace(spare=9)  # noqa: E731
    found: Any = SimpleNamespace(built=built, try_out=try_out, time_again=time_again, clock=clock)
    assert refinement.compacted(found, winner, lambda _: True).recipe.compact == kept
    assert all(first == 0 for first, _ in asked), "beside the winner"

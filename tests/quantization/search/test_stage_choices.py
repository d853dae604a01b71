"""Which candidates a stage goes on with, and what the search says in the end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search import stages as module
from onnxtool.quantization.search.evaluator import RecipeTrial
from onnxtool.quantization.search.stages import SearchOutcome
from onnxtool.report.measurement.bench import LatencyRatio
from tests.quantization.search.test_stages import Lab, named, search

WIDE: Any = dict.fromkeys("abcd", "static")


def names(trials: list[RecipeTrial]) -> list[str]:
    return [t.name for t in trials]


def test_the_fastest_are_those_that_were_timed_and_are_in_the_race() -> None:
    evaluator = Lab(
        slow=(0.6, 30, 30), fast=(0.4, 30, 30), noted=(0.3, 30, 30), untimed=(0.2, 30, 30), first=(0.1, 30, 30)
    )
    evaluator.trials[2].note, evaluator.trials[3].latency = "it does not load", None
    found: Any = search(evaluator)
    assert names(found._fastest()) == ["first", "fast", "slow"]
    assert names(found._fastest([evaluator.trials[0]])) == ["slow"]


def test_of_the_equally_fast_the_one_that_is_known_to_be_accurate_comes_first() -> None:
    evaluator = Lab(unknown=(0.5, 30, 30), noisy=(0.5, 10, 10), quiet=(0.5, 40, 40))
    for trial in evaluator.trials[1:]:
        evaluator.look(trial)
    assert names(search(evaluator)._fastest()) == ["quiet", "noisy", "unknown"]


def test_leaders_are_the_winner_the_fastest_broken_and_the_fastest_of_each_scheme() -> None:
    evaluator = Lab(
        lost=(0.2, 3, 3), broken=(0.3, 10, 10), best=(0.45, 36, 36), mixed=(0.374, 20, 20), far=(0.375, 36, 36)
    )
    evaluator.trials[3].recipe = QuantRecipe(plan={"a": "static", "b": "dynamic"})
    evaluator.trials[4].recipe = QuantRecipe(plan={"a": "dynamic"})
    assert names(search(evaluator)._leaders()) == ["far", "broken", "mixed"]
    evaluator = Lab(best=(0.45, 36, 36))
    assert names(search(evaluator)._leaders()) == ["best"], "each once"
    evaluator = Lab(broken=(0.455, 10, 10), best=(0.459, 36, 36))
    assert names(search(evaluator)._leaders()) == ["best"], "the broken one is not clearly faster"
    evaluator = Lab(best=(0.4, 36, 36), near=(0.499, 30, 30), behind=(0.5, 30, 30))
    for trial, how in zip(evaluator.trials[1:], ("dynamic", "blocks"), strict=True):
        trial.recipe = QuantRecipe(plan={"a": cast(Any, how)})
    assert names(search(evaluator)._leaders()) == ["best", "near"]


@pytest.mark.parametrize(("speed", "db", "first"), [(0.515, 11, "quiet"), (0.516, 11, "noisy"), (0.51, 10.4, "noisy")])
def test_of_broken_ones_about_as_fast_the_quieter_goes_on(speed: float, db: float, first: str) -> None:
    evaluator = Lab(noisy=(0.5, 10, 10), quiet=(speed, db, db))
    assert named(next(search(evaluator)._broken(None), None)) == first


class Chosen:
    """The last choice among candidates; what was timed again is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, evaluator: Lab, *, in_time: bool = True) -> None:
        self.again: list[list[str]] = []
        evaluator.clock = SimpleNamespace(allows=lambda *_: in_time, left=1.0, cuts=[], next_build=0.0, writing=0.0)
        evaluator.reference = evaluator.judge = None  # type: ignore[attr-defined]
        evaluator.time_again = lambda close, *_: self.again.append(names(close))  # type: ignore[attr-defined]
        self.smaller: list[str] = []
        for name in ("compacted", "compacted_unjudged"):
            monkeypatch.setattr(module, name, lambda _, winner, *__, name=name: self.smaller.append(name) or winner)
        monkeypatch.setattr(module, "undominated", lambda _, winner, *__: winner)
        self.evaluator, self.search = evaluator, search(evaluator, sure=True)

    def run(self) -> SearchOutcome:
        return self.search._choose()


def spread(trial: RecipeTrial, low: float, high: float) -> None:
    trial.latency = LatencyRatio((low + high) / 2, low, high, 1.0, (low + high) / 2, 1)


def test_the_leaders_are_timed_again_and_the_fastest_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Lab(best=(0.5, 36, 36), near=(0.56, 36, 36), far=(0.57, 36, 36), broken=(0.45, 10, 10))
    for trial in evaluator.trials:
        trial.recipe = QuantRecipe(plan={trial.name: "static"})
    chosen = Chosen(monkeypatch, evaluator)
    outcome = chosen.run()
    assert named(outcome.best) == "best" and outcome.verdict == "" and chosen.again == [["best", "near"]]
    assert outcome.smallest is None


def test_no_more_leaders_are_timed_again_than_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Lab(best=(0.5, 36, 36), near=(0.51, 36, 36), third=(0.52, 36, 36))
    for trial in evaluator.trials:
        trial.recipe = QuantRecipe(plan={trial.name: "static"})
    chosen = Chosen(monkeypatch, evaluator)
    evaluator.clock.next_build, evaluator.clock.writing = 0.3, 0.2  # of one second that is left
    chosen.run()
    assert chosen.again == [["best", "near"]]
    evaluator.clock.next_build = 0.0
    for trial, size in zip(evaluator.trials, (90, 80, 20), strict=True):
        trial.bytes = size * 1_000_000
    chosen.run()
    assert chosen.again[1:] == [["best", "near"]], "nor than fit into memory together"


@pytest.mark.parametrize(
    ("low", "high", "in_time", "written"),
    [
        (0.97, 0.999, True, True),
        (0.97, 1.0, True, False),
        (1.01, 1.03, True, False),
        (0.93, 0.949, False, True),
        (0.97, 0.999, False, False),
    ],
)
def test_nothing_is_written_unless_it_is_surely_faster(
    low: float, high: float, in_time: bool, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = Lab(only=(0.9, 36, 36))
    spread(evaluator.trials[0], low, high)
    chosen = Chosen(monkeypatch, evaluator, in_time=in_time)
    outcome = chosen.run()
    assert chosen.smaller == ["compacted" if in_time else "compacted_unjudged"]
    assert (outcome.best is not None) == written
    assert bool(outcome.verdict) != written
    assert named(outcome.smallest) == (None if written else "only"), "it may be wanted for its size"


def test_where_nothing_keeps_the_budget_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Chosen(monkeypatch, Lab(broken=(0.5, 10, 10)))
    outcome = chosen.run()
    nearest = "; the nearest, broken: the output has 15.0 dB less than it needs"
    assert (
        outcome.best is None
        and outcome.verdict == "no recipe keeps the accuracy budget" + nearest
        and chosen.again == []
    )
    chosen.evaluator.clock.cuts = ["the repair of accuracy"]
    assert chosen.run().verdict.endswith(", of the 1 tried within the time limit" + nearest)


@pytest.mark.parametrize("timed", [True, False])
def test_one_family_is_tried_however_short_the_time(timed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "whole_model_plans", lambda *_: [("static", WIDE)])
    evaluator = Lab(known=(0.5, 30, 30), other=(0.5, 30, 30))
    evaluator.trials[0].latency = None
    if not timed:
        evaluator.trials[1].latency = None
    evaluator.clock.allows = lambda *_: False
    search(evaluator)._families(static=True)
    assert bool(evaluator.tried) != timed


@pytest.mark.parametrize(("heavy", "timed"), [(True, [True, False, False, False]), (False, [False] * 4)])
def test_ways_to_choose_ranges_are_tried_until_one_loses_next_to_nothing(
    heavy: bool, timed: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where building takes long, the first is timed as well: it is one of the families."""
    monkeypatch.setattr(module, "natural_plan", lambda _: WIDE)
    monkeypatch.setattr(module, "weight_count", lambda _: 20_000_001 if heavy else 20_000_000)
    evaluator, asked = Lab(), list[tuple[str, float, bool]]()
    noise = iter([20, 30, 25, 28])

    def try_out(name: str, recipe: QuantRecipe, *, timed: bool) -> RecipeTrial:
        asked.append((recipe.method, recipe.coverage, timed))
        evaluator.known[name] = (0.5, found := next(noise), found)
        return evaluator.made(name, recipe)

    evaluator.try_out = try_out  # type: ignore[method-assign, assignment]
    found: Any = search(evaluator)
    found.nodes = [object()]
    found._method()
    methods = [("minmax", 1.0), ("mse", 1.0), ("percentile", 0.9999), ("percentile", 0.99999)]
    assert asked == [(*method, one) for method, one in zip(methods, timed, strict=True)]
    assert (found.base.method, found.base.coverage) == ("mse", 1.0)

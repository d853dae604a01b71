"""Which candidates are repaired: none whose repair is known, and none that could not win."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search import accuracy_repair as module
from onnxtool.quantization.search.accuracy_repair import AccuracyRepairs
from onnxtool.quantization.search.evaluator import RecipeTrial
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.quantize import Fidelity

PLAN: Any = {"a": "static", "b": "static"}


def trial(name: str, speed: float, db: float, plan: Any = None, **choices: Any) -> RecipeTrial:
    latency = LatencyRatio(speed, speed, speed, 1.0, speed, 1)
    seen = Fidelity(db, 1.0, None, 16, channel_db=db, margin_db=db - 25)
    recipe = QuantRecipe(plan=PLAN if plan is None else plan, **choices)
    return RecipeTrial(name, recipe, latency=latency, fidelity=seen, first_look=seen)


class Repairs:
    """Candidates, which of them keep the budget, and what their repairs come to; `asked` and `repaired` are noted."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *trials: RecipeTrial, within: str = "", **ends: RecipeTrial | None
    ) -> None:
        self.trials, self.within, self.ends = trials, within.split(), ends
        self.asked: list[str] = []
        self.repaired: list[str] = []
        evaluator: Any = SimpleNamespace(clock=SimpleNamespace(first_half=lambda _: lambda: True))
        self.repairs = AccuracyRepairs(evaluator, [], self.keeps)
        monkeypatch.setattr(module, "repair", self.repair)

    def keeps(self, one: RecipeTrial) -> bool:
        self.asked.append(one.name)
        return one.name in self.within

    def repair(self, _: Any, one: RecipeTrial, *__: Any) -> RecipeTrial | None:
        self.repaired.append(one.name)
        return self.ends.get(one.name)

    def fastest(self) -> Iterator[RecipeTrial]:
        return iter(sorted(self.trials, key=lambda t: t.speed))

    def run(self, *, in_time: bool = True) -> list[str]:
        self.repairs.of_the_fastest(self.fastest, lambda: in_time)
        return self.repaired


@pytest.mark.parametrize(
    ("name", "speed", "db", "plan", "alike"),
    [
        ("slower", 0.41, 13.0, PLAN, True),
        ("equal", 0.4, 13.0, PLAN, True),
        ("fewer nodes", 0.41, 12.0, {}, True),
        ("more nodes", 0.41, 12.0, {**PLAN, "c": "static"}, True),
        ("faster", 0.39, 12.0, PLAN, False),
        ("hardly more accurate", 0.41, 13.4, PLAN, True),
        ("more accurate", 0.41, 13.5, PLAN, False),
        ("other integers", 0.41, 12.0, {"a": "dynamic"}, False),
    ],
)
def test_what_is_no_better_than_one_that_was_repaired_is_not_repaired(
    name: str, speed: float, db: float, plan: Any, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Repairs(monkeypatch).repairs
    found.done = [(trial("known", 0.4, 13), None)]
    other = trial(name, speed, db, plan, smooth=0.5)
    assert found._would_end_alike(other) == alike, name
    other.first_look = None
    assert not found._would_end_alike(other)


def test_looks_at_few_samples_are_compared_with_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Repairs(monkeypatch).repairs
    known = trial("known", 0.4, 13)
    known.fidelity = Fidelity(9, 1.0, None, 64, channel_db=9, margin_db=9 - 25)  # as judged on all samples
    found.done = [(known, None)]
    assert found._would_end_alike(trial("other", 0.41, 13, smooth=0.5)), "as noisy on the same samples"


@pytest.mark.parametrize(("left", "alike"), [({"b": "static"}, True), ({"a": "static"}, False), ({}, True)])
def test_what_has_nodes_in_float_that_another_repair_put_there_is_not_repaired(
    left: Any, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The known one ended with `left` on integers; the other has b on integers, and would end there too."""
    found = Repairs(monkeypatch).repairs
    found.done = [(trial("known", 0.4, 13), trial("repaired", 0.45, 30, left))]
    assert found._would_end_alike(trial("other", 0.41, 20, {"b": "static"})) == alike
    assert not found._would_end_alike(trial("faster", 0.39, 20, {"b": "static"}))


def test_what_has_the_same_integers_is_not_repaired_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    first, fused = trial("first", 0.3, 15), trial("fused", 0.29, 17, fuse="all")
    quiet = trial("quiet", 0.31, 18, equalize=True)
    assert Repairs(monkeypatch, fused, first, quiet).run() == ["fused", "quiet"]
    assert Repairs(monkeypatch, first, quiet, trial("third", 0.32, 22, smooth=0.5)).run() == ["first", "quiet"], "two"


def test_what_one_within_the_budget_is_about_as_fast_as_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = trial("broken", 0.4, 15), trial("kept", 0.43, 40), trial("slow", 0.44, 40)
    found = Repairs(monkeypatch, *trials, within="kept slow")
    assert found.run() == [] and found.asked == ["broken", "kept"]
    found = Repairs(monkeypatch, *trials, within="slow")
    assert found.run() == ["broken"] and found.asked == ["broken", "kept", "broken", "kept", "slow"]
    assert Repairs(monkeypatch, *trials).run(in_time=False) == []


def test_noisy_ones_are_repaired_until_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {"b": trial("repaired", 0.8, 30)}
    names = [trial(name, speed, 1) for name, speed in zip("abcd", (0.5, 0.6, 0.7, 1.1), strict=True)]
    found = Repairs(monkeypatch, *names, **ends)
    found.repairs.of_noisy(found.trials, lambda: True)
    assert found.repaired == ["a", "b"]
    found = Repairs(monkeypatch, *names, within="a")
    found.repairs.done = [(names[1], None)]
    found.repairs.of_noisy(found.trials, lambda: True)
    assert found.repaired == ["c"], "a keeps the budget, b was repaired, d is slower than float"
    single = Repairs(monkeypatch, trial("single", 0.5, 1, {"a": "static"}))
    single.repairs.of_noisy(single.trials, lambda: True)
    assert single.repaired == [], "nothing would be left on integers"
    cast(Any, found).repaired.clear()
    found.repairs.of_noisy(found.trials, lambda: False)
    assert found.repaired == []

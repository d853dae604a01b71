"""The stages of a search: what is judged on all samples, and what is not tried."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx_ir as ir
import pytest

from onnxtool.options.quantize import ResultLimits
from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search import stages as module
from onnxtool.quantization.search.choice import choose_within_limits, is_within_limits
from onnxtool.quantization.search.evaluator import RecipeTrial
from onnxtool.quantization.search.moves import RecipeMove
from onnxtool.quantization.search.search import _judged_at_once, _judged_in_all
from onnxtool.quantization.search.stages import RecipeSearch
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.quantize import Fidelity, TaskMetric

PLAN: Any = {"a": "static"}


def fidelity(db: float) -> Fidelity:
    return Fidelity(db, 1.0, None, 16, channel_db=db, margin_db=db - 25)


class Lab:
    """Candidates by name: speed, noise on a first look, and on all samples."""

    def __init__(self, **known: tuple[float, float, float]) -> None:
        self.known, self.full, self.tried, self.broken = known, [], [], []  # type: ignore[var-annotated]
        self.trials = [self.made(name) for name in known]
        self.times, self.clock = True, SimpleNamespace(allows=lambda *_: True, left=1.0)

    def made(self, name: str, recipe: QuantRecipe | None = None) -> RecipeTrial:
        speed = self.known[name][0]
        latency = LatencyRatio(speed, speed, speed, 1.0, speed, 1)
        size = int(1000 * speed)
        return RecipeTrial(name, recipe or QuantRecipe(plan=PLAN), size, latency=latency)

    def look(self, trial: RecipeTrial) -> None:
        if trial.fidelity is None:
            trial.fidelity = trial.first_look = fidelity(self.known[trial.name][1])
            trial.judged_on_few = True

    def judge_fully(self, trial: RecipeTrial) -> None:
        if trial.judged_on_few:
            self.full.append(trial.name)
            trial.fidelity, trial.judged_on_few = fidelity(self.known[trial.name][2]), False

    def breaks(self, recipe: QuantRecipe) -> bool:
        return recipe in self.broken

    def calibrated(self, recipe: QuantRecipe) -> QuantRecipe:
        return recipe

    def score(self, _: RecipeTrial) -> None:
        return None

    def is_within(self, trial: RecipeTrial) -> bool:
        return trial.fidelity is not None and not trial.judged_on_few and Criterion().judge(trial.fidelity).kept

    def try_out(self, name: str, recipe: QuantRecipe, **_: Any) -> RecipeTrial:
        self.tried.append(name)
        self.known.setdefault(name, (0.5, 40, 40))
        self.trials.append(self.made(name, recipe))
        return self.trials[-1]


class Given:
    """RecipeMoves as they are told, and which of them were learned of."""

    def __init__(self, *labels: str) -> None:
        self.labels, self.cost, self.learned = labels, {}, []  # type: ignore[var-annotated]
        self.useless: set[str] = set()

    def of(self, trial: RecipeTrial, *, accurate: bool, within: bool) -> list[RecipeMove]:
        return [RecipeMove(n, replace(trial.recipe, exclude=(*trial.recipe.exclude, n)), n) for n in self.labels]

    def is_useless(self, move: RecipeMove, _: RecipeTrial) -> bool:
        return move.key in self.useless

    def learn(self, move: RecipeMove, before: RecipeTrial, after: RecipeTrial) -> None:
        self.learned.append((move.label, before.name, after.name))


def search(evaluator: Lab, *, sure: bool = False) -> RecipeSearch:
    found: Any = object.__new__(RecipeSearch)
    found.evaluator, found.budget, found.sure, found.moves = evaluator, Criterion(), sure, Given()
    found.base, found.nodes, found.static_possible, found.inner, found._left = QuantRecipe(), [], True, [], {}
    found.observe = None
    return cast(RecipeSearch, found)


def named(trial: RecipeTrial | None) -> str | None:
    return None if trial is None else trial.name


@pytest.mark.parametrize(("sure", "winner", "judged"), [(False, "fast", []), (True, "slow", ["fast", "slow"])])
def test_before_the_end_a_first_look_is_enough_for_the_winner(sure: bool, winner: str, judged: list[str]) -> None:
    evaluator = Lab(fast=(0.4, 28, 24), slow=(0.5, 36, 36))
    assert named(search(evaluator, sure=sure)._winner()) == winner
    assert evaluator.full == judged


def test_what_is_close_to_the_budget_is_judged_on_all_samples_in_the_end() -> None:
    evaluator = Lab(close=(0.4, 24, 25.5), broken=(0.3, 24, 24), lost=(0.2, 18, 40), slow=(0.5, 40, 40))
    assert named(search(evaluator)._winner()) == "slow" and not evaluator.full
    assert named(search(evaluator, sure=True)._winner()) == "close"
    assert evaluator.full == ["broken", "close"], "the hopeless one is not"
    evaluator = Lab(broken=(0.3, 26, 24), slow=(0.5, 40, 40))
    assert named(search(evaluator)._winner()) == "broken" and not evaluator.full
    assert named(search(evaluator, sure=True)._winner()) == "slow" and evaluator.full == ["broken", "slow"]


def test_with_labels_a_first_look_does_not_tell() -> None:
    evaluator = Lab(broken=(0.3, 26, 24), slow=(0.5, 40, 40))
    found = search(evaluator)
    found.budget = Criterion(labelled=True)
    lost = {"broken": 0.1, "slow": 0.0}
    told: Any = lambda trial: TaskMetric("f1", 0.9, 0.9 - lost[trial.name], 64, lost[trial.name])  # noqa: E731
    evaluator.score = told  # type: ignore[method-assign]
    assert named(found._winner()) == "slow" and evaluator.full == ["broken", "slow"]


@pytest.mark.parametrize(("values", "samples"), [(0, 8), (125_000, 8), (400_000, 2), (1_000_001, 1)])
def test_models_with_large_activations_are_judged_a_few_samples_at_once(values: int, samples: int) -> None:
    assert _judged_at_once(values) == samples


@pytest.mark.parametrize(("values", "samples"), [(1000, 256), (500_000, 100), (2_000_000, 64)])
def test_the_smaller_a_model_is_the_more_samples_judge_it(values: int, samples: int) -> None:
    assert _judged_in_all(values) == samples


def test_of_equally_fast_ones_the_most_accurate_wins_unless_the_fastest_is_accurate_enough() -> None:
    assert named(search(Lab(fast=(0.5, 30, 30), near=(0.51, 34, 34), far=(0.52, 45, 45)))._winner()) == "near"
    assert named(search(Lab(fast=(0.5, 35, 35), near=(0.51, 45, 45)))._winner()) == "fast"
    assert named(search(Lab(fast=(0.5, 35, 35), equal=(0.5, 45, 45)))._winner()) == "equal"


@pytest.mark.parametrize(
    ("speed", "db", "size", "winner"),
    [
        (0.515, 35, 499, "near"),
        (0.516, 35, 499, "fast"),
        (0.51, 34.9, 499, "fast"),
        (0.51, 50, 501, "fast"),
        (0.51, 45, 500, "near"),
    ],
)
def test_of_accurate_ones_that_timing_does_not_tell_apart_the_smallest_wins(
    speed: float, db: float, size: int, winner: str
) -> None:
    evaluator = Lab(fast=(0.5, 40, 40), near=(speed, db, db))
    evaluator.trials[1].bytes = size
    for trial in evaluator.trials:
        assert trial.latency is not None
        trial.latency = replace(trial.latency, low=trial.speed - 0.01, high=trial.speed + 0.01)
    assert named(search(evaluator)._winner()) == "fast", "it takes long enough to be timed well"
    for trial in evaluator.trials:
        assert trial.latency is not None
        trial.latency = replace(trial.latency, before=0.0029)
    assert named(search(evaluator)._winner()) == winner
    evaluator.trials[0].spare = 300
    assert named(search(evaluator)._winner()) == "fast", "its float weights will be stored in fewer bits"
    evaluator.trials[0].spare = 0
    evaluator.trials[1].latency = LatencyRatio(0.515, 0.511, 0.52, 0.0029, 0.515, 1)
    assert named(search(evaluator)._winner()) == "fast", "it is surely slower"


def test_where_nothing_is_timed_families_are_tried_in_both_granularities(monkeypatch: pytest.MonkeyPatch) -> None:
    families = [("static", PLAN), ("dynamic MatMul", {"a": "dynamic"})]
    monkeypatch.setattr(module, "whole_model_plans", lambda *_: families)
    evaluator = Lab()
    for static in (False, True):
        search(evaluator)._families(static=static)
    assert evaluator.tried == ["dynamic MatMul, per-channel", "static, per-channel"], "the other one is a move"
    untimed = Lab()
    untimed.times = False
    for static in (False, True):
        search(untimed)._families(static=static)
    assert len(untimed.tried) == 4


def test_what_needs_no_ranges_is_tried_before_ranges_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    found, order = search(Lab()), []
    for name in ("_method", "_float_kernels", "_move", "_repairs", "_winner", "_choose"):
        monkeypatch.setattr(found, name, lambda *_, name=name: order.append(name))
    monkeypatch.setattr(found, "_families", lambda static: order.append(f"static: {static}"))
    found.observe = lambda: order.append("all samples")  # type: ignore[assignment,func-returns-value]
    found.evaluator.take_observed = lambda _: order.append("taken")  # type: ignore[method-assign]
    found.run()
    assert order[:5] == ["static: False", "all samples", "taken", "_method", "static: True"]
    found.observe = None
    found.run()
    assert order.count("taken") == 1


def test_moves_are_made_from_each_leader_in_turn_and_from_what_they_come_to() -> None:
    evaluator = Lab(fast=(0.5, 40, 40), dynamic=(0.6, 30, 30), behind=(0.63, 30, 30))
    evaluator.trials[1].recipe = QuantRecipe(plan={"a": "dynamic"})
    evaluator.trials[2].recipe = QuantRecipe(plan={"a": "blocks"})
    found: Any = search(evaluator)
    found.moves = Given("p", "q")
    evaluator.known = {**evaluator.known, "fast, p": (0.52, 40, 40), "dynamic, p": (0.45, 40, 40)}
    found._move("moves")
    assert evaluator.tried[:2] == ["fast, p", "dynamic, p"], "the third is more than a quarter slower"
    assert "dynamic, p, q" in evaluator.tried and found.moves.learned[0] == ("p", "fast", "fast, p")
    assert not any("behind" in name for name in evaluator.tried)


def test_moves_that_are_useless_or_break_the_budget_are_not_made_and_none_without_time() -> None:
    evaluator = Lab(fast=(0.5, 40, 40))
    found: Any = search(evaluator)
    found.moves = Given("useless", "broken", "good")
    found.moves.useless = {"useless"}
    evaluator.broken = [replace(evaluator.trials[0].recipe, exclude=("broken",))]
    evaluator.known["fast, good"] = (0.6, 40, 40)
    evaluator.clock.allows = lambda *_: False
    found._move("moves")
    assert evaluator.tried == []
    evaluator.clock.allows = lambda *_: True
    found._move("moves")
    assert evaluator.tried == ["fast, good"]


def test_the_smallest_within_the_budget_is_looked_for_from_below() -> None:
    evaluator = Lab(tiny=(0.2, 30, 20), small=(0.4, 30, 30), alike=(0.42, 30, 30), large=(0.5, 30, 30))
    assert named(search(evaluator)._smallest(None)) == "small"
    assert evaluator.full == ["tiny", "small", "alike"]
    late = Lab(small=(0.4, 30, 30))
    late.clock.left = 0.0
    assert search(late)._smallest(None) is None and late.full == []
    assert named(search(late)._smallest(late.trials[0])) == "small", "the winner was judged"


def test_limits_ask_for_the_budget_of_as_few_as_possible() -> None:
    evaluator = Lab(slow=(0.9, 30, 30), broken=(0.3, 30, 20), fast=(0.4, 30, 30), heavy=(0.41, 30, 30))
    asked: list[str] = []

    def within(trial: RecipeTrial) -> bool:
        asked.append(trial.name)
        return trial.name != "broken"

    assert (
        named(choose_within_limits(ResultLimits(max_ratio=0.5), evaluator.trials, within, evaluator.trials[0]))
        == "fast"
    )
    assert asked == ["broken", "fast"]
    preferred = evaluator.trials[2]
    assert choose_within_limits(ResultLimits(max_ratio=0.5), evaluator.trials, within, preferred) is preferred
    assert named(choose_within_limits(ResultLimits(minimise="size"), evaluator.trials, within, preferred)) == "fast"
    evaluator.trials[3].latency = LatencyRatio(0.2, 0.2, 0.2, 1.0, 0.2, 1)
    assert named(choose_within_limits(ResultLimits(minimise="size"), evaluator.trials, within, preferred)) == "heavy", (
        "2.5 % larger"
    )
    assert "slow" not in asked
    assert choose_within_limits(ResultLimits(max_bytes=100), evaluator.trials, within, None) is None


@pytest.mark.parametrize(("best", "tried"), [(39.9, 2), (40.0, 1)])
def test_other_range_methods_are_not_tried_where_the_first_loses_nothing(best: float, tried: int) -> None:
    evaluator = Lab()
    evaluator.known = {"static, per-channel, minmax": (0.5, best, best)}
    found: Any = search(evaluator)
    weight = ir.Value(name="w", const_value=ir.tensor(np.ones((4, 4), np.float32)))
    found.nodes = [ir.node("Gemm", [ir.Value(name="x"), weight], name="a")]
    found._method()
    assert len(evaluator.tried) == tried


def test_no_range_method_is_tried_beyond_the_limit_where_something_was_timed() -> None:
    evaluator = Lab(dynamic=(0.5, 40, 40))
    evaluator.clock.allows = lambda *_: False
    found: Any = search(evaluator)
    weight = ir.Value(name="w", const_value=ir.tensor(np.ones((4, 4), np.float32)))
    found.nodes = [ir.node("Gemm", [ir.Value(name="x"), weight], name="a")]
    found._method()
    assert evaluator.tried == []
    evaluator.trials.clear()
    found._method()
    assert evaluator.tried == ["static, per-channel, minmax"]


def test_candidates_whose_integers_break_the_budget_do_not_win() -> None:
    evaluator = Lab(fused=(0.4, 40, 40), slow=(0.5, 40, 40))
    evaluator.broken = [evaluator.trials[0].recipe]
    evaluator.trials[1].recipe = QuantRecipe(plan=PLAN, smooth=0.5)
    for sure in (False, True):
        assert named(search(evaluator, sure=sure)._winner()) == "slow"
    assert evaluator.full == ["slow"]


def test_limits_are_kept_at_their_very_values_and_by_what_was_timed() -> None:
    one = Lab(one=(0.5, 30, 30)).trials[0]
    one.bytes = 500
    assert is_within_limits(one, ResultLimits(max_bytes=500, max_ratio=0.5, max_seconds=0.5))
    for broken in (ResultLimits(max_bytes=499), ResultLimits(max_ratio=0.49), ResultLimits(max_seconds=0.49)):
        assert not is_within_limits(one, broken)
    one.latency = None
    assert is_within_limits(one, ResultLimits(max_bytes=500))
    assert not is_within_limits(one, ResultLimits(max_ratio=2.0)) and not is_within_limits(
        one, ResultLimits(max_seconds=2.0)
    )
    one.bytes = 1
    assert is_within_limits(one, ResultLimits(max_bytes=500))
    one.bytes = 0
    assert not is_within_limits(one, ResultLimits(max_bytes=500)), "it was not built"

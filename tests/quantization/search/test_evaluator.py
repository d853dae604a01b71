"""What of a candidate is built, judged and timed, and what of it is spared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from onnxtool.cli.views import quantize as view
from onnxtool.errors import InputError
from onnxtool.quantization.algorithms.float_fusions import FUSIONS
from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search import evaluator as module
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.quantization.search.opened_candidates import Built
from onnxtool.report.measurement.bench import LatencyRatio
from onnxtool.report.quantize import Fidelity, TaskMetric
from onnxtool.runtime.in_turn import Turn


def ratio(value: float, before: float = 1e-4) -> LatencyRatio:
    return LatencyRatio(value, value - 0.001, value + 0.001, before, value * before, 1)


class Laboratory(CandidateEvaluator):
    """Candidates whose latency and noise are told by how much they are smoothed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, labelled: bool = False) -> None:
        self.judged: list[tuple[str, bool]] = []
        self.compared: list[tuple[str, str]] = []
        self.speeds: dict[str, float] = {}
        self.noise: dict[str, float] = {}
        self.loaded: list[str] = []
        self.lucky: Iterator[float] = iter(())
        self.before = 0.01
        job = SimpleNamespace(
            probes=lambda: SimpleNamespace(first=lambda: {"x": np.zeros(1)}),
            runner=self._load,
            source="float.onnx",
            threads=1,
            prepared=None,
            one_at_a_time=False,
            turn=Turn(),
        )
        super().__init__(
            *cast(Any, (job, Criterion(labelled=labelled), SimpleNamespace(judge=self._judge), "float", {})),
            conditions=cast(Any, SimpleNamespace(calibrated=lambda recipe: recipe)),
        )
        self._opened = cast(Any, SimpleNamespace(built=self._built, session=self._session))
        monkeypatch.setattr(module, "beside_fastest", self._beside)

    def _load(self, model: Any) -> Any:
        self.loaded.append("float" if model == "float.onnx" else "candidate")
        return self.loaded[-1]

    def _built(self, recipe: QuantRecipe, speed: Any) -> Built:
        return Built(b"model", 3, 5)

    def _session(self, recipe: QuantRecipe, speed: Any) -> Any:
        if recipe.compact == 16:
            raise InputError("it does not load")
        return f"{recipe.smooth:g}{recipe.fuse}"

    def _judge(self, runner: Any, few: bool = False, begun: Any = None) -> Fidelity:
        self.judged.append((runner, few))
        db = self.noise.get(runner, 50.0)
        return Fidelity(db, 1.0, None, 16 if few else 64, channel_db=db, margin_db=db - 25)

    def _beside(self, runner: Any, fastest: Any, known: LatencyRatio | None, *_: Any) -> tuple[LatencyRatio, bool]:
        self.compared.append((runner, fastest))
        value = next(self.lucky, self.speeds.get(runner, 0.5))
        return ratio(value, self.before), known is not None and value > known.value

    def attempt(self, smooth: float, speed: float = 0.5, db: float = 50.0, **rest: Any) -> RecipeTrial:
        key = f"{smooth:g}{rest.get('fuse', '')}"
        options = {k: rest.pop(k) for k in ("timed",) if k in rest}
        self.speeds[key], self.noise[key] = speed, db
        return self.try_out(key, QuantRecipe(smooth=smooth, **rest), **options)


@pytest.fixture
def evaluator(monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(monkeypatch)


def test_candidates_are_timed_beside_the_fastest_that_is_likely_to_keep_the_budget(evaluator: Laboratory) -> None:
    evaluator.attempt(0.1, 0.6)
    evaluator.attempt(0.2, 0.5)
    evaluator.attempt(0.3, 0.55)
    evaluator.attempt(0.4, 0.4, db=26)  # faster, and within the budget, but not by much
    evaluator.attempt(0.5, 0.45)
    evaluator.attempt(0.6, 0.44)
    assert [fastest for _, fastest in evaluator.compared] == ["float", "0.1", "0.2", "0.2", "0.2", "0.5"]


def test_what_is_surely_slower_is_not_judged_until_it_is_asked_for(evaluator: Laboratory) -> None:
    evaluator.attempt(0.1, 0.5)
    slow = evaluator.attempt(0.2, 0.6)
    assert slow.fidelity is None and evaluator.judged == [("0.1", True)]
    assert not evaluator.is_within(slow) and not evaluator.likely(slow)
    assert slow.candidate(evaluator.budget, False).note == "slower, so not judged"
    evaluator.judge_fully(slow)
    assert evaluator.judged[1:] == [("0.2", True), ("0.2", False)] and slow.fidelity is not None
    assert evaluator.is_within(slow) and not slow.judged_on_few
    evaluator.judge_fully(slow)
    evaluator.look(slow)
    assert len(evaluator.judged) == 3, "once"


@pytest.mark.parametrize("labelled", [False, True])
def test_the_budget_is_kept_or_broken_and_a_dash_where_that_was_not_measured(
    monkeypatch: pytest.MonkeyPatch, labelled: bool
) -> None:
    evaluator = Laboratory(monkeypatch, labelled=labelled)
    trials = [evaluator.attempt(0.1, 0.5), evaluator.attempt(0.2, 0.6), evaluator.attempt(0.3, 0.4, db=24)]
    trials += [evaluator.attempt(0.4, 0.3), evaluator.attempt(0.5, 0.3, compact=16)]
    for trial, drop in ((trials[0], 0.0), (trials[2], 0.02)):
        evaluator.judge_fully(trial)
        trial.metric = TaskMetric("accuracy", 1.0, 1 - drop, 64, drop) if labelled else None
    evaluator.judge_fully(trials[3])
    unasked = "-" if labelled else "kept"
    found = [str(view.budget_word(t.candidate(evaluator.budget, False))) for t in trials]
    assert found == ["kept", "-", "broken", unasked, "-"]


def test_a_first_look_is_not_the_budget(evaluator: Laboratory) -> None:
    trial = evaluator.attempt(0.1)
    assert trial.judged_on_few and evaluator.likely(trial) and not evaluator.is_within(trial)
    assert not trial.candidate(evaluator.budget, False).within_budget
    evaluator.judge_fully(trial)
    assert evaluator.is_within(trial) and trial.candidate(evaluator.budget, False).within_budget


def test_what_is_hopeless_at_first_look_is_not_judged_further(evaluator: Laboratory) -> None:
    trial = evaluator.attempt(0.1, db=10)
    evaluator.judge_fully(trial)
    assert evaluator.judged == [("0.1", True)] and not evaluator.is_within(trial) and not evaluator.likely(trial)


def test_with_labels_only_the_metric_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Laboratory(monkeypatch, labelled=True)
    trial = evaluator.attempt(0.1)
    evaluator.judge_fully(trial)
    assert not evaluator.likely(trial) and not evaluator.is_within(trial)


def test_a_new_trial_knows_nothing() -> None:
    trial = RecipeTrial("a", QuantRecipe())
    assert trial.bytes == 0 and not trial.judged_on_few and trial.speed == float("inf") and trial.note == ""


def test_the_float_model_is_scored_once(evaluator: Laboratory) -> None:
    scored: list[Any] = []
    evaluator.job.task = cast(
        Any,
        SimpleNamespace(
            predict=lambda r: scored.append(r) or {},  # type: ignore[func-returns-value]
            compared=lambda _before, _after, limit: TaskMetric("accuracy", 0.5, 0.5, 2, limit),
        ),
    )
    for smooth in (0.1, 0.2, 0.1):
        metric = evaluator.score(evaluator.attempt(smooth))
        assert metric is not None and metric.drop == 0
    assert scored == ["float", "0.1", "0.2"]


def test_candidates_are_timed_unless_they_are_estimated(evaluator: Laboratory) -> None:
    assert evaluator.times
    evaluator.estimate = lambda recipe: recipe.smooth
    assert not evaluator.times
    assert evaluator.attempt(0.3).speed == 0.3 and evaluator.compared == []


def test_the_same_integers_are_as_accurate_however_floats_are_fused(evaluator: Laboratory) -> None:
    plain = evaluator.attempt(0.1, 0.5)
    fused = evaluator.attempt(0.1, 0.4, fuse="all")
    assert fused.fidelity is plain.fidelity and fused.judged_on_few and evaluator.judged == [("0.1", True)]
    evaluator.judge_fully(fused)
    assert evaluator.judged[1:] == [("0.1all", False)], "and judged by itself before it is written"


def test_what_breaks_the_budget_is_known_of_all_with_the_same_integers(evaluator: Laboratory) -> None:
    plain = evaluator.attempt(0.1, 0.5, db=24)
    fused = replace(plain.recipe, fuse="all")
    assert not evaluator.breaks(fused), "a first look does not tell"
    evaluator.judge_fully(plain)
    assert evaluator.breaks(fused) and evaluator.breaks(plain.recipe)
    assert not evaluator.breaks(replace(fused, smooth=0.2)), "other integers"
    good = evaluator.attempt(0.3, 0.5, db=40)
    evaluator.judge_fully(good)
    assert not evaluator.breaks(good.recipe)
    evaluator.budget = Criterion(labelled=True)
    assert not evaluator.breaks(fused), "labels were not asked"


def test_the_first_look_is_kept_when_more_samples_are_judged(evaluator: Laboratory) -> None:
    plain = evaluator.attempt(0.1, 0.5)
    first = plain.fidelity
    evaluator.judge_fully(plain)
    assert plain.fidelity is not first and plain.first_look is first
    assert evaluator.attempt(0.1, 0.4, fuse="all").first_look is first


def test_each_candidate_is_timed_by_itself(evaluator: Laboratory) -> None:
    """Two models of the same operators, as many of each, were .440 and .383 of float's time."""
    evaluator.attempt(0.1, 0.5)
    assert evaluator.attempt(0.2, 0.4).speed == 0.4
    assert [runner for runner, _ in evaluator.compared] == ["0.1", "0.2"]


def test_what_was_only_judged_is_timed_later_and_judged_no_more(evaluator: Laboratory) -> None:
    first = evaluator.attempt(0.1, timed=False)
    assert first.latency is None and evaluator.compared == []
    assert first.candidate(evaluator.budget, False).note == "judged on few samples"
    again = evaluator.attempt(0.1)
    assert again is first and again.speed == 0.5 and len(evaluator.trials) == 1 and len(evaluator.judged) == 1
    assert evaluator.attempt(0.1) is first and len(evaluator.compared) == 1, "known"
    assert evaluator.attempt(0.1, timed=False) is first


def test_the_noise_of_a_node_is_measured_once_for_all_that_treat_it_alike(
    evaluator: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[QuantRecipe] = []

    def build(recipe: QuantRecipe) -> Any:
        if recipe.smooth:
            raise InputError("it does not load")
        built.append(recipe)
        return len(built)

    monkeypatch.setattr(evaluator, "build", build)
    evaluator.judge = cast(
        Any, SimpleNamespace(glance=lambda _: Fidelity(20, 1.0, None, 4, channel_db=20.0, margin_db=20.0 - 25))
    )
    recipe = QuantRecipe(plan={"a": "static", "b": "dynamic"}, fuse="all", bias_correction=True, shifts={"a": (1.0,)})
    assert evaluator.noise_of("a", recipe) == pytest.approx(0.01)
    assert built == [QuantRecipe(plan={"a": "static"})], "alone, and nothing else done"
    for same in (replace(recipe, fuse=""), replace(recipe, bias_correction=False), replace(recipe, compact=8)):
        evaluator.noise_of("a", same)
    assert len(built) == 1
    others = (
        replace(recipe, per_channel=False),
        replace(recipe, equalize=True),
        replace(recipe, plan={"a": "dynamic"}),
    )
    for other in others:
        evaluator.noise_of("a", other)
    evaluator.noise_of("b", recipe)
    assert len(built) == 5
    assert evaluator.noise_of("a", replace(recipe, smooth=0.5)) == float("inf")


def test_one_that_fails_is_kept_with_the_reason(evaluator: Laboratory) -> None:
    failed = evaluator.attempt(0.1, compact=16)
    assert failed.note == "it does not load" and failed.speed == float("inf") and evaluator.trials == [failed]
    evaluator.look(failed)
    assert failed.fidelity is None and evaluator.judged == []


def test_tiny_models_are_timed_with_three_pairs_of_sessions_and_the_middle_one_counts(evaluator: Laboratory) -> None:
    evaluator.before, evaluator.lucky = 0.000499, iter([0.4, 0.6, 0.5])
    assert evaluator.attempt(0.1).speed == 0.5
    assert evaluator.loaded == ["candidate", "float"] * 2
    evaluator.lucky = iter([0.45, 0.52, 0.51])
    second = evaluator.attempt(0.2)
    assert second.speed == 0.51 and second.fidelity is None, "slower by the middle one"
    assert evaluator.loaded[4:] == ["candidate"] * 4, "beside the fastest"
    evaluator.lucky = iter([0.562])
    assert evaluator.attempt(0.3).speed == 0.562 and len(evaluator.loaded) == 8, "it has lost"
    evaluator.before, evaluator.lucky = 0.0005, iter([0.45])
    assert evaluator.attempt(0.4).speed == 0.45 and len(evaluator.loaded) == 8, "not tiny"


@pytest.mark.parametrize(("before", "short"), [(0.0029, True), (0.003, False)])
def test_short_models_get_fresh_sessions_and_which_is_loaded_first_takes_turns(
    before: float, short: bool, evaluator: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def leaders(opened: Any, *_: Any, **rest: Any) -> list[LatencyRatio]:
        told.append(rest)
        told.extend(opened(block, [1]) for block in range(3))
        return [ratio(0.5), ratio(0.4)]

    monkeypatch.setattr(module, "time_leaders", leaders)
    slower_float = ratio(0.6, 2 * before)  # the float model by another timing, in a slow moment
    trials = [
        RecipeTrial("a", QuantRecipe(smooth=0.2), latency=slower_float),
        RecipeTrial("b", QuantRecipe(smooth=0.1)),
    ]
    trials[1].latency = ratio(0.6, before)
    evaluator.time_again(trials, 2.0)
    assert [t.latency for t in trials] == [ratio(0.5), ratio(0.4)]
    assert told[0] == {"short": short, "patience": 2.0}
    if short:
        assert evaluator.loaded == ["candidate", "float", "float", "candidate", "candidate", "float"]
        assert told[1:] == [["float", "candidate"]] * 3
    else:
        assert evaluator.loaded == [] and told[1:] == [["float", "0.1"]] * 3


def test_leaders_are_timed_with_the_usual_patience_unless_told(
    evaluator: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    def leaders(*_: Any, patience: float, **__: Any) -> list[LatencyRatio]:
        told.append(patience)
        return [ratio(0.5)]

    monkeypatch.setattr(module, "time_leaders", leaders)
    evaluator.time_again([RecipeTrial("a", QuantRecipe())])
    evaluator.time_again([RecipeTrial("a", QuantRecipe())], 3.0)
    assert told == [1.0, 3.0]


def test_of_two_that_are_equally_fast_the_first_stays_what_others_are_timed_beside(evaluator: Laboratory) -> None:
    for smooth in (0.1, 0.2, 0.3):
        evaluator.attempt(smooth, 0.5)
    assert [fastest for _, fastest in evaluator.compared] == ["float", "0.1", "0.1"]


@pytest.mark.parametrize(("found", "fusable"), [(0, ()), (1, FUSIONS)])
def test_what_finds_nothing_to_fuse_in_the_float_model_is_not_tried(
    found: int, fusable: tuple[str, ...], evaluator: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "fuse_floats", lambda *_: found)
    evaluator.job.prepared = cast(Any, SimpleNamespace(clone=lambda: None))  # type: ignore[misc]
    assert evaluator.fusable == fusable


def test_what_was_never_timed_may_be_short(evaluator: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time_leaders", lambda *_, short, **__: [ratio(0.5 if short else 0.9)])
    trials = [RecipeTrial("a", QuantRecipe(smooth=0.2))]
    evaluator.time_again(trials)
    assert trials[0].speed == 0.5


def test_without_a_figure_on_labels_nothing_is_within_their_budget() -> None:
    fidelity = Fidelity(50.0, 1.0, None, 8, channel_db=50.0, margin_db=50.0 - 25)
    trial = RecipeTrial("a", QuantRecipe(), fidelity=fidelity)
    assert trial.candidate(Criterion(), False).within_budget
    assert not trial.candidate(Criterion(labelled=True), False).within_budget


def test_fusions_that_cannot_be_made_are_none(evaluator: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> int:
        raise InputError("it does not fuse")

    evaluator.job = cast(Any, SimpleNamespace(prepared=SimpleNamespace(clone=lambda: None)))
    monkeypatch.setattr(module, "fuse_floats", failing)
    assert evaluator.fusable == ()

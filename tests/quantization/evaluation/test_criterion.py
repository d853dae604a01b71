"""The accuracy budget without labels, and how a repair begins."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, cast

import pytest

from onnxtool.quantization.evaluation.criterion import Criterion
from onnxtool.quantization.recipe import QuantRecipe
from onnxtool.quantization.search.accuracy_repair import first_guess, repair
from onnxtool.quantization.search.evaluator import CandidateEvaluator, RecipeTrial
from onnxtool.report.quantize import Fidelity, TaskMetric


def fidelity(db: float, agreement: float | None = None, drop: float | None = None) -> Fidelity:
    """What has nothing but noise to be judged by: 20 dB are needed of classes, 25 of values."""
    return Fidelity(
        db, 1.0, agreement, 32, channel_db=db, expected_drop=drop, margin_db=db - (25 if agreement is None else 20)
    )


@pytest.mark.parametrize(
    ("db", "agreement", "drop", "allowed"),
    [
        (24, 0.995, 0.005, True),  # hardly any flips
        (24, 0.96, 0.01, True),  # flips that cost less than the budget
        (24, 0.96, 0.011, False),
        (24, 0.94, 0.0005, False),
        (19, 0.995, 0.0, False),
        (33, 0.94, 0.01, True),  # near ties
        (33, 0.94, 0.011, False),
        (33, 0.88, 0.0005, False),
    ],
)
def test_flips_of_classes_are_weighed_by_what_they_cost(
    db: float, agreement: float, drop: float, allowed: bool
) -> None:
    assert Criterion().judge(fidelity(db, agreement, drop)).kept is allowed


def test_agreement_alone_without_what_flips_cost_is_not_enough() -> None:
    assert not Criterion().judge(replace(fidelity(24.9), agreement=1.0)).kept
    assert Criterion().judge(replace(fidelity(25.1), agreement=0.5)).kept


def test_what_holds_no_classes_goes_by_its_noise() -> None:
    assert not Criterion().labelled
    assert Criterion().judge(fidelity(25.1)).kept
    assert not Criterion().judge(fidelity(24.9)).kept


@pytest.mark.parametrize(
    ("db", "agreement", "sequences", "hopeless"),
    [
        (18.9, None, False, True),
        (19.1, None, False, False),
        (25, 0.79, False, True),
        (25, 0.81, False, False),
        (31, 0.59, False, True),
        (31, 0.61, False, False),
        (13.9, 0.95, True, True),
        (14.1, 0.95, True, False),
        (13.9, 0.995, False, True),
        (14.1, 0.995, False, False),
        (-40, 0.995, True, False),
    ],
)
def test_what_is_far_outside_is_not_measured_closely(
    db: float, agreement: float | None, sequences: bool, hopeless: bool
) -> None:
    assert Criterion().judge(replace(fidelity(db, agreement, 0.0), sequences=sequences)).hopeless is hopeless
    assert (
        Criterion(labelled=True).judge(fidelity(4.9)).hopeless
        and not Criterion(labelled=True).judge(fidelity(5.1)).hopeless
    )


def test_texts_go_by_their_characters_and_labels_by_the_metric() -> None:
    texts = replace(fidelity(3, 0.991, 0.009), sequences=True)
    assert Criterion().judge(texts).kept and not Criterion().judge(replace(texts, agreement=0.989)).kept


@pytest.mark.parametrize(
    ("value", "at_most", "db", "allowed"),
    [
        (0.89, 0.02, 0, True),  # the labels show it, whatever the outputs look like
        (0.89, 0.021, 50, True),  # they do not, and the outputs do
        (0.89, 0.021, 0, False),
        (0.8799, 0.03, 50, False),  # more is lost than was allowed
        (0.89, None, 50, True),
        (0.89, None, 0, False),
    ],
)
def test_the_bound_of_the_labels_decides_or_what_outputs_would_cost(
    value: float, at_most: float | None, db: float, allowed: bool
) -> None:
    metric = TaskMetric("accuracy", 0.9, value, 100, at_most)
    assert Criterion(0.02, labelled=True).judge(fidelity(db), metric).kept is allowed


def test_flips_are_judged_by_the_end_of_their_interval() -> None:
    seen = replace(fidelity(40, 1.0, 0.0), flips_at_most=0.046, drop_at_most=0.02)
    worst = Criterion().judge(seen).worst
    assert "cost 2 points" in worst.text and worst.at_most == pytest.approx(2) and worst.measured == 0
    assert Criterion().judge(replace(seen, flips_at_most=0.01)).kept
    assert Criterion().judge(replace(seen, drop_at_most=0.01)).kept


def test_flips_of_what_may_be_no_classes_name_the_option_that_says_so() -> None:
    seen = replace(fidelity(31, 0.5, 0.0), kinds={"y": "linear"})
    assert "--output-kind y:values" in Criterion().judge(seen).worst.text
    rare = replace(seen, agreement=1.0, expected_drop=0.0, flips_at_most=None, class_f1_lost=0.1)
    assert "mean F1" in (told := Criterion().judge(rare).worst.text) and "--output-kind y:values" in told
    seen = replace(seen, kinds={"y": "linear", "z": "classes"})
    assert "--output-kind" not in Criterion().judge(seen).worst.text


def test_what_breaks_the_budget_is_named() -> None:
    seen = replace(fidelity(12), weakest="y[3]")
    assert Criterion().judge(seen).worst.text == "y[3] has 13.0 dB less than it needs"
    may_be_logits = replace(seen, kinds={"y": "linear"}, agreement=1.0, expected_drop=0.0)
    told = "y[3] has 13.0 dB less than it needs (if y holds classes: --output-kind y:logits)"
    assert Criterion().judge(may_be_logits).worst.text == told


@pytest.mark.parametrize(
    ("seen", "sure"),
    [
        (fidelity(23.1, 0.995, 0.005), True),
        (fidelity(22.9, 0.995, 0.005), False),  # 3 dB of room
        (fidelity(25, 0.994, 0.0051), False),  # half of a point
        (fidelity(25, 0.975, 0.005), True),  # flips that cost nothing, half as many
        (fidelity(25, 0.974, 0.0005), False),
        (fidelity(28.1), True),
        (fidelity(27.9), False),
        (replace(fidelity(40, 1.0, 0.0), margin_db=3.1), True),
        (replace(fidelity(40, 1.0, 0.0), margin_db=2.9), False),
        (replace(fidelity(40), margin_db=3.1), True),
        (replace(fidelity(40), margin_db=2.9), False),
        (replace(fidelity(40), vector_cosine=0.991, neighbours=0.9951), True),
        (replace(fidelity(40), vector_cosine=0.989), False),
        (replace(fidelity(40), vector_cosine=0.991, neighbours=0.9949), False),
        (replace(fidelity(29.9), detection_f1=0.996), True),
        (replace(fidelity(29.9), detection_f1=0.994), False),
        (replace(fidelity(30.1), detection_f1=0.991), True),
        (replace(fidelity(30.1), detection_f1=0.989), False),
        (replace(fidelity(40), sample_f1=0.996), True),
        (replace(fidelity(40), sample_f1=0.994), False),
        (replace(fidelity(40), total_shift=0.01), True),
        (replace(fidelity(40), total_shift=0.011), False),
    ],
)
def test_a_first_look_is_enough_where_it_leaves_room(seen: Fidelity, sure: bool) -> None:
    assert Criterion().judge(seen).has_room is sure
    assert Criterion().judge(seen).kept, "all of them are within the budget, if these were all samples"


# A field, a value within the budget and one beyond it: what counts is the end of the interval.
_BOUNDED = [
    ("margin_db", 0.0, -0.1),
    ("vector_cosine", 0.99, 0.97),
    ("neighbours", 0.995, 0.98),
    ("detection_f1", 0.995, 0.97),
    ("sample_f1", 0.995, 0.98),
    ("total_shift", 0.01, 0.03),
    ("rare_shift", 0.01, 0.04),
    ("class_f1_lost", 0.01, 0.03),
]


@pytest.mark.parametrize(
    ("seen", "allowed"),
    [
        (fidelity(25.0), True),
        (fidelity(24.9), False),
        (fidelity(20.0, 0.99, 0.5), True),
        (fidelity(19.9, 0.99, 0.5), False),
        (fidelity(30.0, 0.9, 0.01), True),  # so close that flips are near ties
        (fidelity(29.9, 0.9, 0.0025), False),
        (replace(fidelity(5, 0.99, 0.5), sequences=True), True),
        (replace(fidelity(20, 0.95, 0.001), sequences=True), True),  # characters that cost nothing
        (replace(fidelity(19, 0.98, 0.001), sequences=True), False),
        (replace(fidelity(20, 0.98, 0.011), sequences=True), False),
        (replace(fidelity(40, 1.0, 0.0), margin_db=0), True),
        (replace(fidelity(40), margin_db=0), True),
        (replace(fidelity(40), margin_db=-0.1), False),
        (replace(fidelity(5), margin_db=3.0, vector_cosine=0.98, neighbours=0.99), True),
        (replace(fidelity(5), margin_db=3.0, vector_cosine=0.98, neighbours=0.989), False),
        (replace(fidelity(29.9), detection_f1=0.99), True),
        (replace(fidelity(29.9), detection_f1=0.989), False),
        (replace(fidelity(30.0), detection_f1=0.98), True),  # near ties
        (replace(fidelity(30.0), detection_f1=0.979), False),
        (replace(fidelity(30.0), detection_f1=0.98, detections=199), True),
        (replace(fidelity(30.0), detection_f1=0.989, detections=200), False),  # so many that one in a hundred is told
        (replace(fidelity(30.0), detection_f1=0.99, detections=200), True),
        (replace(fidelity(29.9), detection_f1=0.95, detection_cost=0.0066), True),  # what differs costs nothing
        (replace(fidelity(29.9), detection_f1=0.95, detection_cost=0.0067), False),
        (replace(fidelity(29.9), detection_f1=0.949, detection_cost=0.0), False),
        (replace(fidelity(30.0), detection_f1=0.9, detection_cost=0.0066), True),
        (replace(fidelity(30.0), detection_f1=0.9, detection_cost=0.0067), False),
        (replace(fidelity(30.0), detection_f1=0.899, detection_cost=0.0), False),
        (replace(fidelity(40), detection_f1=1.0, sample_f1=0.99), True),
        (replace(fidelity(40), detection_f1=1.0, sample_f1=0.989), False),
        (replace(fidelity(40), detection_f1=1.0, sample_f1=0.9, sample_cost=0.0066), True),
        (replace(fidelity(40), detection_f1=1.0, sample_f1=0.9, sample_cost=0.0067), False),
        (replace(fidelity(20), margin_db=0.0, detection_f1=1.0), True),  # scores, which were counted
        (replace(fidelity(40), total_shift=0.02), True),
        (replace(fidelity(40), total_shift=0.021), False),
        (replace(fidelity(40), rare_shift=0.03), True),
        (replace(fidelity(40), rare_shift=0.031), False),
        (replace(fidelity(40), rare_f1=0.98), True),
        (replace(fidelity(40), rare_f1=0.979), False),
        (replace(fidelity(40), class_f1_lost=0.02), True),
        (replace(fidelity(40), class_f1_lost=0.021), False),
        *((replace(fidelity(40), **{name: good}, bounds={name: bad}), False) for name, good, bad in _BOUNDED),
        *((replace(fidelity(40), **{name: bad}, bounds={name: good}), True) for name, good, bad in _BOUNDED),
    ],
)
def test_what_is_exactly_at_a_limit_keeps_it(seen: Fidelity, allowed: bool) -> None:
    assert Criterion().judge(seen).kept is allowed


@pytest.mark.parametrize(
    ("seen", "hopeless"),
    [
        (fidelity(14.0, 1.0, 0.0), False),
        (fidelity(13.9, 1.0, 0.0), True),
        (fidelity(19.0), False),
        (fidelity(18.9), True),
        (fidelity(29.9, 0.81, 0.0), False),
        (fidelity(29.9, 0.79, 0.0), True),
        (fidelity(30.0, 0.61, 0.0), False),
        (fidelity(30.0, 0.59, 0.0), True),
        (replace(fidelity(1), margin_db=3.0, vector_cosine=0.921), False),
        (replace(fidelity(1), margin_db=3.0, vector_cosine=0.919), True),
    ],
)
def test_what_is_hopeless_begins_well_beyond_the_limits(seen: Fidelity, hopeless: bool) -> None:
    assert Criterion().judge(seen).hopeless is hopeless
    if hopeless:
        assert not Criterion().judge(seen).kept


def test_a_first_look_tells_nothing_about_labels() -> None:
    assert not Criterion(labelled=True).judge(fidelity(60, 1.0, 0.0)).has_room


def test_a_repair_begins_where_the_noise_that_is_left_fits() -> None:
    # 10 dB is a tenth of noise; of classes, a hundredth (20 dB) is allowed.
    trial = RecipeTrial("t", QuantRecipe(), fidelity=fidelity(10, 0.8, 0.1))
    assert first_guess(trial, [0.05, 0.03, 0.012, 0.008]) == 3
    assert first_guess(trial, [0.095, 0.003, 0.002]) == 1
    assert first_guess(trial, [1.0] * 4) == 3, "not all of them"
    assert first_guess(trial, [float("inf"), 1.0]) == 1
    dense = RecipeTrial("t", QuantRecipe(), fidelity=fidelity(10))
    assert first_guess(dense, [0.05, 0.03, 0.012, 0.008]) == 3
    assert first_guess(dense, [0.05, 0.03, 0.015, 0.003, 0.002]) == 4


class _Laboratory:
    """Every node costs the same, and what is left of the plan is all that a trial knows."""

    seen: ClassVar[dict[str, object]] = {}

    def noise_of(self, *_: object) -> float:
        return 0.01

    def __init__(self) -> None:
        self.timed: list[str] = []

    def try_out(self, name: str, recipe: QuantRecipe, *, timed: bool = True) -> RecipeTrial:
        self.timed += [name] if timed else []
        return RecipeTrial(name, recipe, fidelity=fidelity(12, 0.9, 0.05))


@pytest.mark.parametrize("needed", [1, 33, 40, 45, 50])
def test_a_repair_finds_the_fewest_nodes_wherever_it_begins(needed: int) -> None:
    plan = {f"n{i}": "static" for i in range(51)}
    trial = RecipeTrial("t", QuantRecipe(mode="auto", plan=plan), fidelity=fidelity(12, 0.9, 0.05))

    def keeps(tried: RecipeTrial) -> bool:
        return 51 - len(tried.recipe.plan or {}) >= needed

    evaluator = _Laboratory()
    best = repair(cast(CandidateEvaluator, evaluator), trial, keeps, lambda: True, [])
    assert best is not None
    assert len(best.recipe.plan or {}) == 51 - needed
    assert evaluator.timed == [best.name], "the others are only judged"


def test_a_budget_smaller_than_the_usual_one_is_kept_to() -> None:
    seen = replace(fidelity(60), neighbours=0.995)  # half a point of what is nearest
    assert Criterion(0.01).judge(seen).kept and not Criterion(0.001).judge(seen).kept

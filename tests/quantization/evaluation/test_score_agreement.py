"""Scores over thresholds, on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.evaluation.score_agreement import ScoreAgreement


def seen(right: np.ndarray, actual: np.ndarray, matching: np.ndarray | bool = True) -> ScoreAgreement:
    found = ScoreAgreement()
    found.add(right, actual, matching)
    return found


def test_f1_and_cost_of_a_flip_are_those_of_the_worst_threshold() -> None:
    right = np.r_[np.full(30, 0.9), np.full(10, 0.55), np.full(60, 0.1)]
    near, far = right.copy(), right.copy()
    near[30:34] = 0.45  # of 40 over 0.5, four that are 0.05 over it
    far[:4] = 0.45
    assert seen(right, near).f1 == pytest.approx(2 * 36 / (40 + 36))
    assert seen(right, near).cost == pytest.approx(4 * 0.05 / 40)
    assert seen(right, far).f1 == pytest.approx(2 * 26 / (30 + 26)), "over 0.7"
    assert seen(right, far).cost == pytest.approx(max(4 * 0.4 / 40, 4 * 0.2 / 30))
    assert seen(right, near).count == 30, "the fewest, over 0.7"


def test_what_comes_costs_what_it_lacks() -> None:
    right = np.r_[np.full(25, 0.9), np.full(75, 0.25)]
    more = right.copy()
    more[-5:] = 0.35
    assert seen(right, more).f1 == pytest.approx(2 * 25 / (25 + 30))
    assert seen(right, more).cost == pytest.approx(5 * 0.05 / 25)


def test_what_is_found_elsewhere_costs_its_whole_score() -> None:
    right = np.full(40, 0.8)
    elsewhere = np.arange(40) >= 2
    assert seen(right, right, elsewhere).f1 == pytest.approx(38 / 40)
    assert seen(right, right, elsewhere).cost == pytest.approx(2 * 0.8 / 40)


def test_few_tell_nothing() -> None:
    right = np.r_[np.full(19, 0.9), np.zeros(100)]
    assert seen(right, right).f1 is None and seen(right, right).cost is None and seen(right, right).count == 0
    right = np.r_[np.full(20, 0.9), np.zeros(100)]
    assert seen(right, right).f1 == 1 and seen(right, right).cost == 0 and seen(right, right).count == 20


def test_each_picture_counts_by_itself() -> None:
    """Seven pictures with a large object, one with a small one that goes."""
    right = np.zeros((8, 100))
    right[:7, :60] = 1
    right[7, :5] = 1
    lost = right.copy()
    lost[7] = 0
    found = ScoreAgreement()
    found.add_samples(right, lost)
    assert found.of_samples == pytest.approx((7 / 8, 0.5 / 8))
    found.add_samples(np.eye(8, 100), np.zeros((8, 100)))
    assert found.of_samples == pytest.approx((7 / 8, 0.5 / 8)), "a pixel is no object"
    rim = np.where(right > 0, 0.52, 0.1)
    unsure = ScoreAgreement()
    unsure.add_samples(rim, np.where(np.arange(100) == 0, 0.45, rim))
    assert unsure.of_samples == pytest.approx(((7 * 2 * 59 / 119 + 8 / 9) / 8, (7 * 0.02 / 60 + 0.02 / 5) / 8))


@pytest.mark.parametrize("shape", [(7, 100), (8, 63)])
def test_few_pictures_or_scores_are_no_pictures(shape: tuple[int, int]) -> None:
    found = ScoreAgreement()
    found.add_samples(np.ones(shape), np.ones(shape))
    assert found.of_samples is None


def test_a_picture_has_64_scores_and_counts_what_is_over_a_half() -> None:
    right = np.zeros((8, 64))
    right[:, :10], right[:, 10:20] = 0.9, 0.5
    found = ScoreAgreement()
    found.add_samples(right, np.where(right == 0.5, 0.4, right))
    assert found.of_samples == (1.0, 0.0)


def test_objects_are_counted() -> None:
    found = ScoreAgreement()
    found.add_found(30, 28, 27)
    found.add_found(10, 10, 10)
    assert found.f1 == pytest.approx(2 * 37 / 78) and found.count == 40
    assert found.cost == pytest.approx(4 / 40)


def test_a_score_at_the_threshold_is_not_over_it() -> None:
    right = np.r_[np.full(20, 0.9), np.full(20, 0.5), np.full(20, 0.3)]
    assert seen(right, np.where(right == 0.5, 0.31, np.where(right == 0.3, 0.1, right))).f1 == 1


def test_thresholds_that_few_exceed_are_left_out_alone() -> None:
    right = np.r_[np.full(30, 0.6), np.full(10, 0.9)]
    gone = np.where(right == 0.9, 0.6, right)
    assert seen(right, gone).f1 == 1 and seen(right, gone).cost == 0 and seen(right, gone).count == 40

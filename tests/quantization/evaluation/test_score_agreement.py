"""Scores over thresholds, on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.evaluation.score_agreement import ScoreAgreement


def seen(right: np.ndarray, actual: np.ndarray, matching: np.ndarray | bool = True, samples: int = 1) -> ScoreAgreement:
    found = ScoreAgreement()
    found.add(right, actual, matching, samples)
    return found


def test_f1_and_cost_of_a_flip_are_those_of_the_worst_threshold() -> None:
    right = np.r_[np.full(60, 0.97), np.full(20, 0.55), np.full(60, 0.01)]
    near, far = right.copy(), right.copy()
    near[60:64] = 0.45  # of 80 over 0.5, four that are 0.05 over it
    far[:4] = 0.45
    assert seen(right, near).f1() == pytest.approx(2 * 76 / (80 + 76))
    assert seen(right, far).f1() == pytest.approx(2 * 56 / (60 + 56)), "over 0.7"
    assert seen(right, far).cost() == pytest.approx(2 * 4 * 0.47 / (80 + 76)), "far from 0.5"
    assert seen(right, near).count == 60, "the fewest, over 0.7"


def test_what_is_near_a_threshold_costs_though_it_did_not_flip() -> None:
    right = np.r_[np.full(60, 0.97), np.full(40, 0.52)]
    louder = np.where(right == 0.52, 0.54, right)
    chance = 1 / (1 + np.exp(1.702 * 0.02 / 0.02))
    assert seen(right, louder).f1() == 1
    assert seen(right, louder).cost() == pytest.approx(2 * 40 * chance * 0.02 / 200)
    far = np.where(right == 0.52, 0.8, right)
    assert seen(far, far + 0.02 * (far == 0.8)).cost() == pytest.approx(
        2 * 40 * 0.1 / (1 + np.exp(1.702 * 0.1 / 0.02)) / 200
    )
    assert seen(right, right).cost() == pytest.approx(0, abs=1e-12), "no noise, no cost"


def test_what_comes_costs_what_it_lacks() -> None:
    right = np.r_[np.full(55, 0.97), np.full(75, 0.04)]
    more = right.copy()
    more[-5:] = 0.35
    assert seen(right, more).f1() == pytest.approx(2 * 55 / (55 + 60))
    assert seen(right, more).cost() == pytest.approx(2 * 5 * 0.26 / (55 + 60))


def test_what_is_found_elsewhere_costs_its_whole_score() -> None:
    right = np.full(80, 0.8)
    elsewhere = np.arange(80) >= 4
    assert seen(right, right, elsewhere).f1() == pytest.approx(76 / 80)
    assert seen(right, right, elsewhere).cost() == pytest.approx(4 * 0.8 / 80)


def test_one_object_that_is_missed_costs_no_more_than_so_many_of_them_show() -> None:
    """One of a thousand: none costs more than itself, so that the exact bound of a share holds (4.74 of them)."""
    found = ScoreAgreement()
    for sample in range(250):
        found.add(np.ones((4, 1)), np.ones((4, 1)), np.arange(4)[:, None] >= (sample == 7))
    assert found.cost() == pytest.approx(4.74 / 1000, rel=0.01)


def test_a_few_samples_show_less() -> None:
    """Two flips of a hundred: what sixteen samples show, and what they show where both are of one."""
    right = np.full((1, 16 * 8), 0.9)
    apart, one = right.copy(), right.copy()
    apart[0, [0, 60]] = one[0, [0, 1]] = 0.1
    spread, heaped = (seen(right, v, samples=16) for v in (apart, one))
    assert spread.f1() == heaped.f1() == pytest.approx(126 / 127)
    least = [v.f1(0.95) or 1 for v in (spread, heaped)]
    assert least[1] < least[0] < 126 / 127
    apart[0, ::16] = one[0, :8] = 0.1
    costs = [seen(right, v, samples=n).cost() or 0 for v, n in ((apart, 1), (apart, 16), (one, 16))]
    assert costs == sorted(set(costs))


@pytest.mark.parametrize(("found", "told"), [(49, False), (50, True)])
def test_single_ones_decide_where_few_are_found(found: int, told: bool) -> None:
    right = np.r_[np.full(found, 0.89), np.zeros(100)]
    lost = right.copy()
    lost[0] = 0.25
    assert (seen(right, lost).f1() is not None) == told and (seen(right, right).count == found) == told
    assert (seen(right, lost).rare_f1 is None) == told
    if not told:
        assert seen(right, lost).rare_f1 == pytest.approx(2 * 48 / 97) and seen(right, right).rare_f1 == 1


def test_what_sinks_below_nine_tenths_counts_however_many_there_are_unless_they_are_pixels() -> None:
    right = np.r_[np.full(200, 0.96), np.zeros(100)]
    lost = np.where(np.arange(300) < 10, 0.84, right)
    found = seen(right, lost)
    assert found.f1() == 1 and found.rare_f1 == pytest.approx(2 * 190 / 390)
    found.add_samples(np.ones((8, 100)), np.ones((8, 100)))
    assert found.rare_f1 is None


def test_rare_scores_that_change_places_cost_nothing_and_false_ones_do() -> None:
    right = np.r_[np.tile([0.69, 0.71], 10), np.full(80, 0.1)]
    swapped = np.r_[np.tile([0.71, 0.69], 10), right[20:]]
    sunk, rising = np.where(right > 0.5, right - 0.02, right), np.where(np.arange(100) == 50, 0.9, right)
    assert (seen(right, swapped).rare_f1 or 0) > 0.99 > 0.9 > (seen(right, sunk).rare_f1 or 1)
    assert (seen(right, rising).rare_f1 or 1) < 0.98
    few = [np.where(np.arange(100) < count, right - 0.03, right) for count in (1, 3, 5)]
    found = [seen(right, moved).rare_f1 or 0 for moved in few]
    assert found == pytest.approx([0.9995, 0.9788, 0.9194], abs=1e-3), "noise may have raised one, hardly five"
    elsewhere = np.arange(100) != 3
    assert (seen(right, right, elsewhere).rare_f1 or 1) < 0.98


def test_how_far_few_scores_move_is_said_with_what_they_may() -> None:
    right = np.full(10, 0.95)
    alike, single = right - 0.02, right - np.where(np.arange(10) == 0, 0.2, 0.0)
    assert seen(right, alike).rare_shift() == pytest.approx((0.02, 0.02), rel=1e-3)
    measured, most = seen(right, single).rare_shift() or (0, 0)
    assert measured == pytest.approx(0.02) and most > 0.05


def test_each_picture_counts_by_itself() -> None:
    """Seven pictures with a large object, one with a small one that goes."""
    right = np.zeros((8, 100))
    right[:7, :60] = 1
    right[7, :5] = 1
    lost = right.copy()
    lost[7] = 0
    found = ScoreAgreement()
    found.add_samples(right, lost)
    assert found.of_samples() == pytest.approx((7 / 8, 0.5 / 8))
    least, most = found.of_samples(0.95) or (1, 0)
    assert least < 7 / 8 and most > 0.5 / 8
    found.add_samples(np.eye(8, 100), np.zeros((8, 100)))
    assert found.of_samples() == pytest.approx((7 / 8, 0.5 / 8)), "a pixel is no object"
    rim = np.where(right > 0, 0.52, 0.1)
    unsure = ScoreAgreement()
    unsure.add_samples(rim, np.where(np.arange(100) == 0, 0.45, rim))
    assert unsure.of_samples() == pytest.approx(((7 * 2 * 59 / 119 + 8 / 9) / 8, (7 * 0.02 / 60 + 0.02 / 5) / 8))


@pytest.mark.parametrize("shape", [(7, 100), (8, 63)])
def test_few_pictures_or_scores_are_no_pictures(shape: tuple[int, int]) -> None:
    found = ScoreAgreement()
    found.add_samples(np.ones(shape), np.ones(shape))
    assert found.of_samples() is None


def test_a_picture_has_64_scores_and_counts_what_is_over_a_half() -> None:
    right = np.zeros((8, 64))
    right[:, :10], right[:, 10:20] = 0.9, 0.5
    found = ScoreAgreement()
    found.add_samples(right, np.where(right == 0.5, 0.4, right))
    assert found.of_samples() == (1.0, 0.0)


def test_objects_are_counted() -> None:
    found = ScoreAgreement()
    found.add_found(60, 58, 57)
    found.add_found(20, 20, 20)
    assert found.f1() == pytest.approx(2 * 77 / 158) and found.count == 80
    assert (found.cost() or 0) >= 2 * 4 / 158


def test_a_score_at_the_threshold_is_not_over_it() -> None:
    right = np.r_[np.full(50, 0.9), np.full(50, 0.5), np.full(50, 0.3)]
    assert seen(right, np.where(right == 0.5, 0.31, np.where(right == 0.3, 0.1, right))).f1() == 1

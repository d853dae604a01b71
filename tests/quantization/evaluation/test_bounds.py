"""Bounds of what is lost, against figures worked out by hand and against what they are for."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtool.quantization.evaluation.bounds import (
    amount_bound,
    clustered_share_bound,
    mean_bound,
    paired_bound,
    resampled_bound,
    samples_to_show,
    share_bound,
)
from onnxtool.quantization.evaluation.class_agreement import ClassAgreement, probabilities


@pytest.mark.parametrize(
    ("count", "total", "bound"),
    [(0, 64, 0.0457), (0, 256, 0.01163), (0, 299, 0.00997), (0, 298, 0.0100), (1, 20, 0.2161), (5, 100, 0.1023)],
)
def test_shares_have_the_limits_of_clopper_and_pearson(count: int, total: int, bound: float) -> None:
    assert share_bound(count, total) == pytest.approx(bound, rel=2e-3)
    assert share_bound(0, total, 0.99) == pytest.approx(1 - 0.01 ** (1 / total), rel=1e-6)


def test_ends_of_shares() -> None:
    assert share_bound(3, 3) == 1 and share_bound(0, 0) == 1
    assert share_bound(3000, 100_000) == pytest.approx(0.0309, abs=1e-4), "thousands do not overflow"


def test_the_bound_of_a_share_is_exceeded_in_one_of_twenty() -> None:
    counts = np.random.default_rng(0).binomial(200, 0.03, 4000)
    bounds = {k: share_bound(k, 200) for k in set(counts.tolist())}
    beyond = np.mean([bounds[k] < 0.03 for k in counts])
    assert 0.005 < beyond <= 0.05


def test_what_comes_in_bunches_counts_for_less() -> None:
    even = clustered_share_bound(np.full(50, 2.0), np.full(50, 100.0))
    bunched = clustered_share_bound(np.array([100.0] + [0.0] * 49), np.full(50, 100.0))
    assert even == pytest.approx(share_bound(100, 5000)) and bunched > 2 * even


def test_means() -> None:
    values = np.array([1.0, 2, 3, 4])
    assert mean_bound(values) == pytest.approx(2.5 + 2.353 * np.std(values, ddof=1) / 2, rel=0.03)
    assert mean_bound(values[:1]) == np.inf


def test_what_is_gained_counts_against_what_is_lost() -> None:
    before, after = np.ones(1000, bool), np.ones(1000, bool)
    assert paired_bound(before, after) == pytest.approx(1 - 0.04 ** (1 / 1000), rel=1e-2)
    after[:20], before[20:60] = False, False
    assert paired_bound(before, after) < 0.02 < paired_bound(np.ones(1000, bool), after)


def test_a_resampled_bound_is_no_less_than_what_unseen_samples_may_lose() -> None:
    assert resampled_bound(lambda _: 0.0, 64) == pytest.approx(0.0457, rel=1e-2)
    values = np.random.default_rng(1).normal(0.01, 0.05, 400)
    bound = resampled_bound(lambda i: float(values[i].mean()), 400)
    assert bound == pytest.approx(values.mean() + 1.645 * values.std() / 20, rel=0.15)


def test_how_many_samples_would_show_it() -> None:
    assert samples_to_show(100, 0.0, 0.03, 0.01) == 900
    assert samples_to_show(100, 0.01, 0.03, 0.01) is None and samples_to_show(9, 0.0, np.inf, 0.01) is None


def test_near_ties_that_did_not_flip_cost_what_noise_may_make_of_them() -> None:
    random = np.random.default_rng(2)
    right = random.normal(size=(64, 10))
    quiet, loud = ClassAgreement(), ClassAgreement()
    quiet.add(right, right + 1e-6 * random.normal(size=right.shape))
    margins = np.sort(right, axis=1)[:, -1] - np.sort(right, axis=1)[:, -2]
    keep = margins > 0.3
    loud.add(right[keep], right[keep] + 0.15 * random.normal(size=right[keep].shape))
    assert loud.hits == loud.total, "nothing flipped in either"
    assert quiet.drop_at_most(0.95) == 0.001 < loud.drop_at_most(0.95) < 0.05
    assert quiet.flips_at_most(0.95) == pytest.approx(0.0457, rel=1e-2)


def test_a_resampled_bound_holds_where_few_samples_lose_much() -> None:
    """Of lopsided losses Student's end alone is exceeded in 11 % of the runs, of 32 samples each."""
    random, beyond = np.random.default_rng(5), 0
    for _ in range(150):
        lost = random.lognormal(-4, 1.2, 32)
        beyond += resampled_bound(lambda i, lost=lost: float(lost[i].mean()), 32) < np.exp(-4 + 1.2**2 / 2)  # type: ignore[misc]
    assert beyond / 150 < 0.1


@pytest.mark.parametrize(("samples", "most"), [(8, 0.11), (32, 0.09), (256, 0.06)])
def test_a_mean_of_amounts_is_hardly_ever_beyond_its_bound(samples: int, most: float) -> None:
    """Squares of normal numbers, which Student's interval misses in 20, 13 and 6 % of all draws."""
    random = np.random.default_rng(5)
    bounds = np.array([amount_bound(random.normal(size=samples) ** 2) for _ in range(1000)])
    assert (bounds < 1).mean() < most
    assert bounds.mean() < 1 + 7 / np.sqrt(samples), "and it says something"


def test_amounts_that_are_all_alike_leave_nothing_open() -> None:
    assert amount_bound(np.full(16, 0.3)) == pytest.approx(0.3, rel=1e-4)
    assert amount_bound(np.zeros(16)) == 0 and amount_bound(np.array([0.3])) == pytest.approx(0.3)
    assert amount_bound(np.r_[1.0, np.zeros(15)]) > 10 * amount_bound(np.full(16, 1 / 16)), "all of it in one sample"
    assert amount_bound(np.arange(16.0), 0.99) > amount_bound(np.arange(16.0), 0.9) > 7.5


def test_two_samples_vary_as_new_ones_would() -> None:
    """Resamples of them vary by less, by the root of a half."""
    values = np.array([0.0, 1.0])
    found = resampled_bound(lambda chosen: float(values[chosen].mean()), 2)
    assert 0.9 < found / mean_bound(values) < 1.1


def test_a_part_of_a_hit_is_one() -> None:
    assert share_bound(0.5, 10) == share_bound(1, 10) > share_bound(0, 10)


def test_flips_of_what_is_hardly_more_than_a_tie_count_for_less() -> None:
    """Ages as a hundred classes: the best one has a chance of a few in a hundred. Logits say nothing of the kind."""
    random = np.random.default_rng(3)
    logits = 2 - 0.5 * (np.arange(100) - random.uniform(20, 80, (400, 1))) ** 2 / 64
    likely = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    ages, raw = ClassAgreement(), ClassAgreement()
    ages.add(likely, likely * (1 + 0.001 * random.normal(size=likely.shape)))
    raw.add(logits, logits + 0.001 * random.normal(size=logits.shape))
    assert ages.flips_counted == pytest.approx((1 - ages.agreement) * 0.25) and ages.agreement < 1
    assert raw.flips_counted == 1 - raw.agreement > 0


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_samples_that_were_not_seen_may_be_near_a_tie(kind: str) -> None:
    """One input in fifty is one: many draws of forty have none, and may not say that nothing is lost."""
    random = np.random.default_rng(0)
    lead = np.where(np.arange(4000) % 50 == 0, random.uniform(0, 2, 4000), 12.0)
    right = np.stack([lead, np.zeros(4000), np.full(4000, -9.0)], axis=1)
    actual = right + random.normal(0, 2, right.shape) * [1, 1, 0]
    if kind == "probabilities":
        right, actual = probabilities(right), probabilities(actual)

    def agreed(places: np.ndarray) -> ClassAgreement:
        found = ClassAgreement()
        found.add(right[places], actual[places])
        return found

    lost = agreed(np.arange(4000)).expected_drop
    draws = [random.integers(0, 4000, 40) for _ in range(200)]
    assert lost > 0.002
    assert np.mean([agreed(draw).drop_at_most(0.95) < lost for draw in draws]) <= 0.05
